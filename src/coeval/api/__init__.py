"""CoEval from Python: load a configuration, run it, read what it made, compare it.

>>> import coeval
>>> run = coeval.run("examples/quickstart.yaml", overwrite=True)
>>> run.exit_code
0
>>> for score in run.results().students: ...
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from coeval.analysis.readers.run_records import Records
from coeval.api.given_tables import Rows, read_with_tables
from coeval.api.run_handle import Run, compare, gate, open_run
from coeval.api.stoppable import forward_and_draw_progress, wait_for
from coeval.core.errors import CoevalError, ConfigError, ModelUnavailable, StoreError, UsageError
from coeval.core.settings import with_keywords_of
from coeval.engine.progress import Watcher
from coeval.models.batch.job_list import BatchMode
from coeval.models.keys import Keys, load_keys
from coeval.pipeline.config.load_file import load_config, read_config
from coeval.pipeline.config.schema import Config
from coeval.pipeline.run import run_phases as _arun
from coeval.pipeline.run_options import ChangePolicy, RunOptions, run_folder
from coeval.pipeline.run_session import RunSummary
from coeval.pipeline.start.checks import refuse_bad_start

__all__ = [
    "CoevalError",
    "Config",
    "ConfigError",
    "ModelUnavailable",
    "Records",
    "Run",
    "RunSummary",
    "StoreError",
    "UsageError",
    "Watcher",
    "arun",
    "compare",
    "gate",
    "load_config",
    "open_run",
    "run",
]  # fmt: skip

Experiment: TypeAlias = Config | Mapping[str, Any] | str | Path
"""A loaded configuration, the sections of an experiment file as a mapping, or the path of such a file."""

Changed: TypeAlias = Literal["refuse", "redo", "keep"]


class _ExperimentCall(msgspec.Struct, frozen=True):
    config: Experiment


class RunCall(_ExperimentCall, frozen=True, kw_only=True):
    """The parameters of `run` and `arun`."""

    items: Rows | Mapping[str, Rows] | None = None
    answers: Mapping[str, Rows | Mapping[str, str]] | None = None
    continue_run: bool = False
    overwrite: bool = False
    only_models: Sequence[str] = ()
    changed: Changed = "refuse"
    phase_barriers: bool = False
    wait: bool = True
    allow_unsandboxed: bool = False
    keys: str | Path | None = None
    progress: bool | None = None
    watcher: Watcher | None = None
    interrupt: asyncio.Event | None = None


@with_keywords_of(RunCall)
def run(call: RunCall) -> Run:
    """Run an experiment as far as it goes; what fails is recorded, and counted in ``Run.summary``.

    Works in scripts and notebooks. Ctrl-C, or Stop in a notebook, ends the run as it does ``coeval run``:
    nothing new is asked, requests on the wire have a few seconds to finish, all finished work is on disk,
    and the `Run` is returned with exit code 130: check it before you start the next one.

    - ``config``: an experiment file's path, a mapping with its sections, or what `load_config` returned.
    - ``items``: the items of the only task, or of tasks by name, in the place of ``items.path``: a pandas
      or polars frame, an Arrow table, or a list of mappings. Columns are those that the task's ``items``
      names, else the usual ones.
    - ``answers``: answers that exist, by student: such rows, or a mapping from prompt to answer.
    - ``continue_run``: continue the run with this id: do what is owed.
    - ``overwrite``: begin anew; what the phases in mode New hold moves to ``replaced/``, the rest stays.
    - ``only_models``: in phases 3–5, do only the work in which one of these models takes part.
    - ``changed``: refuse to start where another configuration made good records, redo these and all that
      follows from them, or keep them as they are.
    - ``phase_barriers``: finish each phase before the next begins, rather than letting them overlap.
    - ``wait``: for batch jobs; False: end when they are submitted, for ``continue_run`` to collect.
    - ``allow_unsandboxed``: where there is no sandbox, run checks' programs with this account's rights.
    - ``keys``: a key file, read before the places where keys are looked for.
    - ``progress``: show the run as it goes: by default in a notebook only, unless there is a
      ``watcher``. True: outside a notebook too, as lines on standard error.
    - ``watcher``: is told what happens; see `Watcher`.
    - ``interrupt``: once set, on the loop of the run, does what the first Ctrl-C does.

    Raises UsageError: the request was wrong; ModelUnavailable: a probed model does not answer; StoreError:
    the run folder cannot be read or written; KeyboardInterrupt: at a second Ctrl-C, which ends it at once.

    >>> run = coeval.run("examples/quickstart.yaml", overwrite=True)
    >>> run.exit_code
    0
    """
    event = call.interrupt or asyncio.Event()
    return wait_for(lambda: _run_call(call, event), event)


@with_keywords_of(RunCall)
async def arun(call: RunCall) -> Run:
    """Run an experiment as a coroutine: `run`, with the same parameters and errors.

    Setting ``interrupt`` ends it within a few seconds, as Ctrl-C ends `run`. Cancelling ends it at once,
    as asyncio has it: CancelledError is raised, requests on the wire are lost, finished work is on disk.

    >>> asyncio.run(coeval.arun("examples/quickstart.yaml", continue_run=True))
    Run('runs/quickstart', Summary(1,044 of 1,044 records there))
    """
    return await _run_call(call, call.interrupt or asyncio.Event())


async def _run_call(call: RunCall, event: asyncio.Event) -> Run:
    """Read the configuration with its tables, and run it with progress."""
    if isinstance(call.only_models, str):
        raise UsageError(f'only_models is a list of names; write only_models=["{call.only_models}"]')
    if call.changed not in (policies := [stance.value for stance in ChangePolicy]):
        raise UsageError(f'changed="{call.changed}" is unknown; use {", ".join(policies)}')
    options = RunOptions(
        call.continue_run,
        call.overwrite,
        tuple(call.only_models),
        ChangePolicy(call.changed),
        call.phase_barriers,
        BatchMode.WAIT if call.wait else BatchMode.SUBMIT,
        allow_unsandboxed=call.allow_unsandboxed,
    )
    config = call.config
    if call.items is not None or call.answers:
        if isinstance(config, Config):
            raise UsageError("items and answers go with an experiment file or mapping, not with a loaded one")
        config = read_config(read_with_tables(config, call.items, call.answers), start=options).config
    elif isinstance(config, Config):
        refuse_bad_start(config, options)
    else:
        config = read_config(config, start=options).config
    async with forward_and_draw_progress(call.progress, call.watcher, event) as watching:
        return await run_checked_config(
            config, options, keys=load_keys(call.keys), watcher=watching, interrupt=event
        )


async def run_checked_config(
    config: Config, options: RunOptions, *, keys: Keys, watcher: Watcher, interrupt: asyncio.Event
) -> Run:
    """Run a checked configuration, and write its report if it asks for one; raises as `run`."""
    summary = await _arun(config, options, keys=keys, watcher=watcher, interrupt=interrupt)
    run = Run(run_folder(config).path, summary)
    if config.experiment.report and summary.shows_scores:
        await asyncio.to_thread(run.write_report)
    return run
