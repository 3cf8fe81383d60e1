"""Whether a run may start in its folder: V-11 for a new one, V-14 for one that goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from coeval.core.errors import StoreError
from coeval.core.options import CONTINUE, OVERWRITE
from coeval.pipeline.config.load import Loaded
from coeval.pipeline.config.problems import Finding, Problem
from coeval.pipeline.config.schema import PHASES, Config
from coeval.store.jsonl import UNREADABLE
from coeval.store.rundir import RunDir

_RESCUE = (
    "put meta.json back from a copy, or take the records over: another id, resume_from: {}, and the modes "
    "Extend for data_generation, response_collection and evaluation"
)


def run_folder(config: Config) -> RunDir:
    return RunDir(Path(config.experiment.storage_folder) / config.experiment.id)


def check_start(loaded: Loaded, *, continue_run: bool, overwrite: bool) -> list[Problem]:
    """Why the run cannot start in its folder as asked; empty where it can.

    A folder that holds no artifact of a phase in mode New (say, one with a probe's results only)
    is free. So is phase 3 when all its datapoints were ingested for benchmark teachers.
    """
    findings = start_findings(loaded.config, continue_run=continue_run, overwrite=overwrite)
    return [loaded.lines.locate(finding) for finding in findings]


def start_findings(config: Config, *, continue_run: bool, overwrite: bool) -> list[Finding]:
    """`check_start` for a configuration that no longer knows its lines."""
    run = run_folder(config)
    if continue_run:
        return list(_cannot_continue(run, config.experiment.id))
    return [] if overwrite else list(_occupied(run, config))


def _cannot_continue(run: RunDir, identifier: str) -> Iterator[Finding]:
    path = ("experiment", "id")
    try:
        found = run.read_meta().experiment_id
    except (FileNotFoundError, NotADirectoryError):
        if any(run.holds(phase) for phase in PHASES):
            yield Finding(
                path, "V-14", f"{run.path} holds records, but no meta.json; {_RESCUE.format(run.path)}"
            )
        else:
            yield Finding(path, "V-14", f"there is no run in {run.path} to continue; leave out {CONTINUE}")
        return
    except StoreError as error:
        yield Finding(path, "V-14", f"cannot be continued: {error}; {_RESCUE.format(run.path)}")
        return
    if found != identifier:
        message = (
            f"is '{identifier}', but {run.meta} is of the run '{found}'; set the id to that, or use another"
        )
        yield Finding(path, "V-14", message)


def _occupied(run: RunDir, config: Config) -> Iterator[Finding]:
    phases = [phase for phase in PHASES if config.experiment.mode(phase) == "New"]
    if config.experiment.resume_from is not None and not run.meta.exists():
        # Taking over another run's blueprint was cut short; repeating the start completes it.
        phases = [phase for phase in phases if phase in PHASES[2:] or phase in config.experiment.phases]
    standing = [
        run.folder(phase).name for phase in phases if run.holds(phase) and not _ingested(run, phase, config)
    ]
    if standing:
        message = (
            f"{run.path} holds {', '.join(standing)} already, and these phases are New; "
            f"use {CONTINUE} to go on with it, another id, or {OVERWRITE} to move it to replaced/"
        )
        yield Finding(("experiment", "id"), "V-11", message)


class _Origin(msgspec.Struct):
    teacher_model_id: str


def _ingested(run: RunDir, phase: str, config: Config) -> bool:
    """Whether the phase's records are all items that a benchmark teacher of the configuration supplies."""
    if phase != "data_generation":
        return False
    benchmarks = {model.name for model in config.with_role("teacher") if model.interface == "benchmark"}
    decoder = msgspec.json.Decoder(_Origin)
    for path in run.files(phase):
        with path.open("rb") as lines:
            for line in lines:
                try:
                    origin = decoder.decode(line)
                except UNREADABLE:
                    return False
                if origin.teacher_model_id not in benchmarks:
                    return False
    return bool(benchmarks)
