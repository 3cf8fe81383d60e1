"""What batch jobs of a run have brought, made records of without asking anything more; or their end."""

from __future__ import annotations

import asyncio

from coeval.engine.progress import Watcher
from coeval.models.batch.batches import cancel_jobs
from coeval.models.batch.job_list import BatchMode, read_jobs
from coeval.models.keys import Keys
from coeval.pipeline.config.load_file import load_config
from coeval.pipeline.config.schema import Config
from coeval.pipeline.run import run_phases
from coeval.pipeline.run_options import RunOptions
from coeval.pipeline.run_session import RunSummary
from coeval.pipeline.start.checks import refuse_bad_start
from coeval.store.rundir import RunDir


async def fetch_batches(
    folder: RunDir, keys: Keys, watcher: Watcher, interrupt: asyncio.Event, *, cancel: bool = False
) -> RunSummary:
    """Collect the jobs of a run that have ended, of every phase and interface, and make their records.

    The run's own configuration, as it lies in the folder, says what they are for. Nothing is submitted, and
    no model is asked. ``cancel``: have all jobs cancelled first; what is done by then is paid, and kept. Jobs
    of models that the configuration has no more are given up then.

    Raises UsageError: a credential is missing, or records of another configuration stand in the run;
    StoreError: the run folder cannot be read or written.
    """
    config = _there(load_config(folder.config), folder)
    if cancel:
        names = {model.name for model in config.models}
        with folder.hold_lock():
            orphans = [job for job in read_jobs(folder.pending_batches) if job.name not in names]
            await cancel_jobs(orphans, folder, keys, watcher.note, gives_up=True)
    mode = BatchMode.CANCEL if cancel else BatchMode.FETCH
    options = RunOptions(continue_run=True, batches=mode)
    refuse_bad_start(config, options)
    return await run_phases(config, options, keys=keys, watcher=watcher, interrupt=interrupt)


def _there(config: Config, folder: RunDir) -> Config:
    """The configuration of a run where it lies now, with nobody probed."""
    path = folder.path.resolve()
    place = {"storage_folder": str(path.parent), "id": path.name, "probe_mode": "disable"}
    return config.model_copy(update={"experiment": config.experiment.model_copy(update=place)})
