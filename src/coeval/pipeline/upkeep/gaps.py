"""Planned and there, file by file: where a run lacks records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import msgspec

from coeval.core.records import CHECK
from coeval.core.text import listed, numbered
from coeval.engine.model_work import RoleModel
from coeval.pipeline.config.schema import Config, Phase
from coeval.pipeline.phases.blueprint import KINDS, Blueprint
from coeval.pipeline.phases.supplied import ShortSupply, short_answers, short_supplies
from coeval.pipeline.plan.count_plan import known_recipes, mixed_sentence
from coeval.pipeline.plan.preview import make_plan
from coeval.pipeline.plan.recorded import Recorded
from coeval.pipeline.plan.run_plan import Changed, Node, Spared
from coeval.pipeline.plan.task_setup import build_setup
from coeval.pipeline.plan.walk import Walk
from coeval.pipeline.run_options import RunOptions, Stance
from coeval.pipeline.start.inherit import source_folder
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
            yield f"phases 1–2 are not finished for {listed(self.unsettled)}"
        if said := missing_records({phase: self.missing(phase) for phase in _NOUNS}):
            yield f"{said}; see {listed((name for name, _ in self.lacking), _MOST_NAMED)}" if files else said


# Files in a sentence.
_MOST_NAMED = 3

_NOUNS: dict[Phase, str] = {
    "data_generation": "item",
    "response_collection": "answer",
    "evaluation": "judgment",
}


def missing_records(counts: Mapping[Phase, int]) -> str:
    """How many records of phases 3–5 are not there, in words; empty: none."""
    parts = [numbered(counts[phase], noun) for phase, noun in _NOUNS.items() if counts[phase]]
    return f"missing from the plan: {listed(parts)}" if parts else ""


def find_gaps(folder: RunDir, config: Config, recorded: Recorded, damaged: Collection[Path] = ()) -> Gaps:
    """Hold what is ``recorded`` in ``folder`` against the whole plan of ``config``.

    Documents of phases 1–2 that are ``damaged`` do not count. Reads, and changes nothing.
    """
    gaps = Gaps()
    blueprint = Blueprint(config, folder, follow_file=True, inherited=source_folder(config))
    setups, known = [], known_recipes(folder)
    for task in config.tasks:
        unusable = any(blueprint.artifact(task.name, kind) in damaged for kind in KINDS)
        drawn = None if unusable else blueprint.known(task)
        if drawn is None:
            gaps.unsettled.append(task.name)
        else:
            setups.append(build_setup(config, task, drawn).as_recorded(known))
    plan = make_plan(config, RunOptions(continue_run=True, stance=Stance.TELL), setups, recorded)
    gaps.short = short_supplies(plan, folder)
    for lacking in gaps.short:
        gaps.files[lacking.path] = FileGap("data_generation", planned=lacking.missing)
    changed: Counter[Changed] = Counter()
    unanswered: Counter[tuple[str, str]] = Counter()
    for setup in setups:
        walk, files = (
            Walk(plan, setup),
            _Files(folder, setup.task.name, gaps, setup.judges if setup.pairs else ()),
        )
        nodes = (node for slot in plan.slots(setup) for node in walk.of_slot(slot))
        for node in chain(nodes, walk.alike()):
            gap = files.of(node)
            gap.planned += node.records
            gap.there += 0 if node.owed else node.records
            changed.update(node.status.changed)
        for student, missing in walk.unanswered.items():
            path = folder.responses(setup.task.name, student)
            gaps.files.setdefault(path, FileGap("response_collection")).planned += missing
        unanswered.update({(setup.task.name, student): n for student, n in walk.unanswered.items() if n})
        for spared in walk.spared:  # what follows from a record that was lost is there all the same
            files.of(spared).there += spared.records
    gaps.short += short_answers(unanswered, config)
    gaps.mixed = mixed_sentence(changed)
    return gaps


class _Files:
    """The files of a task by what stands in them; a plan may have a million records in a dozen files."""

    def __init__(self, folder: RunDir, task: str, gaps: Gaps, comparing: Sequence[RoleModel] = ()) -> None:
        self._comparing = {judge.name for judge in comparing}
        self._folder = folder
        self._task = task
        self._gaps = gaps
        self._known: dict[tuple[Phase, str, str], FileGap] = {}

    def of(self, record: Node | Spared) -> FileGap:
        place = (record.phase, record.teacher, record.name)
        gap = self._known.get(place)
        if gap is None:
            gap = self._gaps.files.setdefault(self._path(*place), FileGap(record.phase))
            self._known[place] = gap
        return gap

    def _path(self, phase: Phase, teacher: str, name: str) -> Path:
        match phase:
            case "data_generation":
                return self._folder.datapoints(self._task, teacher)
            case "response_collection":
                return self._folder.responses(self._task, name)
            case _ if name in self._comparing:
                return self._folder.pairs(self._task, teacher, name)
            case _:
                return self._folder.evaluations(self._task, teacher, name)


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


def unscored_checks(folder: RunDir) -> UnscoredChecks:
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
