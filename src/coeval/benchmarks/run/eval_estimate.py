"""Cost and time estimate of an evaluation, without requests or writes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from coeval.benchmarks.benchmark import Answer, Ask, Judgment
from coeval.benchmarks.run.runner import Prepared, requested_specs, usage_file
from coeval.benchmarks.run.task_run import TaskRun
from coeval.core.records import Request, is_good
from coeval.engine.model_work import Asking
from coeval.engine.terms import ModelFacts, find_output_limit, require_budget
from coeval.models.metering.account_file import read_accounts
from coeval.pricing.estimate import CallShape, Estimate, PricedModel, estimate_calls
from coeval.pricing.lengths import LATIN_PER_TOKEN, RULE_OF_THUMB, Cell, Lengths, Span, exact, measure_prompts
from coeval.pricing.price_book import PriceBook

# What stands in the place of an answer that is not there yet.
_PLACEHOLDERS = {"answer": "\ue002"}
# Prompts and records that are measured of each task: their mean is known to a few percent then.
_SIZED = 150


def estimate_evaluation(prepared: Prepared, prices: PriceBook) -> Estimate:
    """Estimate the missing records of an evaluation, given its folders."""
    lengths, runs = Lengths(), prepared.task_runs
    rules: dict[Cell, Span] = {}
    for task_run in runs:
        if task_run.given is None:
            task_run.read_current_or_failed_answers()
        task_run.read_judgments()
        _add_recorded_lengths(lengths, task_run)
        if task_run.tested is not None:
            cell = Cell(task_run.task, task_run.tested.name)
            rules[cell] = RULE_OF_THUMB.span_around(task_run.benchmark.answer_characters)
    facts = ModelFacts(
        requested_specs(prepared), {}, prices, lambda phase, _: phase in prepared.evaluation.batched
    )
    answers, benchmarks_met = lengths.predict("answer", rules), set[int]()
    shapes = [shape for task_run in runs for shape in _call_shapes(task_run, facts, answers, benchmarks_met)]
    phases = {phase for task_run in runs for phase in (task_run.label, task_run.judging)}
    return estimate_calls(shapes, lengths, [phases])


def _call_shapes(
    task_run: TaskRun, facts: ModelFacts, answers: Mapping[Cell, Span], benchmarks_met: set[int]
) -> Iterator[CallShape]:
    """Yield the calls that a task owes: answers, and the judgments of present and future answers."""
    benchmark, tested, judge, asking = task_run.benchmark, task_run.tested, task_run.judge, Asking({}, 0)
    texts = {"answer": exact(0)}
    if tested is not None:
        limit = find_output_limit(tested.sampling)
        length = answers[Cell(task_run.task, tested.name)]
        texts = {"answer": length.cap_at(None if limit is None else limit * LATIN_PER_TOKEN)}
    asks = task_run.given is None and tested is not None
    owed = [work.item for work in task_run.list_answer_works(asking)] if asks else []
    if tested is not None and tested.name:
        requested, calls = facts.price_model("response_collection", tested), exact(len(owed))
        prompts = [Request(item.messages) for item in _thin_out(owed or task_run.items)]
        yield _make_call_shape(task_run, requested, calls, prompts, texts, texts["answer"])
    if judge is None:
        return
    owed_asks = [work.needed for work in task_run.list_judgment_works(asking, task_run.items)]
    to_come: list[Ask] = []
    with task_run.catch_errors():
        for item in owed:
            to_come += benchmark.asks(item, Answer(id=item.id, response=_PLACEHOLDERS["answer"]))
    needed = len(owed_asks) + len(to_come)
    least, most = benchmark.judge_calls(needed)
    if least and id(benchmark) in benchmarks_met:  # the samples of a task meet their judge once
        least, most = needed, most - (least - needed)
    benchmarks_met |= {id(benchmark)} if least else set()
    requested = facts.price_model("evaluation", judge)
    reply = RULE_OF_THUMB.span_around(benchmark.judgment_characters)
    requests = [ask.request() for ask in _thin_out([*owed_asks, *to_come])]
    shape = _make_call_shape(task_run, requested, Span(least, least, most), requests, texts, reply)
    yield shape._replace(together=len(to_come) / len(owed) if owed else 1.0)


def _make_call_shape(
    task_run: TaskRun,
    requested: PricedModel,
    calls: Span,
    sampled_requests: Sequence[Request],
    lengths_by_placeholder: Mapping[str, Span],
    reply_characters: Span,
) -> CallShape:
    """Measure a kind of call by a sample of the owed requests, with these lengths for their placeholders."""
    phase = task_run.judging if requested.role == "judge" else task_run.label
    size = measure_prompts(sampled_requests, _PLACEHOLDERS)
    reply = reply_characters * size.per_character + requested.thinking
    prompt, head = size.prompt_tokens(lengths_by_placeholder), size.head_tokens(lengths_by_placeholder)
    return CallShape(phase, task_run.task, requested, calls, calls, prompt, reply, head)


_RowT = TypeVar("_RowT")


def _thin_out(rows: Sequence[_RowT]) -> Sequence[_RowT]:
    """Return all of a few rows, every second or tenth of many."""
    return rows[:: max(1, len(rows) // _SIZED)]


def _add_recorded_lengths(lengths: Lengths, task_run: TaskRun) -> None:
    """Add the lengths, usage and latencies of a task's records."""
    records: list[Answer | Judgment] = [*task_run.answers.values(), *task_run.judgments.values()]
    for record in _thin_out(records):
        role_model = task_run.tested if isinstance(record, Answer) else task_run.judge
        if role_model is None or not role_model.name or not is_good(record):
            continue
        cell = Cell(task_run.task, role_model.name)
        if isinstance(record, Answer):
            lengths.add_value("answer", cell, len(record.response or ""))
        lengths.add_call_usage(role_model.role, cell, record.usage, record.latency_s, max(1, record.attempts))
        lengths.count_call(role_model.name, "record")


# --- Budget check before the first request


def refuse_too_dear_unless_begun(prepared: Prepared) -> None:
    """Raise UsageError if the low end of the estimate exceeds the remaining budget; the folders are locked.
    A resumed folder is not refused, as with runs: it continues until the budget is spent."""
    evaluation = prepared.evaluation
    budget = evaluation.budget_usd
    accounts = read_accounts(usage_file(evaluation)).values()
    if budget is None or any(account.requests or account.reserved for account in accounts):
        return
    estimate = estimate_evaluation(prepared, PriceBook())
    cost = estimate.total.cost_usd
    if cost is not None and not estimate.unpriced:
        require_budget(cost.low, budget, accounts, "the same command with --estimate-only")
