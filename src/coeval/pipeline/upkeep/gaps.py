"""Planned and there, file by file: where a run lacks records."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from coeval.core.errors import ConfigError
from coeval.core.ids import SEPARATOR, evaluation_id
from coeval.core.records import EXACT_MATCH
from coeval.pipeline.config.load_file import load_config
from coeval.pipeline.config.schema import Config, Phase
from coeval.pipeline.phases.blueprint import KINDS, Blueprint
from coeval.pipeline.phases.supplied import ShortSupply, read_supply, short_supplies
from coeval.pipeline.plan.preview import make_plan
from coeval.pipeline.plan.record_status import RecordStatuses
from coeval.pipeline.plan.recorded import Recorded, Stance
from coeval.pipeline.plan.run_plan import Plan, Slot
from coeval.pipeline.plan.setup_tasks import build_setup
from coeval.pipeline.plan.task_setup import TaskSetup
from coeval.pipeline.run_session import RunOptions
from coeval.pipeline.start.inherit import source_folder
from coeval.store.legacy import is_legacy
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
    ``short`` the files of items that people have to add to."""

    files: dict[Path, FileGap] = field(default_factory=dict)
    unsettled: list[str] = field(default_factory=list)
    short: list[ShortSupply] = field(default_factory=list)

    def missing(self, phase: Phase) -> int:
        return sum(gap.planned - gap.there for gap in self.files.values() if gap.phase == phase)


def gaps_of(folder: RunDir) -> Gaps | None:
    """What a run lacks by its own configuration; None where that is not there or cannot be used, and for
    runs of the older layout."""
    if is_legacy(folder.path):
        return None
    try:
        config = load_config(folder.config)
    except ConfigError:
        return None
    return find_gaps(folder, config, Recorded().read(folder, supplied=read_supply(config, folder).rewritten))


def find_gaps(folder: RunDir, config: Config, recorded: Recorded, damaged: Collection[Path] = ()) -> Gaps:
    """Hold what is ``recorded`` in ``folder`` against the whole plan of ``config``.

    Documents of phases 1–2 that are ``damaged`` do not count. Reads, and changes nothing.
    """
    gaps = Gaps()
    blueprint = Blueprint(config, folder, follow_file=True, inherited=source_folder(config))
    setups = []
    for task in config.tasks:
        unusable = any(blueprint.artifact(task.name, kind) in damaged for kind in KINDS)
        drawn = None if unusable else blueprint.known(task)
        if drawn is None:
            gaps.unsettled.append(task.name)
        else:
            setups.append(build_setup(config, task, drawn))
    plan = make_plan(config, RunOptions(continue_run=True, stance=Stance.KEEP), setups, recorded)
    gaps.short = short_supplies(plan, folder)
    for lacking in gaps.short:
        gaps.files[lacking.path] = FileGap("data_generation", planned=lacking.missing)
    for setup in setups:
        teachers: dict[str, _TeacherFiles] = {}
        for slot in plan.slots(setup):
            files = teachers.get(slot.teacher_name)
            if files is None:
                files = teachers[slot.teacher_name] = _TeacherFiles(plan, folder, setup, slot, gaps)
            files.count(slot)
    return gaps


class _Answers(NamedTuple):
    """The file of a student's answers, how their ids end, and each judge's file of judgments likewise."""

    suffix: str
    gap: FileGap
    judgments: list[tuple[str, RecordStatuses, FileGap]]


class _TeacherFiles:
    """The files that one teacher's items of a task, and what follows from them, stand in. A million records
    are looked up here: what is the same for many is worked out once."""

    def __init__(self, plan: Plan, folder: RunDir, setup: TaskSetup, slot: Slot, gaps: Gaps) -> None:
        task, teacher = setup.task.name, slot.teacher_name

        def gap(phase: Phase, path: Path) -> FileGap:
            return gaps.files.setdefault(path, FileGap(phase))

        self._has_item = plan.has_item
        self._items = gap("data_generation", folder.datapoints(task, teacher))
        self._response = plan.recorded.responses.get
        self._evaluation = plan.recorded.evaluations.get
        self._answers = [
            _Answers(
                SEPARATOR + student.name,
                gap("response_collection", folder.responses(task, student.name)),
                [
                    (
                        SEPARATOR + judge.name,
                        plan.statuses("evaluation", setup, judge),
                        gap("evaluation", folder.evaluations(task, teacher, judge.name)),
                    )
                    for judge in setup.judges
                ],
            )
            for student in setup.students
        ]
        labelled = bool(setup.task.label_attributes and setup.students)
        labels = folder.evaluations(task, teacher, EXACT_MATCH)
        self._labels = gap("evaluation", labels) if labelled else None

    def count(self, slot: Slot) -> None:
        """Count an item and the records that it stands for: those planned, and those that are there."""
        self._items.planned += 1
        self._items.there += self._has_item(slot)
        for suffix, gap, judgments in self._answers:
            key = slot.id + suffix
            entry = self._response(key)
            gap.planned += 1
            gap.there += entry is not None and entry.good
            for ending, statuses, judged in judgments:
                judged.planned += 1
                judged.there += not statuses[self._evaluation(key + ending)].owed
            if self._labels is not None:
                compared = self._evaluation(evaluation_id(key))
                self._labels.planned += 1
                self._labels.there += compared is not None and compared.good
