"""Samples: a few items, answers and judgments, really asked for, so that an estimate knows how long they are.

They are asked for as the run asks. A model's samples are shared out to the roles that it has work in, at a
task each, by turns. What a teacher writes is answered, and what a student answers is judged; where nobody
wrote any, records are used. No model is asked more often than the run would ask it, and records that tell as
much stand in for samples. Nothing of these is kept but lengths, tokens and times; the models' meters count
them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import TypeAlias

import msgspec

from coeval.core.errors import AskError, Gap, QuotaExhausted
from coeval.core.foreign import convert
from coeval.core.options import max_calls
from coeval.core.records import (
    Datapoint,
    Kept,
    Response,
    Usage,
    evaluation_id,
    is_good,
    item_id,
    model_of,
    response_id,
)
from coeval.core.shown_names import short_names
from coeval.core.text import dollars, pluralize
from coeval.engine.model_work import Asking, RoleModel
from coeval.engine.progress import Unwatched, Watcher
from coeval.engine.session import Session, await_unless_interrupted
from coeval.judging.verdict import criterion_hash
from coeval.models.metering.meter import Ledger
from coeval.pipeline.config.schema import Config, Phase
from coeval.pipeline.phases.document_items import DocumentItemWork
from coeval.pipeline.phases.evaluations import (
    EvaluationWork,
    ItemWork,
    Judged,
    PairWork,
    PreparedItem,
    ResponseWork,
)
from coeval.pipeline.phases.proposals import merge_rubrics
from coeval.pipeline.plan.estimate.recorded_lengths import (
    SeenRecord,
    add_record,
    cast_of,
    read_recorded_lengths,
)
from coeval.pipeline.plan.estimate.run_estimate import (
    EstimateInputs,
    estimate_run,
    format_calls,
    format_usd_range,
    new_factors,
    summarise_estimate,
)
from coeval.pipeline.plan.preview import Preview
from coeval.pipeline.plan.run_plan import FLOWING
from coeval.pipeline.plan.task_setup import TaskSetup, build_judge_form
from coeval.pipeline.run_options import run_folder
from coeval.pipeline.samples import Samples
from coeval.pricing.lengths import Cell, Lengths
from coeval.pricing.price_book import PriceBook
from coeval.store.jsonl import write_json_atomic
from coeval.store.record_index import NOT_TRIED

# Seconds after which a sample is given up, and the estimate goes on without: models that think answer a
# paragraph's question in one or two minutes.
_LONGEST_S = 180.0
# What is judged where teachers are yet to propose a rubric: as many of these as factors are expected.
_STAND_IN = {
    "accuracy": "What the answer states is right.",
    "completeness": "The answer does all that the task asks for.",
    "clarity": "The answer is easy to follow.",
    "relevance": "The answer keeps to the question.",
    "style": "The answer reads well.",
    "tone": "The answer suits its reader.",
    "brevity": "The answer is no longer than it must be.",
    "structure": "The answer is in a sensible order.",
}
# Recorded items and answers that are read to be asked about: as many as samples differ in.
_FEW = 8
# What each record of a phase adds to `Lengths`.
_SHOWN_BY: Mapping[Phase, str] = {
    "data_generation": "item",
    "response_collection": "answer",
    "evaluation": "judge output",
}
_Work: TypeAlias = ItemWork | ResponseWork | EvaluationWork | PairWork


def sampled_models(preview: Preview) -> set[str]:
    """Return the models whose calls an estimate is about."""
    return {
        model_of(name)
        for (phase, _, name), counts in preview.plan_count.by_model.items()
        if counts.calls and phase in FLOWING
    }


def _short_ceilings(config: Config, preview: Preview, ledger: Ledger) -> Iterator[str]:
    """Name each ceiling that leaves fewer requests than the run needs: samples count towards it."""
    owed: Counter[str] = Counter()
    for (phase, _, name), counts in preview.plan_count.by_model.items():
        owed[model_of(name)] += counts.calls if phase in FLOWING else 0
    for name, quota in config.experiment.quota.items():
        if quota.max_calls is not None and owed[name]:
            meter = ledger.meter(name)
            in_jobs = sum(job.requests for job in meter.open_jobs().values())  # counted, and owed still
            left = max(0, quota.max_calls - meter.requests + in_jobs)
            if left < owed[name]:
                yield (
                    f"{max_calls(name)} is {quota.max_calls:,}, and leaves {pluralize(left, 'request')} for "
                    f"{pluralize(owed[name], 'call')}: samples count towards it. Raise it for a whole run"
                )


async def add_samples(
    config: Config, preview: Preview, lengths: Lengths, askable: Iterable[str], session: Session
) -> None:
    """Add to ``lengths`` what ``experiment.estimate_samples`` of each model show, whatever its roles;
    ``askable`` names the models that can be asked.

    Raises Draining: somebody interrupted it.
    """
    each, watcher = config.experiment.estimate_samples, session.context.watcher
    samples = _LiveSamples(config, preview, lengths, askable, each)
    await await_unless_interrupted(
        samples.ask(Asking(session.models, 0), watcher),
        session.context.interrupt,
        "stopped while samples were being asked for; nothing was run",
    )
    for sentence in _short_ceilings(config, preview, session.ledger):
        watcher.warn(sentence)


class _LiveSamples:
    """``each`` samples of every model, whatever its roles; ``askable`` names the models that can be asked."""

    def __init__(
        self, config: Config, preview: Preview, lengths: Lengths, askable: Iterable[str], each: int
    ) -> None:
        self._config = config
        self._preview = preview
        self._setups = preview.plan.setups
        self._lengths = lengths
        self._each = each
        self._left = dict.fromkeys(askable, each)
        self._short = short_names(model.name for model in config.models)
        self._watcher: Watcher = Unwatched()
        self._exhausted: set[str] = set()
        self._items: dict[str, list[PreparedItem]] = {}
        self._answers: dict[str, list[tuple[PreparedItem, Response]]] = {}

    async def ask(self, asking: Asking, watcher: Watcher) -> None:
        """Ask for all of them, and report what each took; one that fails is reported, and is no error."""
        self._watcher = watcher
        for setup in self._setups:
            self._items[setup.task.name] = list(islice(self._recorded_items(setup), _FEW))
        self._setups = [self._judgeable(setup) for setup in self._setups]
        await self._all("data_generation", self._item_works(asking))
        await self._all("response_collection", self._answer_works(asking))
        await self._all("evaluation", self._judgment_works(asking))

    # --- what is asked -----------------------------------------------------------------------

    def _item_works(self, asking: Asking) -> Iterator[ItemWork]:
        for setup, teacher, number in self._turns("data_generation", self._setups):
            task = setup.task
            samples = Samples(setup.space, seed=task.sampling.seed, task=task.name, teacher=teacher.name)
            key = item_id(task.name, teacher.name, number + 1)
            kind = ItemWork if setup.task.documents is None else DocumentItemWork
            yield kind(asking, teacher, key, NOT_TRIED, setup, samples.item(number + 1))

    def _answer_works(self, asking: Asking) -> Iterator[ResponseWork]:
        possible = [setup for setup in self._setups if self._items[setup.task.name]]
        for setup, student, number in self._turns("response_collection", possible):
            items = self._items[setup.task.name]
            prepared = items[number % len(items)]
            key = response_id(prepared.item.id, student.name)
            yield ResponseWork(asking, student, key, NOT_TRIED, setup, prepared)

    def _judgment_works(self, asking: Asking) -> Iterator[EvaluationWork | PairWork]:
        answers = {
            setup.task.name: self._answers.get(setup.task.name)
            or list(islice(self._recorded_answers(setup), _FEW))
            for setup in self._setups
        }
        possible = [setup for setup in self._setups if answers[setup.task.name]]
        for setup, judge, number in self._turns("evaluation", possible):
            prepared, response = answers[setup.task.name][number % len(answers[setup.task.name])]
            factors = tuple(setup.criteria)
            if setup.task.evaluation_mode == "per_factor":
                factors = (factors[number % len(factors)],)
            judged, key = Judged(setup, prepared, response), evaluation_id(response.id, judge.name)
            if setup.pairs is not None:  # compared with itself: as long as any comparison
                yield PairWork(asking, judge, key, NOT_TRIED, setup.pairs, judged, judged)
                continue
            yield EvaluationWork(asking, judge, key, NOT_TRIED, judged, factors)

    def _turns(
        self, phase: Phase, possible: Iterable[TaskSetup]
    ) -> Iterator[tuple[TaskSetup, RoleModel, int]]:
        """Yield each model that has work in the phase and can be asked, as often as records leave samples to
        be asked for, at one task (and variant) after another; models begin at different tasks. The numbers of
        one model differ."""
        places: dict[str, list[tuple[TaskSetup, RoleModel]]] = {}
        for setup in possible:
            for role_model in cast_of(setup, phase):
                if role_model.called_name in self._left and self._calls(phase, setup, role_model.name):
                    places.setdefault(role_model.called_name, []).append((setup, role_model))
        for at, (name, of_model) in enumerate(places.items()):
            calls = sum(self._calls(phase, setup, each.name) for setup, each in of_model)
            cells = [Cell(setup.task.name, each.name) for setup, each in of_model]
            shown = sum(self._lengths.count_values(_SHOWN_BY[phase], cell) for cell in cells)
            needed = max(0, min(self._share(phase, name), self._each - shown, calls))
            self._left[name] -= needed
            for number in range(at, at + needed):
                yield *of_model[number % len(of_model)], number

    def _calls(self, phase: Phase, setup: TaskSetup, name: str) -> int:
        counts = self._preview.plan_count.by_model.get((phase, setup.task.name, name))
        return counts.calls if counts is not None else 0

    def _share(self, phase: Phase, name: str) -> int:
        """Return how many of its samples a model spends on a phase: as many as each of its later roles gets,
        but at least one: without an item there is no answer, and without an answer no judgment."""
        later = sum(self._works_in(each, name) for each in FLOWING[FLOWING.index(phase) + 1 :])
        return min(self._left[name], max(1, self._left[name] // (1 + later)))

    def _works_in(self, phase: Phase, name: str) -> bool:
        casts = ((setup, each) for setup in self._setups for each in cast_of(setup, phase))
        return any(self._calls(phase, setup, each.name) for setup, each in casts if each.called_name == name)

    def _recorded_items(self, setup: TaskSetup) -> Iterator[PreparedItem]:
        recorded = self._preview.plan.recorded
        for (task, _), items in recorded.by_teacher.items():
            for key in islice(items, _FEW) if task == setup.task.name else ():
                if (entry := recorded.items.get(key)) is not None and entry.good:
                    item = recorded.items.load(key, Datapoint)
                    texts = {"item": item.prompt or "", "reference": item.reference_response or ""}
                    self._lengths.add_item_texts(item.id, {kind: len(text) for kind, text in texts.items()})
                    yield PreparedItem(item, {})

    def _recorded_answers(self, setup: TaskSetup) -> Iterator[tuple[PreparedItem, Response]]:
        responses = self._preview.plan.recorded.responses
        for prepared in self._items[setup.task.name]:
            for student in setup.students:
                key = response_id(prepared.item.id, student.name)
                if (entry := responses.get(key)) is not None and entry.good:
                    yield prepared, responses.load(key, Response)

    def _judgeable(self, setup: TaskSetup) -> TaskSetup:
        """The task with as many factors as are expected, where teachers are yet to propose its rubric:
        those that are known, then stand-ins."""
        task = setup.task
        owed = len(self._preview.blueprint.owed_proposals(task, "rubric"))
        if task.name not in self._preview.unsettled or not owed or not setup.judges:
            return setup
        heard = self._preview.blueprint.heard_rubric(task)
        possible = merge_rubrics(heard, _STAND_IN)
        rubric = dict(islice(possible.items(), len(heard) + round(new_factors(owed).central)))
        form = build_judge_form(task, rubric)
        criteria = {factor: criterion_hash(text, form.scales[factor]) for factor, text in rubric.items()}
        return replace(setup, rubric=rubric, criteria=criteria, form=form)

    # --- what comes of it --------------------------------------------------------------------

    async def _all(self, phase: Phase, works: Iterable[_Work]) -> None:
        await asyncio.gather(*(self._one(phase, work) for work in works))

    async def _one(self, phase: Phase, work: _Work) -> None:
        """Add what a sample shows, and have it asked about."""
        record = await self._made(work)
        if record is None or not is_good(record):
            return
        seen = convert(msgspec.to_builtins(record), SeenRecord)
        add_record(self._lengths, self._setups, phase, seen, "sample")
        match record, work:
            case Datapoint(), ItemWork():
                self._items[record.task_id].insert(0, PreparedItem(record, work.sample.nuance))
            case Response(), ResponseWork():
                self._answers.setdefault(record.task_id, []).append((work.prepared, record))

    async def _made(self, work: _Work) -> Kept | None:
        """Return the record that a sample is, and report what it took; None where it failed, which is
        reported too."""
        who = f"{work.model} as {work.role_model.role}, {work.phase}"
        try:
            async with asyncio.timeout(_LONGEST_S):
                record = await work.do()
        except QuotaExhausted as error:
            if work.model not in self._exhausted:
                self._exhausted.add(work.model)
                self._watcher.warn(f"no more samples of {work.model}: {error.facts}")
            return None
        except (AskError, Gap, TimeoutError) as error:
            self._watcher.warn(f"sample of {who}: {str(error) or f'no answer in {_LONGEST_S:.0f} s'}")
            return None
        usage = record.usage or Usage()
        cost = f", {dollars(usage.cost_usd)}" if usage.cost_usd else ""
        self._watcher.note(
            f"sample of {self._short.get(work.model, work.model)} as {work.role_model.role}: "
            f"{usage.input_tokens:,} + {usage.output_tokens:,} tokens, {record.latency_s or 0.0:.1f} s{cost}"
        )
        return record


# --- The estimate that a start makes of itself (`estimate_cost: true`)


async def estimate_at_start(
    config: Config, preview: Preview, session: Session, prices: PriceBook, *, phase_barriers: bool
) -> None:
    """Write ``cost_estimate.json`` and tell what stands in it. Samples are asked of models that nothing is
    batched of: a batch would not answer before the run.

    Raises Draining: somebody interrupted it.
    """
    watcher, lengths = session.context.watcher, read_recorded_lengths(config, preview)
    if config.experiment.estimate_samples:
        live = [model.name for model in config.models if not config.batched_phases(model)]
        await add_samples(config, preview, lengths, live, session)
    estimate = estimate_run(config, preview, EstimateInputs(prices, lengths, phase_barriers))
    write_json_atomic(run_folder(config).cost_estimate, estimate.as_json())
    for phase, line in estimate.by_phase.items():
        cost = (
            "cost unknown"
            if line.cost_usd is None
            else f"{dollars(line.cost_usd.central)} ({format_usd_range(line.cost_usd)})"
        )
        watcher.note(f"estimate of {phase}: {format_calls(line.calls)} calls, {cost}")
    for sentence in summarise_estimate(estimate):
        watcher.note(f"estimate: {sentence}")
