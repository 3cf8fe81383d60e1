"""Gaps of a run: planned and existing records, file by file."""

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
from coeval.pipeline.phases.supplied import ShortSupply, find_short_supplies, list_short_answer_tables
from coeval.pipeline.plan.count_plan import PlanCount, count_plan, describe_mixed_records, read_recipes
from coeval.pipeline.plan.preview import plan_records
from coeval.pipeline.plan.recorded import RunIndex
from coeval.pipeline.plan.run_plan import Node, ReusableRecords
from coeval.pipeline.plan.task_setup import TaskSetup, build_setup
from coeval.pipeline.run_options import ChangePolicy, RunOptions, run_folder
from coeval.pipeline.start.inherit import find_source_run
from coeval.store.record_index import RecordFiles
from coeval.store.rundir import RunDir


@dataclass(slots=True)
class FileGap:
    """Planned records of one file, and how many of them are there, good and complete."""

    phase: Phase
    planned: int = 0
    there: int = 0

    @property
    def missing(self) -> int:
        return self.planned - self.there


@dataclass(slots=True)
class Gaps:
    """The gaps of a run, ``files`` in the order of the plan. ``unsettled``: tasks whose phases 1–2 are
    unfinished; ``short``: supplied files for people to extend; ``mixed``: see `describe_mixed_records`."""

    files: dict[Path, FileGap] = field(default_factory=dict)
    unsettled: list[str] = field(default_factory=list)
    short: list[ShortSupply] = field(default_factory=list)
    mixed: str = ""

    def count_missing(self, phase: Phase) -> int:
        return sum(gap.missing for gap in self.files.values() if gap.phase == phase)

    @property
    def owed(self) -> int:
        """Count missing records; a task whose phases 1–2 are unfinished counts as one."""
        return sum(map(self.count_missing, _NOUNS)) + len(self.unsettled)

    @property
    def missing_by_file(self) -> list[tuple[str, int]]:
        """List the files of phases 3–5 that lack records, with how many, in the order of the plan."""
        return [
            (f"{path.parent.name}/{path.name}", gap.missing)
            for path, gap in self.files.items()
            if gap.phase in _NOUNS and gap.missing > 0
        ]

    def describe(self, *, with_files: bool = True) -> Iterator[str]:
        """Say what is missing from the plan; with ``with_files``, also in which files."""
        if self.unsettled:
            yield f"phases 1–2 are not finished for {join_names(self.unsettled)}"
        if sentence := describe_missing_records({phase: self.count_missing(phase) for phase in _NOUNS}):
            yield (
                f"{sentence}; see {join_names((name for name, _ in self.missing_by_file), _MOST_NAMED)}"
                if with_files
                else sentence
            )


# Files in a sentence.
_MOST_NAMED = 3

_NOUNS: dict[Phase, str] = {
    "data_generation": "item",
    "response_collection": "answer",
    "evaluation": "judgment",
}


def describe_missing_records(counts: Mapping[Phase, int]) -> str:
    """Say how many records of phases 3–5 are missing; empty if none."""
    parts = [pluralize(counts[phase], noun) for phase, noun in _NOUNS.items() if counts[phase]]
    return f"missing from the plan: {join_names(parts)}" if parts else ""


def find_gaps(folder: RunDir, config: Config, recorded: RunIndex, damaged: Collection[Path] = ()) -> Gaps:
    """Compare a folder's records with the whole plan; ``damaged`` documents of phases 1–2 do not count."""
    gaps = Gaps()
    blueprint = Blueprint(config, folder, follow_file=True, inherited=find_source_run(config))
    setups, recipes = [], read_recipes(folder)
    for task in config.tasks:
        unusable = any(blueprint.artifact_path(task.name, kind) in damaged for kind in KINDS)
        drawn = None if unusable else blueprint.read_blueprint_if_known(task)
        if drawn is None:
            gaps.unsettled.append(task.name)
        else:
            setups.append(build_setup(config, task, drawn).with_recorded_recipes_of_absent_functions(recipes))
    plan = plan_records(
        config, RunOptions(continue_run=True, change_policy=ChangePolicy.REPORT), setups, recorded
    )
    gaps.short = find_short_supplies(plan, folder)
    for lacking in gaps.short:
        gaps.files[lacking.path] = FileGap("data_generation", planned=lacking.missing)
    counts = count_plan(plan, _FileCounter(folder, gaps))
    for (task_name, student), missing in counts.unanswered.items():
        path = folder.responses(task_name, student)
        gaps.files.setdefault(path, FileGap("response_collection")).planned += missing
    gaps.short += list_short_answer_tables(counts.unanswered, config)
    gaps.mixed = describe_mixed_records(counts.changed)
    return gaps


class _FileCounter(PlanCount):
    """Counts by file too; a plan may have a million records in a dozen files."""

    def __init__(self, folder: RunDir, gaps: Gaps) -> None:
        super().__init__()
        self._folder = folder
        self._gaps = gaps
        self._gaps_by_key: dict[tuple[str, Phase, str, str], FileGap] = {}

    def count_node(self, setup: TaskSetup, node: Node) -> None:
        super().count_node(setup, node)
        gap = self._get_or_add_gap(setup, node)
        gap.planned += node.records
        gap.there += 0 if node.owed else node.records

    def count_reusable_records(self, setup: TaskSetup, reusable: ReusableRecords) -> None:
        """Count followers of a lost record as existing."""
        super().count_reusable_records(setup, reusable)
        self._get_or_add_gap(setup, reusable).there += reusable.records

    def _get_or_add_gap(self, setup: TaskSetup, record: Node | ReusableRecords) -> FileGap:
        key = (setup.task.name, record.phase, record.teacher, record.name)
        if key not in self._gaps_by_key:
            path = self._locate_file(setup, *key[1:])
            self._gaps_by_key[key] = self._gaps.files.setdefault(path, FileGap(record.phase))
        return self._gaps_by_key[key]

    def _locate_file(self, setup: TaskSetup, phase: Phase, teacher: str, name: str) -> Path:
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
    """How many ``records`` lack factors; ``reasons``: (task, factor, reason) → how often."""

    records: int
    reasons: Counter[tuple[str, str, str]]


def read_unscored_checks(folder: RunDir) -> UnscoredChecks:
    """Read why checks have no score; raises StoreError if a file cannot be read."""
    paths = [path for path in folder.files("evaluation") if path.name.endswith(f".{CHECK}.evaluations.jsonl")]
    lacking: dict[str, _CheckPart] = {}
    for _, part in RecordFiles().read_parts(paths, _CheckPart):
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


def build_continue_command(folder: RunDir) -> str:
    """Return the command that continues a run: by its own configuration, or by the original file if that copy
    is unusable, names another folder, or lacks credentials."""
    try:
        config = load_config(folder.config)
        whole = HIDDEN.encode() not in folder.config.read_bytes()
    except (ConfigError, StoreError, OSError):
        return _BY_FILE
    if not whole or run_folder(config).path.resolve() != folder.path.resolve():
        return _BY_FILE
    return f"coeval run --config {quote(str(folder.config))} --continue"
