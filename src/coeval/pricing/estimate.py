"""What calls will cost and take: counts × mean lengths, with ranges; for runs, benchmarks and sweeps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from math import inf
from operator import mul
from typing import Any, NamedTuple

import msgspec

from coeval.core.figures import dollars, limit_in_dollars
from coeval.pricing.lengths import TIME_FACTOR, Cell, Lengths, Span, exact, map_spans
from coeval.pricing.tariff import Rates, Tariff

# --- Calls that are alike: how many, what each takes by rules of thumb, and what all of them cost

# Tokens that hosts keep in their caches at the least: OpenAI's and Anthropic's guides to prompt caching.
_LEAST_CACHED = 1024
# The share of prompts that could be read from a cache and are: as expected, at the most, at the least.
_CACHE_HITS = (0.85, 1.0, 0.4)
# How long a batch takes: providers promise a day, and say one to four hours.
_BATCH_S = Span(2 * 3600.0, 600.0, 24 * 3600.0)
# Seconds that a call takes of this process, which makes one after another (perf/measure.py: 0.2 ms of CPU on
# a quiet machine, and the user's may be slower).
_OWN_S = 0.001


class EndpointPace(NamedTuple):
    """A host's limits: requests in flight (most at the low end, which is that of the time), requests and
    tokens per minute."""

    name: str
    at_once: Span
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None


class PricedModel(NamedTuple):
    """A model with what its calls in one role cost and take. ``tariff`` is None if its price is unknown;
    calls that are ``batched`` cost ``share`` of it. ``thinking`` are reasoning tokens of a reply, ``limit``
    its most tokens. ``tokens_per_s`` None: replies come whole. ``recorded_as`` is the name in records if it
    is another (that of a variant)."""

    name: str
    role: str
    provider: str
    endpoint: EndpointPace
    tariff: Tariff | None = None
    share: float = 1.0
    batched: bool = False
    thinking: Span = exact(0)
    limit: int | None = None
    caches: bool = True
    first_s: float = 0.0
    tokens_per_s: float | None = None
    recorded_as: str = ""

    def reply_seconds(self, output_tokens: Span) -> Span:
        expected = self.first_s + (output_tokens.central / self.tokens_per_s if self.tokens_per_s else 0.0)
        return TIME_FACTOR.span_around(expected)


class CallShape(NamedTuple):
    """Similar calls: those of a model for a phase of a task, with rules of thumb for one call. ``counted``
    bounds their number, ``calls`` is how many are paid for at the ends of the range. ``prompt`` and ``reply``
    are tokens of a call, ``seen`` those of a prompt about the items seen so far. ``together`` calls share the
    same ``head`` tokens, which hosts may cache."""

    phase: str
    task: str
    model: PricedModel
    counted: Span
    calls: Span
    prompt: Span
    reply: Span
    head: Span = exact(0)
    together: float = 1.0
    seen: Span | None = None

    @property
    def cell(self) -> Cell:
        return Cell(self.task, self.model.recorded_as or self.model.name)


class CallGroup(NamedTuple):
    """Calls with the mean tokens and seconds of one call, corrected by what was seen."""

    shape: CallShape
    input: Span
    output: Span
    seconds: Span

    @property
    def input_tokens(self) -> Span:
        return map_spans(mul, self.shape.calls, self.input)

    @property
    def output_tokens(self) -> Span:
        return map_spans(mul, self.shape.calls, self.output)

    @property
    def cost_usd(self) -> Span | None:
        """Return the cost of all calls in US dollars; None if the price is unknown."""
        model = self.shape.model
        if not self.shape.calls.high:
            return exact(0)
        if model.tariff is None:
            return None
        central = self.input.central
        tiers = (tier for tier in reversed(model.tariff.tiers) if central > tier.above)
        rates: Rates = next(tiers, model.tariff.rates)

        def total_usd(calls: float, prompt: float, reply: float, read: float, written: float) -> float:
            input_usd, output_usd = rates.input_usd_per_mtok, rates.output_usd_per_mtok
            read_usd = input_usd if rates.cached_usd_per_mtok is None else rates.cached_usd_per_mtok
            write_usd = (
                input_usd if rates.cache_write_usd_per_mtok is None else rates.cache_write_usd_per_mtok
            )
            plain = max(prompt - read - written, 0.0)
            cost = plain * input_usd + read * read_usd + written * write_usd + reply * output_usd
            return calls * (cost / 1e6 + rates.usd_per_request) * model.share

        return map_spans(total_usd, self.shape.calls, self.input, self.output, *self._cache_read_and_write())

    def _cache_read_and_write(self) -> tuple[Span, Span]:
        """Return the tokens of a prompt read from the host's cache, and those written to it."""
        shape = self.shape
        head = shape.head.central
        if head < _LEAST_CACHED or not shape.model.caches or shape.model.batched:
            return exact(0), exact(0)
        again = 1 - 1 / max(shape.together, 1.0)
        return Span(*(head * again * hits for hits in _CACHE_HITS)), exact(head * (1 - again))


def _correct_by_seen_lengths(shapes: Sequence[CallShape], lengths: Lengths) -> list[CallGroup]:
    """Correct the tokens and seconds of calls by what was seen of the same role."""

    def correct_quantity(quantity: str, rules: Iterable[Span]) -> list[Span]:
        rules_by_role: defaultdict[str, dict[Cell, Span]] = defaultdict(dict)
        seen_by_role: defaultdict[str, dict[Cell, Span]] = defaultdict(dict)
        for shape, rule in zip(shapes, rules, strict=True):
            rules_by_role[shape.model.role][shape.cell] = rule
            if quantity == "input" and shape.seen is not None:
                seen_by_role[shape.model.role][shape.cell] = shape.seen
        predicted = {
            role: lengths.predict(f"{role} {quantity}", by_cell, seen_by_role[role])
            for role, by_cell in rules_by_role.items()
        }
        return [predicted[shape.model.role][shape.cell] for shape in shapes]

    inputs = correct_quantity("input", (shape.prompt for shape in shapes))
    replies = correct_quantity("output", (shape.reply for shape in shapes))
    outputs = [reply.cap_at(shape.model.limit) for shape, reply in zip(shapes, replies, strict=True)]
    paces = (shape.model.reply_seconds(output) for shape, output in zip(shapes, outputs, strict=True))
    return list(map(CallGroup, shapes, inputs, outputs, correct_quantity("seconds", paces)))


# --- An estimate as it is shown, written and read by programs


class EstimateLine(msgspec.Struct, frozen=True):
    """A part of an estimate: a phase, model or provider. ``cost_usd`` sums known prices, None if there are
    none."""

    calls: Span
    input_tokens: Span
    output_tokens: Span
    cost_usd: Span | None

    @property
    def tokens(self) -> Span:
        return self.input_tokens + self.output_tokens

    def __add__(self, other: EstimateLine) -> EstimateLine:
        return EstimateLine(
            self.calls + other.calls,
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            sum_known_costs((self.cost_usd, other.cost_usd)),
        )

    def __mul__(self, times: float) -> EstimateLine:
        cost = None if self.cost_usd is None else self.cost_usd * times
        return EstimateLine(self.calls * times, self.input_tokens * times, self.output_tokens * times, cost)


def sum_known_costs(costs: Iterable[Span | None]) -> Span | None:
    usd = [cost for cost in costs if cost is not None]
    return sum(usd, exact(0)) if usd else None


class Saving(msgspec.Struct, frozen=True):
    """A change of the plan, in words, and the plan's cost with it."""

    change: str
    cost_usd: Span


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """What a plan will cost and take. ``unpriced`` are models with calls but no known price;
    ``total.cost_usd`` excludes them. ``basis`` says for each model where its lengths come from, ``prices``
    where its price comes from."""

    total: EstimateLine
    by_phase: Mapping[str, EstimateLine]
    by_model: Mapping[str, EstimateLine]
    by_provider: Mapping[str, EstimateLine]
    hours: Span
    unpriced: tuple[str, ...] = ()
    savings: tuple[Saving, ...] = ()
    basis: Mapping[str, str] = {}
    prices: Mapping[str, str] = {}
    notes: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return what ``--json`` prints and ``cost_estimate.json`` holds."""
        parts = {"by_phase": self.by_phase, "by_model": self.by_model, "by_provider": self.by_provider}

        def by_part(figure: Callable[[EstimateLine], Span | None]) -> dict[str, dict[str, Span | None]]:
            return {name: {key: figure(line) for key, line in part.items()} for name, part in parts.items()}

        total, whole = self.total, partial(map_spans, round)
        return {
            "calls": {"total": whole(total.calls), **by_part(lambda line: whole(line.calls))},
            "tokens": {"total": whole(total.tokens), **by_part(lambda line: whole(line.tokens))}
            | {"input": whole(total.input_tokens), "output": whole(total.output_tokens)},
            "cost_usd": self.total.cost_usd,
            "hours": self.hours,
            "unpriced": self.unpriced,
            "cost_usd_of": by_part(lambda line: line.cost_usd),
            "savings": self.savings,
            "basis": self.basis,
            "prices": self.prices,
            "notes": self.notes,
        }


def estimate_calls(
    shapes: Sequence[CallShape], lengths: Lengths, stages: Sequence[Collection[str]]
) -> Estimate:
    """Price and time calls, corrected by what was seen. Phases of a stage overlap."""
    groups = _correct_by_seen_lengths(shapes, lengths)
    models = {group.shape.model.name: group.shape.model for group in groups}
    return Estimate(
        total=_sum_line(groups),
        by_phase=_sum_lines_by(groups, lambda shape: shape.phase),
        by_model=_sum_lines_by(groups, lambda shape: shape.model.name),
        by_provider=_sum_lines_by(groups, lambda shape: shape.model.provider),
        hours=_total_seconds(stages, groups) * (1 / 3600),
        unpriced=tuple(dict.fromkeys(g.shape.model.name for g in groups if g.cost_usd is None)),
        basis={name: lengths.describe_basis(name) for name in models},
        prices={name: model.tariff.source for name, model in models.items() if model.tariff is not None},
    )


def _sum_lines_by(groups: Iterable[CallGroup], key: Callable[[CallShape], str]) -> dict[str, EstimateLine]:
    parts: dict[str, list[CallGroup]] = {}
    for group in groups:
        parts.setdefault(key(group.shape), []).append(group)
    return {name: _sum_line(part) for name, part in parts.items()}


def _sum_line(groups: Sequence[CallGroup]) -> EstimateLine:
    return EstimateLine(
        sum((group.shape.counted for group in groups), exact(0)),
        sum((group.input_tokens for group in groups), exact(0)),
        sum((group.output_tokens for group in groups), exact(0)),
        sum_known_costs(group.cost_usd for group in groups) if groups else exact(0),
    )


def _total_seconds(stages: Sequence[Collection[str]], groups: Sequence[CallGroup]) -> Span:
    """Estimate the time for all calls: per stage, its busiest endpoint, its batches, and where phases overlap
    one slowest call of each, which another phase waits for."""
    total = exact(0)
    for phases in stages:
        stage_groups = [group for group in groups if group.shape.phase in phases and group.shape.calls.high]
        live: dict[str, list[CallGroup]] = {}
        slowest: dict[str, Span] = {}
        for group in stage_groups:
            if not group.shape.model.batched:
                live.setdefault(group.shape.model.endpoint.name, []).append(group)
                before = slowest.get(group.shape.phase, exact(0))
                slowest[group.shape.phase] = map_spans(max, before, group.seconds)
        total += map_spans(lambda *busy: max(busy), exact(0), *map(_endpoint_seconds, live.values()))
        total += sum(slowest.values() if len(phases) > 1 else (), exact(0))
        total += _BATCH_S * len({group.shape.phase for group in stage_groups if group.shape.model.batched})
    own = sum((group.shape.calls for group in groups), exact(0)) * _OWN_S
    return map_spans(max, total, own)


def _endpoint_seconds(groups: Sequence[CallGroup]) -> Span:
    """Estimate how long one endpoint works on its calls, by concurrency and by its limits per minute."""
    endpoint = groups[0].shape.model.endpoint

    def busy_seconds(at_once: float, calls: float, work: float, tokens: float) -> float:
        by_requests = calls * 60 / (endpoint.requests_per_minute or inf)
        by_tokens = tokens * 60 / (endpoint.tokens_per_minute or inf)
        return max(work / max(min(at_once, calls), 1.0), by_requests, by_tokens)

    line = _sum_line(groups)
    calls = sum((group.shape.calls for group in groups), exact(0))
    work = sum((map_spans(mul, group.shape.calls, group.seconds) for group in groups), exact(0))
    return map_spans(busy_seconds, endpoint.at_once, calls, work, line.tokens)


# --- Whether an estimate fits into a budget, in words


class BudgetFit(NamedTuple):
    """Whether an estimate fits into a budget, with its whole range, and a sentence that says so."""

    fits: bool
    sentence: str


def check_budget_fit(
    name: str, budget_usd: float, spent_usd: float, line: EstimateLine, *, all_priced: bool
) -> BudgetFit:
    """Compare a cost with what is left of the budget ``name``."""
    left = max(0.0, budget_usd - spent_usd)
    budget = f"{name} is {limit_in_dollars(budget_usd)}"
    if spent_usd:
        budget += f", {dollars(spent_usd)} of it is spent, and {dollars(left)} is left"
    cost = line.cost_usd
    if cost is not None and cost.low > left:
        return BudgetFit(False, f"The estimate does not fit into the budget: {budget}.")
    if cost is None or not all_priced:
        return BudgetFit(False, f"Whether it fits into the budget is not known without all prices: {budget}.")
    if cost.high > left:
        return BudgetFit(False, f"The estimate may not fit into the budget: {budget}.")
    return BudgetFit(True, f"The estimate fits into the budget: {budget}.")
