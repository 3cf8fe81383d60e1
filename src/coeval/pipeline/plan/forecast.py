"""How many calls a run will make, without making any: what ``--dry-run`` shows.

The counts come from the same plan that the run itself carries out. Where phases 1–2 have yet to
propose a rubric, or to add to one, the number of factors is not known, and what follows is a range.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from coeval.analysis.doubtful_answers import empty_answers_sentence
from coeval.core.text import numbered
from coeval.engine.progress import Calls
from coeval.pipeline.config.schema import Config, Phase
from coeval.pipeline.phases.blueprint import KINDS, PHASE_OF
from coeval.pipeline.phases.supplied import short_answers
from coeval.pipeline.plan.preview import Preview, preview_run
from coeval.pipeline.plan.run_plan import FLOWING
from coeval.pipeline.run_options import RunOptions

NONE = Calls(0, 0)
Place: TypeAlias = tuple[Phase, str]
"""A phase of a task."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """Calls, and the records of the plan of which so many are owed; of phases 1–2 a record is a teacher's
    proposal. ``tasks`` are in the order of the file; ``warnings`` say what of the file is not carried out as
    it stands."""

    calls: Mapping[Place, Calls]
    planned: Counter[Place]
    owed: Mapping[Place, Calls]
    tasks: Sequence[str]
    warnings: Sequence[str]

    def calls_of_phase(self, phase: Phase) -> Calls:
        return sum((calls for (of, _), calls in self.calls.items() if of == phase), NONE)

    def calls_of_task(self, task: str) -> Calls:
        return sum((calls for (_, of), calls in self.calls.items() if of == task), NONE)

    def planned_of_phase(self, phase: Phase) -> int:
        return sum(records for (of, _), records in self.planned.items() if of == phase)

    def owed_of_phase(self, phase: Phase) -> Calls:
        return sum((records for (of, _), records in self.owed.items() if of == phase), NONE)

    @property
    def total(self) -> Calls:
        return sum(self.calls.values(), NONE)

    @property
    def total_owed(self) -> Calls:
        return sum(self.owed.values(), NONE)


def forecast(config: Config, options: RunOptions) -> Forecast:
    """Count the calls of a run that starts now; nothing is asked, created or changed.

    Raises UsageError: it would not start: see `Preview.refuse`.
    """
    preview = preview_run(config, options)
    preview.refuse(options)
    return expected(config, preview)


def expected(config: Config, preview: Preview) -> Forecast:
    """The forecast of a run that finds what ``preview`` says."""
    calls: dict[Place, Calls] = {}
    owed: dict[Place, Calls] = {}
    planned: Counter[Place] = Counter()
    for task in config.tasks:
        for kind in KINDS:
            proposals = len(preview.blueprint.owed_proposals(task, kind))
            place = (PHASE_OF[kind], task.name)
            calls[place] = owed[place] = calls.get(place, NONE) + Calls(proposals, proposals)
            planned[place] += proposals
        for phase in FLOWING:
            place = (phase, task.name)
            few, many = (c.total(phase, task=task.name) for c in (preview.least, preview.plan_count))
            planned[place] = many.planned
            calls[place] = Calls(few.calls - few.spared_calls, many.calls)
            owed[place] = Calls(few.owed - few.spared, many.owed)
    warnings = [sentence for setup in preview.plan.setups for sentence in setup.clippings()]
    warnings += preview.supply.remarks()
    for short in short_answers(preview.plan_count.unanswered, config):
        answers = numbered(short.missing, "answer")
        warnings.append(f"{short.task}: {short.path} lacks {answers} of {short.student}")
    if said := empty_answers_sentence(preview.plan.recorded.empty_answers(), "of"):
        warnings.append(said)
    return Forecast(calls, planned, owed, [task.name for task in config.tasks], warnings)
