"""Planned and there, file by file: where a run lacks records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from typing import NamedTuple

import msgspec

from coeval.core.errors import ConfigError, StoreError
from coeval.core.records import CHECK
from coeval.core.shown_url import HIDDEN
from coeval.core.text import join_names, pluralize
from coeval.pipeline.config.load_file import load_config
from coeval.pipeline.config.schema import Config, Phase
from coeval.pipeline.phases.blueprint import KINDS, Blueprint
from coeval.pipeline.phases.supplied import ShortSupply, short_answers, short_supplies
from coeval.pipeline.plan.count_plan import PlanCount, count_plan, mixed_sentence, read_recipes
from coeval.pipeline.plan.preview import make_plan
from coeval.pipeline.plan.recorded import Recorded
from coeval.pipeline.plan.run_plan import Node, Spared
from coeval.pipeline.plan.task_setup import TaskSetup, build_setup
from coeval.pipeline.run_options import ChangePolicy, RunOptions, run_folder
from coeval.pipeline.start.inherit import find_source_run
from coeval.store.record_index import RecordFiles
from coeval.store.rundir import RunDir


@dataclass(slots=True)
class FileGap:
    """Records of one file: those of the plan, and how many of them are there, good and whole."""

    phase: Phase
    planned: int = 0
    there: int = 0


@dataclass(slots=True)
class Gaps:
    """``files`` in the order of the plan; ``unsettled`` are tasks whose phases 1–2 are not finished;
    ``short`` the files of items that people have to add to; ``mixed`` tells of records that are there and of
    another configuration (`mixed_sentence`)."""

    files: dict[Path, FileGap] = field(default_factory=dict)
    unsettled: list[str] = field(default_factory=list)
    short: list[ShortSupply] = field(default_factory=list)
    mixed: str = ""

    def missing(self, phase: Phase) -> int:
        return sum(gap.planned - gap.there for gap in self.files.values() if gap.phase == phase)

    @property
    def owed(self) -> int:
        """How much is missing, tasks whose phases 1–2 are not finished among it."""
        return sum(map(self.missing, _NOUNS)) + len(self.unsettled)

    @property
    def lacking(self) -> list[tuple[str, int]]:
        """The files of phases 3–5 that lack records, by their names in the run's folder, and how many each
        lacks; in the order of the plan."""
        return [
            (f"{path.parent.name}/{path.name}", gap.planned - gap.there)
            for path, gap in self.files.items()
            if gap.phase in _NOUNS and gap.planned > gap.there
        ]

    def sentences(self, *, files: bool = True) -> Iterator[str]:
        """What of the plan is not there, for people; and where, unless all ``files`` are shown beside it."""
        if self.unsettled:
            yield f"phases 1–2 are not finished for {join_names(self.unsettled)}"
        if said := describe_missing_records({phase: self.missing(phase) for phase in _NOUNS}):
            yield (
                f"{said}; see {join_names((name for name, _ in self.lacking), _MOST_NAMED)}"
                if files
                else said
            )


# Files in a sentence.
_MOST_NAMED = 3

_NOUNS: dict[Phase, str] = {
    "data_generation": "item",
    "response_collection": "answer",
    "evaluation": "judgment",
}


def describe_missing_records(counts: Mapping[Phase, int]) -> str:
    """How many records of phases 3–5 are not there, in words; empty: none."""
    parts = [pluralize(counts[phase], noun) for phase, noun in _NOUNS.items() if counts[phase]]
    return f"missing from the plan: {join_names(parts)}" if parts else ""


def find_gaps(folder: RunDir, config: Config, recorded: Recorded, damaged: Collection[Path] = ()) -> Gaps:
    """Hold what is ``recorded`` in ``folder`` against the whole plan of ``config``.

    Documents of phases 1–2 that are ``damaged`` do not count. Reads, and changes nothing.
    """
    gaps = Gaps()
    blueprint = Blueprint(config, folder, follow_file=True, inherited=find_source_run(config))
    setups, known = [], read_recipes(folder)
    for task in config.tasks:
        unusable = any(blueprint.artifact(task.name, kind) in damaged for kind in KINDS)
        drawn = None if unusable else blueprint.known(task)
        if drawn is None:
            gaps.unsettled.append(task.name)
        else:
            setups.append(build_setup(config, task, drawn).as_recorded(known))
    plan = make_plan(
        config, RunOptions(continue_run=True, change_policy=ChangePolicy.REPORT), setups, recorded
    )
    gaps.short = short_supplies(plan, folder)
    for lacking in gaps.short:
        gaps.files[lacking.path] = FileGap("data_generation", planned=lacking.missing)
    found = count_plan(plan, _FileCount(folder, gaps))
    for (of, student), missing in found.unanswered.items():
        path = folder.responses(of, student)
        gaps.files.setdefault(path, FileGap("response_collection")).planned += missing
    gaps.short += short_answers(found.unanswered, config)
    gaps.mixed = mixed_sentence(found.changed)
    return gaps


class _FileCount(PlanCount):
    """Counts by file too; a plan may have a million records in a dozen files."""

    def __init__(self, folder: RunDir, gaps: Gaps) -> None:
        super().__init__()
        self._folder = folder
        self._gaps = gaps
        self._known: dict[tuple[str, Phase, str, str], FileGap] = {}

    def add(self, setup: TaskSetup, node: Node) -> None:
        super().add(setup, node)
        gap = self._gap(setup, node)
        gap.planned += node.records
        gap.there += 0 if node.owed else node.records

    def spare(self, setup: TaskSetup, spared: Spared) -> None:
        """What follows from a record that was lost is there all the same."""
        super().spare(setup, spared)
        self._gap(setup, spared).there += spared.records

    def _gap(self, setup: TaskSetup, record: Node | Spared) -> FileGap:
        place = (setup.task.name, record.phase, record.teacher, record.name)
        if place not in self._known:
            path = self._path(setup, *place[1:])
            self._known[place] = self._gaps.files.setdefault(path, FileGap(record.phase))
        return self._known[place]

    def _path(self, setup: TaskSetup, phase: Phase, teacher: str, name: str) -> Path:
        task = setup.task.name
        match phase:
            case "data_generation":
                return self._folder.datapoints(task, teacher)
            case "response_collection":
                return self._folder.responses(task, name)
            case _ if setup.pairs is not None and any(name == judge.name for judge in setup.judges):
                return self._folder.pairs(task, teacher, name)
            case _:
                return self._folder.evaluations(task, teacher, name)


# --- Checks that could not be computed


class _CheckPart(msgspec.Struct):
    id: str
    task_id: str
    missing: tuple[str, ...] = ()
    reasons: dict[str, str] | None = None


class UnscoredChecks(NamedTuple):
    """``records`` lack factors; ``reasons``: how often each task and factor has which."""

    records: int
    reasons: Counter[tuple[str, str, str]]


def read_unscored_checks(folder: RunDir) -> UnscoredChecks:
    """Read why checks have no score; raises StoreError where a file cannot be read."""
    paths = [path for path in folder.files("evaluation") if path.name.endswith(f".{CHECK}.evaluations.jsonl")]
    lacking: dict[str, _CheckPart] = {}
    for _, part in RecordFiles().lines(paths, _CheckPart):
        if part.missing:
            lacking[part.id] = part
        else:
            lacking.pop(part.id, None)
    reasons = Counter(
        (part.task_id, factor, (part.reasons or {}).get(factor, ""))
        for part in lacking.values()
        for factor in part.missing
    )
    return UnscoredChecks(len(lacking), reasons)


# --- Command that resumes a run

_BY_FILE = "coeval run --config FILE --continue (FILE: the experiment file that the run was started with)"


def continue_command(folder: RunDir) -> str:
    """By the configuration that the run keeps; by the file that it came of, where that copy is not usable,
    names another folder from here, or lacks the credentials that were taken out of it."""
    try:
        config = load_config(folder.config)
        whole = HIDDEN.encode() not in folder.config.read_bytes()
    except (ConfigError, StoreError, OSError):
        return _BY_FILE
    if not whole or run_folder(config).path.resolve() != folder.path.resolve():
        return _BY_FILE
    return f"coeval run --config {quote(str(folder.config))} --continue"
