"""Fetch or cancel the batch jobs of a run, and make records of their results without further requests."""

from __future__ import annotations

import asyncio

from coeval.engine.progress import Watcher
from coeval.models.batch.batches import cancel_jobs_and_count_left
from coeval.models.batch.job_list import BatchMode, read_jobs
from coeval.models.keys import Keys
from coeval.pipeline.config.load_file import read_config
from coeval.pipeline.run import run_phases
from coeval.pipeline.run_options import RunOptions
from coeval.pipeline.run_session import RunSummary
from coeval.pipeline.start.checks import refuse_bad_start
from coeval.store.rundir import RunDir


async def fetch_or_cancel_batches(
    folder: RunDir, keys: Keys, watcher: Watcher, interrupt: asyncio.Event, *, cancel: bool = False
) -> RunSummary:
    """Collect the finished batch jobs of a run, and make their records by the configuration in its folder.

    No model is called. ``cancel``: cancel open jobs first; what is done by then is paid, and kept. Jobs of
    models that have left the configuration are then given up.

    Raises UsageError: a credential is missing, or records of another configuration are in the run;
    StoreError: the run folder cannot be read or written.
    """
    path = folder.path.resolve()
    here = {"storage_folder": str(path.parent), "id": path.name, "probe_mode": "disable"}
    config = read_config(folder.config).with_experiment_settings(**here).config
    if cancel:
        names = {model.name for model in config.models}
        with folder.hold_lock():
            orphans = [job for job in read_jobs(folder.pending_batches) if job.name not in names]
            await cancel_jobs_and_count_left(orphans, folder, keys, watcher.note, gives_up=True)
    mode = BatchMode.CANCEL if cancel else BatchMode.FETCH
    options = RunOptions(continue_run=True, batches=mode)
    refuse_bad_start(config, options)
    return await run_phases(config, options, keys=keys, watcher=watcher, interrupt=interrupt)
