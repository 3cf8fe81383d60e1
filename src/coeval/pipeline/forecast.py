"""How many calls a run will make, without making any: what ``--dry-run`` shows.

The counts come from the same plan that the run itself carries out. Where phases 1–2 have yet to
propose a rubric, the number of factors is not known, and calls per factor are a range.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from coeval.engine.progress import Calls
from coeval.pipeline.begin import check_startable
from coeval.pipeline.blueprint import KINDS, PHASE_OF, Blueprint
from coeval.pipeline.changes import refuse_changed
from coeval.pipeline.config.schema import Config, Phase, TaskConfig
from coeval.pipeline.outlook import Outlook, look_ahead
from coeval.pipeline.plan import FLOWING
from coeval.pipeline.running import Options
from coeval.pipeline.teaching import MOST_NAMES

NONE, ONE = Calls(0, 0), Calls(1, 1)


@dataclass(frozen=True, slots=True)
class Forecast:
    """Per (phase, task): calls, and the records of the plan of which so many are owed; of phases 1–2 a
    record is a teacher's proposal. ``tasks`` are in the order of the file; ``warnings`` say what of the file
    is not carried out as it stands."""

    calls: dict[tuple[Phase, str], Calls]
    planned: Counter[tuple[Phase, str]]
    owed: Counter[tuple[Phase, str]]
    tasks: Sequence[str]
    warnings: Sequence[str]

    def calls_of_phase(self, phase: Phase) -> Calls:
        return sum((calls for (of, _), calls in self.calls.items() if of == phase), NONE)

    def calls_of_task(self, task: str) -> Calls:
        return sum((calls for (_, of), calls in self.calls.items() if of == task), NONE)

    def planned_of_phase(self, phase: Phase) -> int:
        return sum(records for (of, _), records in self.planned.items() if of == phase)

    def owed_of_phase(self, phase: Phase) -> int:
        return sum(records for (of, _), records in self.owed.items() if of == phase)

    @property
    def total(self) -> Calls:
        return sum(self.calls.values(), NONE)


def forecast(config: Config, options: Options) -> Forecast:
    """Count the calls of a run that starts now; nothing is asked, created or changed.

    Raises
    ------
    UsageError
        it would not start: `check_startable`, or good records of another configuration are there.
    """
    check_startable(config, options)
    outlook = look_ahead(config, options)
    refuse_changed(outlook.survey, outlook.plan.scenes, outlook.standing, options.stance)
    return expected(config, outlook)


def expected(config: Config, outlook: Outlook) -> Forecast:
    """The forecast of a run that finds what ``outlook`` says."""
    calls: dict[tuple[Phase, str], Calls] = {}
    for task in config.tasks:
        for kind in KINDS:
            proposals = len(outlook.blueprint.owed_proposals(task, kind))
            place = (PHASE_OF[kind], task.name)
            calls[place] = calls.get(place, NONE) + Calls(proposals, proposals)
        factors = _factors(config, task, outlook.blueprint)
        for phase in FLOWING:
            count = outlook.survey.calls[phase, task.name]
            per_call = factors if phase == "evaluation" else ONE
            calls[phase, task.name] = Calls(count * per_call.low, count * per_call.high)
    planned, owed = outlook.survey.planned.copy(), outlook.survey.owed.copy()
    for place in calls:
        if place[0] not in FLOWING:
            planned[place] = owed[place] = calls[place].low
    warnings = [sentence for scene in outlook.plan.scenes for sentence in scene.clippings()]
    return Forecast(calls, planned, owed, [task.name for task in config.tasks], warnings)


def _factors(config: Config, task: TaskConfig, blueprint: Blueprint) -> Calls:
    """By how much the calls of phase 5 grow with the factors of a rubric that is still to be proposed."""
    if task.evaluation_mode == "single" or blueprint.known_part(task, "rubric") is not None:
        return ONE
    teachers = sum(model.interface != "benchmark" for model in config.with_role("teacher"))
    inherited = len(blueprint.inherited_rubric(task))
    return Calls(max(1, inherited), inherited + MOST_NAMES * teachers)
