"""Samples: a few items, answers and judgments, really requested, so that an estimate knows their lengths.

They are requested as a run does. A model's samples are shared among the roles in which it has work, taking
turns over tasks. Sampled items are answered, sampled answers judged; without them, records are used. No
model gets more requests than in the run, and records replace samples. Only lengths, tokens and times are
kept; the models' meters count the requests.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import TypeAlias

import msgspec

from coeval.core import records
from coeval.core.errors import AskError, Gap, QuotaExhausted
from coeval.core.figures import dollars
from coeval.core.foreign import convert
from coeval.core.options import max_calls
from coeval.core.shown_names import short_names
from coeval.core.text import pluralize
from coeval.engine.model_work import Asking, RoleModel
from coeval.engine.progress import Watcher
from coeval.engine.session import Session, await_unless_interrupted
from coeval.judging.verdict import criterion_hash
from coeval.models.metering.meter import Ledger
from coeval.pipeline.config.schema import Config, Phase
from coeval.pipeline.phases.document_items import DocumentItemWork
from coeval.pipeline.phases.evaluations import (
    EvaluationWork,
    ItemWork,
    JudgeInput,
    PairWork,
    PreparedItem,
    ResponseWork,
)
from coeval.pipeline.phases.proposals import merge_rubrics
from coeval.pipeline.plan.estimate.recorded_lengths import (
    LengthFields,
    add_record_lengths,
    list_makers,
    read_recorded_lengths,
)
from coeval.pipeline.plan.estimate.run_estimate import (
    EstimateInputs,
    estimate_run,
    expect_new_factors,
    format_calls,
    format_usd_range,
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


def list_models_with_calls(preview: Preview) -> set[str]:
    """Name the models whose calls an estimate is about."""
    return {
        records.model_of(name)
        for (phase, _, name), counts in preview.plan_count.by_model.items()
        if counts.calls and phase in FLOWING
    }


def _describe_low_quotas(config: Config, preview: Preview, ledger: Ledger) -> Iterator[str]:
    """Describe each ceiling that leaves fewer requests than the run needs: samples count towards it."""
    owed: Counter[str] = Counter()
    for (phase, _, name), counts in preview.plan_count.by_model.items():
        owed[records.model_of(name)] += counts.calls if phase in FLOWING else 0
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


async def add_live_samples(
    config: Config, preview: Preview, lengths: Lengths, askable: Iterable[str], session: Session
) -> None:
    """Add what ``experiment.estimate_samples`` requests of ``askable`` models show. Raises Draining."""
    watcher = session.context.watcher
    samples = _LiveSamples(config, preview, lengths, askable, watcher)
    await await_unless_interrupted(
        samples.request_samples(Asking(session.models, 0)),
        session.context.interrupt,
        "stopped while sampling; nothing was run",
    )
    for sentence in _describe_low_quotas(config, preview, session.ledger):
        watcher.warn(sentence)


class _LiveSamples:
    """Requests ``estimate_samples`` samples of every model in ``askable``, over all its roles."""

    def __init__(
        self, config: Config, preview: Preview, lengths: Lengths, askable: Iterable[str], watcher: Watcher
    ) -> None:
        self._preview = preview
        self._setups = preview.plan.setups
        self._lengths = lengths
        self._per_model = config.experiment.estimate_samples
        self._remaining = dict.fromkeys(askable, self._per_model)
        self._short = short_names(model.name for model in config.models)
        self._watcher = watcher
        self._exhausted: set[str] = set()
        self._items: dict[str, list[PreparedItem]] = {}
        self._answers: dict[str, list[tuple[PreparedItem, records.Response]]] = {}

    async def request_samples(self, asking: Asking) -> None:
        for setup in self._setups:
            self._items[setup.task.name] = list(islice(self._load_few_and_record_lengths(setup), _FEW))
        self._setups = [self._with_expected_factors(setup) for setup in self._setups]
        await self._request_and_keep_samples("data_generation", self._make_item_works(asking))
        await self._request_and_keep_samples("response_collection", self._make_answer_works(asking))
        await self._request_and_keep_samples("evaluation", self._make_judgment_works(asking))

    # --- what is asked -----------------------------------------------------------------------

    def _make_item_works(self, asking: Asking) -> Iterator[ItemWork]:
        for setup, teacher, number in self._share_out_samples("data_generation", self._setups):
            task = setup.task
            samples = Samples(setup.space, seed=task.sampling.seed, task=task.name, teacher=teacher.name)
            key = records.item_id(task.name, teacher.name, number + 1)
            kind = ItemWork if setup.task.documents is None else DocumentItemWork
            yield kind(asking, teacher, key, NOT_TRIED, setup, samples.draw_sample(number + 1))

    def _make_answer_works(self, asking: Asking) -> Iterator[ResponseWork]:
        possible = [setup for setup in self._setups if self._items[setup.task.name]]
        for setup, student, number in self._share_out_samples("response_collection", possible):
            items = self._items[setup.task.name]
            prepared = items[number % len(items)]
            key = records.response_id(prepared.item.id, student.name)
            yield ResponseWork(asking, student, key, NOT_TRIED, setup, prepared)

    def _make_judgment_works(self, asking: Asking) -> Iterator[EvaluationWork | PairWork]:
        """Make judgments of sampled answers, else of recorded ones."""
        answers = {
            setup.task.name: self._answers.get(setup.task.name)
            or list(islice(self._load_recorded_answers(setup), _FEW))
            for setup in self._setups
        }
        possible = [setup for setup in self._setups if answers[setup.task.name]]
        for setup, judge, number in self._share_out_samples("evaluation", possible):
            prepared, response = answers[setup.task.name][number % len(answers[setup.task.name])]
            factors = tuple(setup.criteria)
            if setup.task.evaluation_mode == "per_factor":
                factors = (factors[number % len(factors)],)
            judged, key = (
                JudgeInput(setup, prepared, response),
                records.evaluation_id(response.id, judge.name),
            )
            if setup.pairs is not None:  # compared with itself: as long as any comparison
                yield PairWork(asking, judge, key, NOT_TRIED, setup.pairs, judged, judged)
                continue
            yield EvaluationWork(asking, judge, key, NOT_TRIED, judged, factors)

    def _share_out_samples(
        self, phase: Phase, possible: Iterable[TaskSetup]
    ) -> Iterator[tuple[TaskSetup, RoleModel, int]]:
        """Yield task, model and number of each sample of a phase, as many as records do not replace. A
        model's samples rotate over its tasks (and variants); models start at different tasks. The numbers
        of one model differ."""
        places: dict[str, list[tuple[TaskSetup, RoleModel]]] = {}
        for setup in possible:
            for role_model in list_makers(setup, phase):
                if role_model.called_name in self._remaining and self._count_calls(
                    phase, setup, role_model.name
                ):
                    places.setdefault(role_model.called_name, []).append((setup, role_model))
        for at, (name, of_model) in enumerate(places.items()):
            calls = sum(self._count_calls(phase, setup, model.name) for setup, model in of_model)
            cells = [Cell(setup.task.name, model.name) for setup, model in of_model]
            recorded = sum(self._lengths.count_values(_SHOWN_BY[phase], cell) for cell in cells)
            count = max(0, min(self._count_samples_for(phase, name), self._per_model - recorded, calls))
            self._remaining[name] -= count
            for number in range(at, at + count):
                yield *of_model[number % len(of_model)], number

    def _count_calls(self, phase: Phase, setup: TaskSetup, name: str) -> int:
        counts = self._preview.plan_count.by_model.get((phase, setup.task.name, name))
        return counts.calls if counts is not None else 0

    def _count_samples_for(self, phase: Phase, name: str) -> int:
        """Return how many samples a model has for a phase: as many as for each of its later roles, but at
        least one, since answers need an item and judgments an answer."""
        later = sum(self._has_calls_in(other, name) for other in FLOWING[FLOWING.index(phase) + 1 :])
        return min(self._remaining[name], max(1, self._remaining[name] // (1 + later)))

    def _has_calls_in(self, phase: Phase, name: str) -> bool:
        casts = ((setup, model) for setup in self._setups for model in list_makers(setup, phase))
        return any(
            self._count_calls(phase, setup, model.name) for setup, model in casts if model.called_name == name
        )

    def _load_few_and_record_lengths(self, setup: TaskSetup) -> Iterator[PreparedItem]:
        recorded = self._preview.plan.recorded
        for (task, _), items in recorded.items_by_teacher.items():
            for key in islice(items, _FEW) if task == setup.task.name else ():
                if (entry := recorded.items.get(key)) is not None and entry.good:
                    item = recorded.items.load(key, records.Datapoint)
                    texts = {"item": item.prompt or "", "reference": item.reference_response or ""}
                    self._lengths.add_item_texts(item.id, {kind: len(text) for kind, text in texts.items()})
                    yield PreparedItem(item, {})

    def _load_recorded_answers(self, setup: TaskSetup) -> Iterator[tuple[PreparedItem, records.Response]]:
        responses = self._preview.plan.recorded.responses
        for prepared in self._items[setup.task.name]:
            for student in setup.students:
                key = records.response_id(prepared.item.id, student.name)
                if (entry := responses.get(key)) is not None and entry.good:
                    yield prepared, responses.load(key, records.Response)

    def _with_expected_factors(self, setup: TaskSetup) -> TaskSetup:
        """Copy an unsettled task's setup with as many factors as are expected: known ones, then stand-ins."""
        task = setup.task
        owed = len(self._preview.blueprint.list_owed_proposals(task, "rubric"))
        if task.name not in self._preview.unsettled or not owed or not setup.judges:
            return setup
        rubric_so_far = self._preview.blueprint.merge_inherited_and_proposed_rubrics(task)
        possible = merge_rubrics(rubric_so_far, _STAND_IN)
        rubric = dict(islice(possible.items(), len(rubric_so_far) + round(expect_new_factors(owed).central)))
        form = build_judge_form(task, rubric)
        criteria = {factor: criterion_hash(text, form.scales[factor]) for factor, text in rubric.items()}
        return replace(setup, rubric=rubric, criteria=criteria, form=form)

    # --- what comes of it --------------------------------------------------------------------

    async def _request_and_keep_samples(self, phase: Phase, works: Iterable[_Work]) -> None:
        await asyncio.gather(*(self._request_and_keep_sample(phase, work) for work in works))

    async def _request_and_keep_sample(self, phase: Phase, work: _Work) -> None:
        """Request a sample, add its lengths, and keep it for later phases."""
        record = await self._request_record(work)
        if record is None or not records.is_good(record):
            return
        seen = convert(msgspec.to_builtins(record), LengthFields)
        add_record_lengths(self._lengths, self._setups, phase, seen, "sample")
        match record, work:
            case records.Datapoint(), ItemWork():
                self._items[record.task_id].insert(0, PreparedItem(record, work.sample.nuance))
            case records.Response(), ResponseWork():
                self._answers.setdefault(record.task_id, []).append((work.prepared, record))

    async def _request_record(self, work: _Work) -> records.Kept | None:
        """Return a sample's record and report its usage; None if it failed, which is reported too."""
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
        usage = record.usage or records.Usage()
        cost = f", {dollars(usage.cost_usd)}" if usage.cost_usd else ""
        self._watcher.note(
            f"sample of {self._short.get(work.model, work.model)} as {work.role_model.role}: "
            f"{usage.input_tokens:,} + {usage.output_tokens:,} tokens, {record.latency_s or 0.0:.1f} s{cost}"
        )
        return record


# --- The estimate that a start makes of itself (`estimate_cost: true`)


async def sample_and_write_start_estimate(
    config: Config, preview: Preview, session: Session, prices: PriceBook, *, phase_barriers: bool
) -> None:
    """Write ``cost_estimate.json`` and report it. Models with batch jobs are not sampled: a batch would not
    answer before the run. Raises Draining: interrupted."""
    watcher, lengths = session.context.watcher, read_recorded_lengths(config, preview)
    if config.experiment.estimate_samples:
        live = [model.name for model in config.models if not config.batched_phases(model)]
        await add_live_samples(config, preview, lengths, live, session)
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
