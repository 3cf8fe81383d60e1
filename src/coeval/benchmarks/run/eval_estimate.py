"""Cost and time estimate of an evaluation, without requests or writes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import msgspec
import numpy as np

from coeval.benchmarks.benchmark import Answer, Item, Judgment
from coeval.benchmarks.run.runner import Prepared, specs_of, usage_file
from coeval.benchmarks.run.task_run import TaskRun
from coeval.core.records import Request, Usage, is_good
from coeval.engine.model_facts import ModelFacts, output_limit
from coeval.engine.model_work import Asking
from coeval.engine.terms import refuse_least
from coeval.models.metering.account_file import read_accounts
from coeval.pricing.call_shape import (
    LATIN_PER_TOKEN,
    AskedModel,
    CallGroup,
    CallShape,
    TextSize,
    ToldCall,
    add_told,
    call_groups,
    size_of,
    surely,
)
from coeval.pricing.estimate import Estimate, duration_s, estimate_of
from coeval.pricing.price_book import PriceBook
from coeval.pricing.unknowns import (
    CENTRAL,
    Cell,
    ErrorSpread,
    Evidence,
    Guess,
    Quantity,
    ScenarioDraws,
    Scenarios,
    Span,
    exact,
)

_ANSWERED = ErrorSpread(shared=0.35, task=0.25, model=0.3, cell=0.1, item=0.6)
_JUDGED = ErrorSpread(shared=0.2, task=0.2, model=0.3, cell=0.1, item=0.4)
# What stands in the place of an answer that is not there yet.
_MARK = "\ue002"
# Prompts whose sizes are taken of each task; the mean of the others is taken to be the same.
_SIZED = 150


class _Prompts(NamedTuple):
    """The mean of some prompts: what is known of them, how often an answer that is still to come stands
    in them, and the part that the judgments of one answer begin with."""

    known: TextSize
    messages: float
    times: float
    head: TextSize
    head_times: float


def estimate_evaluation(prepared: Prepared, prices: PriceBook) -> Estimate:
    """Estimate the missing records of an evaluation, given its folders."""
    for task_run in prepared.task_runs:
        if task_run.given is None:
            task_run.read_answers()
        task_run.read_judgments()
    facts = ModelFacts(specs_of(prepared), {}, prices, lambda phase, _: phase in prepared.evaluation.batched)
    evidence = Evidence()
    for task_run in prepared.task_runs:
        _add_records(evidence, task_run, facts)
    draws = ScenarioDraws(evidence)
    owed = [_OwedCalls.of(task_run) for task_run in prepared.task_runs]
    _once_met(owed)
    groups = call_groups(list(_shapes(owed, facts, draws)), draws)
    stages = [[phase for each in owed for phase in (each.task_run.label, each.task_run.judging)]]
    seconds = duration_s(stages, groups, facts.paces(draws), facts.batch_s(stages[0], draws))
    calls = {place: span for each in owed for place, span in each.counted(groups)}
    estimate = estimate_of(groups, seconds, calls)
    tariffs = {name: tariff for name, tariff in facts.tariffs.items() if tariff is not None}
    return msgspec.structs.replace(
        estimate,
        prices={name: tariffs[name].source for name in estimate.by_model if name in tariffs},
        basis={name: evidence.basis(name) for name in estimate.by_model},
    )


@dataclass(slots=True)
class _OwedCalls:
    """What a task has to ask: ``answers``, judgments ``standing`` answers need and those that answers
    ``to_come`` will need; ``judge_calls`` are the least and the most that all judgments take."""

    task_run: TaskRun
    answers: Sequence[Item]
    standing: Sequence[Request]
    to_come: Sequence[Request]
    judge_calls: tuple[int, int] = (0, 0)

    @classmethod
    def of(cls, task_run: TaskRun) -> _OwedCalls:
        asking, benchmark = Asking({}, 0), task_run.benchmark
        asks = task_run.given is None and task_run.tested is not None
        answers = [work.item for work in task_run.answer_works(asking)] if asks else []
        standing: list[Request] = []
        to_come: list[Request] = []
        if task_run.judge is not None:
            standing += [work.wanted.request() for work in task_run.judgment_works(asking, task_run.items)]
            with task_run.guarded():
                for item in answers:
                    asked = benchmark.asks(item, Answer(id=item.id, response=_MARK))
                    to_come += [each.request() for each in asked]
        judgments = benchmark.judge_calls(len(standing) + len(to_come))
        return cls(task_run, answers, standing, to_come, judgments)

    def counted(self, groups: Sequence[CallGroup]) -> Iterator[tuple[tuple[str, str], Span]]:
        """Calls by phase and model."""
        tested, judge = self.task_run.tested, self.task_run.judge
        if tested is not None and tested.name:
            yield (self.task_run.label, tested.name), exact(len(self.answers))
        if judge is not None:
            least, most = self.judge_calls
            of_phase = (group for group in groups if group.phase == self.task_run.judging)
            expected = round(sum(float(group.calls[CENTRAL]) for group in of_phase))
            yield (self.task_run.judging, judge.name), Span(min(max(expected, least), most), least, most)


def _once_met(owed: Sequence[_OwedCalls]) -> None:
    """The samples of a task meet their judge once."""
    met: set[int] = set()
    for each in owed:
        benchmark, (least, most) = id(each.task_run.benchmark), each.judge_calls
        if benchmark in met:
            meeting = least - len(each.standing) - len(each.to_come)
            each.judge_calls = (least - meeting, most - meeting)
        elif least:
            met.add(benchmark)


def _shapes(owed: Sequence[_OwedCalls], facts: ModelFacts, draws: ScenarioDraws) -> Iterator[CallShape]:
    answers = {
        Cell(each.task_run.task, each.task_run.tested.name): Guess(
            each.task_run.benchmark.answer_characters, max(1, len(each.answers))
        )
        for each in owed
        if each.task_run.tested is not None
    }
    judged = {
        Cell(each.task_run.task, each.task_run.judge.name): Guess(
            each.task_run.benchmark.judgment_characters, max(1, len(each.standing) + len(each.to_come))
        )
        for each in owed
        if each.task_run.judge is not None
    }
    answered = draws.means("answer characters", answers, _ANSWERED)
    said = draws.means("judgment characters", judged, _JUDGED)
    for each in owed:
        yield from _of_task(each, facts, draws, answered, said)


def _of_task(
    owed: _OwedCalls,
    facts: ModelFacts,
    draws: ScenarioDraws,
    answered: Mapping[Cell, Scenarios],
    said: Mapping[Cell, Scenarios],
) -> Iterator[CallShape]:
    task_run, length = owed.task_run, surely(0.0)
    tested, judge = task_run.tested, task_run.judge
    if tested is not None:
        length = answered[Cell(task_run.task, tested.name)]
        if (limit := output_limit(tested.sampling)) is not None:
            length = np.minimum(length, limit * LATIN_PER_TOKEN)
    if owed.answers and tested is not None:
        prompts = _sized([Request(item.messages) for item in _some(owed.answers)])
        asked = facts.asked_in("response_collection", tested)
        shape = _shape(task_run.label, task_run.task, asked, surely(len(owed.answers)), prompts)
        yield shape._replace(reply=length)
    if judge is None:
        return
    asked, reply = facts.asked_in("evaluation", judge), said[Cell(task_run.task, judge.name)]
    judgments, (least, most) = len(owed.standing) + len(owed.to_come), owed.judge_calls
    calls = draws.between(least, least, most) if least < most else surely(most)
    for requests in filter(None, (owed.standing, owed.to_come)):
        prompts, share = _sized(_some(requests)), len(requests) / judgments
        shape = _shape(task_run.judging, task_run.task, asked, calls * share, prompts)
        together = len(requests) / max(1, len(owed.answers)) if requests is owed.to_come else 1.0
        head = (prompts.head.characters + prompts.head_times * length) / LATIN_PER_TOKEN
        yield shape._replace(unknown=prompts.times * length, reply=reply, together=together, head=head)


def _shape(phase: str, task: str, asked: AskedModel, calls: Scenarios, prompts: _Prompts) -> CallShape:
    nothing = surely(0.0)
    return CallShape(phase, task, asked, calls, prompts.known, round(prompts.messages), nothing, nothing)


_ThingT = TypeVar("_ThingT")


def _some(things: Sequence[_ThingT]) -> Sequence[_ThingT]:
    """All of few, every second or tenth of many."""
    return things[:: max(1, len(things) // _SIZED)]


def _sized(requests: Sequence[Request]) -> _Prompts:
    texts = ["\n".join(message.content for message in request.messages) for request in requests]
    heads = [request.messages[-1].content[: request.shared] for request in requests]
    known, head = (_mean_size([text.replace(_MARK, "") for text in of]) for of in (texts, heads))
    count = len(requests)
    return _Prompts(
        known,
        sum(len(request.messages) for request in requests) / count,
        sum(text.count(_MARK) for text in texts) / count,
        head,
        sum(text.count(_MARK) for text in heads) / count,
    )


def _mean_size(texts: Sequence[str]) -> TextSize:
    sizes = [size_of(text) for text in texts]
    return TextSize(
        sum(size.characters for size in sizes) / len(sizes), sum(size.tokens for size in sizes) / len(sizes)
    )


def _add_records(evidence: Evidence, task_run: TaskRun, facts: ModelFacts) -> None:
    """What the records of a task tell."""
    records: list[Answer | Judgment] = [*task_run.answers.values(), *task_run.judgments.values()]
    for record in _some(records):
        quantity: Quantity = "answer characters" if isinstance(record, Answer) else "judgment characters"
        role_model = task_run.tested if isinstance(record, Answer) else task_run.judge
        text = record.response if isinstance(record, Answer) else record.raw
        if role_model is None or not role_model.name or not is_good(record) or text is None:
            continue
        usage, asked = record.usage or Usage(), max(1, record.attempts)
        told = ToldCall(
            role=role_model.role,
            task=task_run.task,
            model=role_model.name,
            texts={quantity: len(text)},
            prompt=len(record.prompt) if isinstance(record, Answer) else None,
            messages=1,
            reply=len(text),
            input_tokens=usage.input_tokens / asked,
            output_tokens=usage.output_tokens / asked,
            seconds=record.latency_s,
        )
        add_told(evidence, told, facts.speed(role_model.name), "record")


# --- Budget check before the first request


def refuse_too_dear(prepared: Prepared) -> None:
    """Check the estimate against the budget, while the folders are `held`. A resumed folder is not refused,
    as with runs: it continues until the budget is spent.

    Raises
    ------
    UsageError
        the low end of the estimate does not fit into what is left of the budget.
    """
    evaluation = prepared.evaluation
    budget = evaluation.budget_usd
    accounts = read_accounts(usage_file(evaluation)).values()
    if budget is None or any(account.requests or account.reserved for account in accounts):
        return
    estimate = estimate_evaluation(prepared, PriceBook())
    cost = estimate.total.cost_usd
    if cost is not None and not estimate.unpriced:
        refuse_least(cost.low, budget, accounts, "the same command with --estimate-only")
