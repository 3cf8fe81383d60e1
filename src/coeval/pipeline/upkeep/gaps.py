"""Planned and there, file by file: where a run lacks records."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from coeval.core.errors import ConfigError
from coeval.core.ids import evaluation_id, response_id
from coeval.core.records import EXACT_MATCH
from coeval.pipeline.config.load_file import load_config
from coeval.pipeline.config.schema import Config, Phase
from coeval.pipeline.phases.blueprint import KINDS, Blueprint
from coeval.pipeline.phases.supplied import ShortSupply, read_supply, short_supplies
from coeval.pipeline.plan.preview import make_plan
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


class Without(NamedTuple):
    """What is not to be counted: lines by their offsets, documents of phases 1–2."""

    lines: Mapping[Path, Collection[int]]
    documents: Collection[Path]


def gaps_of(folder: RunDir) -> Gaps | None:
    """What a run lacks by its own configuration; None where that is not there or cannot be used, and for
    runs of the older layout."""
    if is_legacy(folder.path):
        return None
    try:
        config = load_config(folder.config)
    except ConfigError:
        return None
    return find_gaps(folder, config, Without({}, ()))


def find_gaps(folder: RunDir, config: Config, without: Without) -> Gaps:
    """Hold what stands in ``folder`` against the whole plan of ``config``. Reads, and changes nothing."""
    gaps = Gaps()
    blueprint = Blueprint(config, folder, follow_file=True, inherited=source_folder(config))
    setups = []
    for task in config.tasks:
        damaged = any(blueprint.artifact(task.name, kind) in without.documents for kind in KINDS)
        drawn = None if damaged else blueprint.known(task)
        if drawn is None:
            gaps.unsettled.append(task.name)
        else:
            setups.append(build_setup(config, task, drawn))
    supplied = read_supply(config, folder).rewritten
    recorded = Recorded().read(folder, without=without.lines, supplied=supplied)
    plan = make_plan(config, RunOptions(continue_run=True, stance=Stance.KEEP), setups, recorded)
    gaps.short = short_supplies(plan, folder)
    for lacking in gaps.short:
        gaps.files[lacking.path] = FileGap("data_generation", planned=lacking.missing)
    for setup in setups:
        for slot in plan.slots(setup):
            for phase, path, there in _records(plan, folder, setup, slot):
                gap = gaps.files.get(path)
                if gap is None:
                    gap = gaps.files[path] = FileGap(phase)
                gap.planned += 1
                gap.there += there
    return gaps


def _records(plan: Plan, folder: RunDir, setup: TaskSetup, slot: Slot) -> Iterator[tuple[Phase, Path, bool]]:
    """The records that one item stands for: the phase and file of each, and whether it is there."""
    task, teacher = setup.task.name, slot.teacher_name
    evaluations = plan.recorded.evaluations
    yield "data_generation", folder.datapoints(task, teacher), plan.has_item(slot)
    for student in setup.students:
        response = response_id(slot.id, student.name)
        yield "response_collection", folder.responses(task, student.name), plan.has_response(response)
        for judge in setup.judges:
            entry = evaluations.get(evaluation_id(response, judge.name))
            owed = plan.statuses("evaluation", setup, judge)[entry].owed
            yield "evaluation", folder.evaluations(task, teacher, judge.name), not owed
        if setup.task.label_attributes:
            entry = evaluations.get(evaluation_id(response))
            path = folder.evaluations(task, teacher, EXACT_MATCH)
            yield "evaluation", path, entry is not None and entry.good
