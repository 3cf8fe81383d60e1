"""CoEval from Python: load a configuration, run it, read what it made.

>>> import coeval
>>> run = coeval.run(coeval.load_config("examples/quickstart.yaml"), overwrite=True)
>>> run.exit_code
0
>>> for score in run.results().students: ...
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from coeval.core.errors import ConfigError, StoreError, UsageError
from coeval.core.options import CONTINUE, OVERWRITE
from coeval.core.records import Datapoint, Evaluation, Record, Response
from coeval.engine.progress import Watcher
from coeval.models.keys import Keys
from coeval.pipeline.config.load import load_config, read_config
from coeval.pipeline.config.schema import Config, Phase
from coeval.pipeline.config.start import Start, run_folder
from coeval.pipeline.outcome import Summary
from coeval.pipeline.planned import planned_names
from coeval.pipeline.recorded import Stance
from coeval.pipeline.run import arun as _arun
from coeval.pipeline.running import Options
from coeval.store.journal import Index, RecordPart
from coeval.store.rundir import RunDir

if TYPE_CHECKING:
    from coeval.analysis.planned import Planned
    from coeval.analysis.scores import Results

__all__ = ["Config", "Run", "Summary", "Watcher", "arun", "load_config", "open_run", "run"]


_KIND: dict[str, type[Any]] = {
    "data_generation": Datapoint,
    "response_collection": Response,
    "evaluation": Evaluation,
}


@dataclass(frozen=True, slots=True)
class Run:
    """A run on disk, finished or not.

    ``summary`` says what the call that returned it did; None when it was only opened.
    """

    path: Path
    summary: Summary | None = None

    @property
    def exit_code(self) -> int:
        """0 all there, 3 with gaps, 130 interrupted."""
        return self.summary.exit_code if self.summary else 0

    def records(self, phase: Phase) -> Iterator[Record]:
        """The records of a phase 3–5, one of each id: a failed one only where no good one is there.

        Raises
        ------
        UsageError
            the phase keeps no records.
        """
        if phase not in _KIND:
            raise UsageError(f"{phase} keeps no records; ask for one of {', '.join(_KIND)}")
        index: Index[None] = Index()
        index.read(RunDir(self.path).files(phase), RecordPart, lambda _: None)
        return (index.load(key, _KIND[phase]) for key in index)

    def results(self) -> Results:
        """Student scores per task and overall with 95 % intervals, and label accuracies.

        What the run's ``config.yaml`` no longer names is marked ``removed``, or ``left_out`` of the means;
        items ``beyond_total`` are in none either.
        """
        from coeval.analysis.load import RunReader  # numpy, scipy and duckdb: only when asked for
        from coeval.analysis.scores import results

        planned: Planned | None = None
        notes: tuple[str, ...] = ()
        try:
            planned = planned_names(RunDir(self.path))
        except (ConfigError, StoreError) as error:
            reason = str(error).splitlines()[0]
            notes = (f"what was removed from the configuration cannot be told and counts in full: {reason}",)
        with RunReader(self.path, planned) as reader:
            found = results(reader)
        return msgspec.structs.replace(found, notes=found.notes + notes)


def open_run(path: str | Path) -> Run:
    """A run folder for reading.

    Raises
    ------
    UsageError
        it is none.
    """
    folder = RunDir(path)
    if not folder.is_run():
        raise UsageError(f"{path} is not a run folder: it holds no meta.json and no artifacts")
    return Run(folder.path)


async def arun(
    config: Config | str | Path,
    *,
    continue_run: bool = False,
    overwrite: bool = False,
    only_models: Sequence[str] = (),
    changed: Literal["refuse", "redo", "keep"] = "refuse",
    phase_barriers: bool = False,
    keys: str | Path | None = None,
    watcher: Watcher | None = None,
    interrupt: asyncio.Event | None = None,
) -> Run:
    """Run an experiment as far as it goes; what fails is recorded, and counted in ``Run.summary``.

    Parameters
    ----------
    config:
        a loaded configuration, or the path of an experiment file.
    continue_run:
        go on with the run that stands under this id: do what is owed (``--continue``).
    overwrite:
        begin anew; what the phases in mode New hold moves to ``replaced/``, the rest stays.
    only_models:
        in phases 3–5, do only the work in which one of these models takes part.
    changed:
        what to do with good records that another configuration made: refuse to start, redo them
        and all that follows from them, or keep them as they are.
    phase_barriers:
        finish each phase before the next begins, rather than letting them overlap.
    keys:
        a key file, read before the places where keys are looked for.
    watcher:
        is told what happens; see `Watcher`.
    interrupt:
        once set, the run ends within a few seconds with all finished work on disk.

    Raises
    ------
    UsageError
        the request was wrong.
    ModelUnavailable
        a probed model does not answer.
    StoreError
        the run folder cannot be read or written.
    """
    options = Options(
        continue_run=continue_run,
        overwrite=overwrite,
        only_models=tuple(only_models),
        stance=Stance(changed),
        phase_barriers=phase_barriers,
    )
    if continue_run and overwrite:
        raise UsageError(f"{CONTINUE} and {OVERWRITE} exclude each other; give one of them")
    start = Start(continue_run, overwrite, options.only_models)
    loaded = config if isinstance(config, Config) else read_config(config, start=start).config
    found = find_keys(keys)
    summary = await _arun(loaded, options, keys=found, watcher=watcher, interrupt=interrupt)
    return Run(run_folder(loaded).path, summary)


def run(config: Config | str | Path, **how: Any) -> Run:
    """`arun`, waited for; also inside a notebook, where a loop is running already.

    Takes the keyword arguments of `arun` and raises what it raises.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(arun(config, **how))
    return _in_another_thread(config, how)


def _in_another_thread(config: Config | str | Path, how: dict[str, Any]) -> Run:
    """The caller's loop waits, and ours runs beside it."""
    with ThreadPoolExecutor(1, thread_name_prefix="coeval") as executor:
        return executor.submit(lambda: asyncio.run(arun(config, **how))).result()


def find_keys(path: str | Path | None = None) -> Keys:
    """The credentials of this process: ``path``, the usual key files, the environment."""
    return Keys.load(
        Path(path) if path is not None else None, env=os.environ, cwd=Path.cwd(), home=Path.home()
    )
