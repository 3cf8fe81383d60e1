"""What calls will cost and take: counts × mean lengths, with ranges; for runs, benchmarks and sweeps."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from math import inf
from operator import mul
from typing import Any, NamedTuple

import msgspec

from coeval.core.text import dollars, limit_in_dollars
from coeval.pricing.lengths import OF_TIMES, Cell, Lengths, Span, each, exact
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
    """Where models are asked: how many requests it takes at once (most at the low end, that of the time), and
    how many requests and tokens in a minute at the most."""

    name: str
    at_once: Span
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None


class RequestedModel(NamedTuple):
    """A model as its calls in one role are priced and timed. ``tariff`` is None where nobody knows its price,
    and ``share`` of it is paid for calls that are ``batched``. ``thinking``: tokens that it thinks for a
    reply; ``limit``: the most that a reply may have; ``tokens_per_s`` None: the whole reply at once;
    ``player``: who makes the records, where that is not the model's name but that of a variant."""

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
    player: str = ""

    def seconds(self, output: Span) -> Span:
        """Estimate how long a reply of so many tokens takes."""
        expected = self.first_s + (output.central / self.tokens_per_s if self.tokens_per_s else 0.0)
        return OF_TIMES.about(expected)


class CallShape(NamedTuple):
    """Calls of a model for a phase of a task. ``counted`` has the bounds of their number, ``calls`` how many
    are paid for at the ends of the range. ``prompt`` and ``reply`` are tokens of one call by rules of thumb,
    ``seen`` those of a prompt with the items that were seen.
    ``together`` calls begin with the same ``head`` tokens, which hosts may cache."""

    phase: str
    task: str
    requested: RequestedModel
    counted: Span
    calls: Span
    prompt: Span
    reply: Span
    head: Span = exact(0)
    together: float = 1.0
    seen: Span | None = None

    @property
    def cell(self) -> Cell:
        return Cell(self.task, self.requested.player or self.requested.name)


class CallGroup(NamedTuple):
    """Calls whose tokens and seconds, those of one call in the mean, are corrected by what was seen."""

    shape: CallShape
    input: Span
    output: Span
    seconds: Span

    @property
    def input_tokens(self) -> Span:
        return each(mul, self.shape.calls, self.input)

    @property
    def output_tokens(self) -> Span:
        return each(mul, self.shape.calls, self.output)

    @property
    def cost_usd(self) -> Span | None:
        """US dollars; None where the price is not known."""
        requested = self.shape.requested
        if not self.shape.calls.high:
            return exact(0)
        if requested.tariff is None:
            return None
        central = self.input.central
        tiers = (tier for tier in reversed(requested.tariff.tiers) if central > tier.above)
        rates: Rates = next(tiers, requested.tariff.rates)

        def usd(calls: float, tokens: float, made: float, read: float, written: float) -> float:
            of_input, of_output = rates.input_usd_per_mtok, rates.output_usd_per_mtok
            of_read = of_input if rates.cached_usd_per_mtok is None else rates.cached_usd_per_mtok
            write = of_input if rates.cache_write_usd_per_mtok is None else rates.cache_write_usd_per_mtok
            plain = max(tokens - read - written, 0.0)
            cost = plain * of_input + read * of_read + written * write + made * of_output
            return calls * (cost / 1e6 + rates.usd_per_request) * requested.share

        return each(usd, self.shape.calls, self.input, self.output, *self._cached())

    def _cached(self) -> tuple[Span, Span]:
        """Tokens of a prompt that are read from the host's cache, and those written to it."""
        shape = self.shape
        head = shape.head.central
        if head < _LEAST_CACHED or not shape.requested.caches or shape.requested.batched:
            return exact(0), exact(0)
        again = 1 - 1 / max(shape.together, 1.0)
        return Span(*(head * again * hits for hits in _CACHE_HITS)), exact(head * (1 - again))


def _groups(shapes: Sequence[CallShape], lengths: Lengths) -> list[CallGroup]:
    """Correct the tokens and seconds of calls by what was seen of the same role."""

    def corrected(what: str, rules: Iterable[Span]) -> list[Span]:
        by_role: dict[str, dict[Cell, Span]] = {}
        seen: dict[str, dict[Cell, Span]] = {}
        for shape, rule in zip(shapes, rules, strict=True):
            by_role.setdefault(shape.requested.role, {})[shape.cell] = rule
            of_seen = seen.setdefault(shape.requested.role, {})
            if what == "input" and shape.seen is not None:
                of_seen[shape.cell] = shape.seen
        found = {role: lengths.expected(f"{role} {what}", of, seen[role]) for role, of in by_role.items()}
        return [found[shape.requested.role][shape.cell] for shape in shapes]

    inputs = corrected("input", (shape.prompt for shape in shapes))
    replies = corrected("output", (shape.reply for shape in shapes))
    outputs = [reply.up_to(shape.requested.limit) for shape, reply in zip(shapes, replies, strict=True)]
    paces = (shape.requested.seconds(output) for shape, output in zip(shapes, outputs, strict=True))
    return list(map(CallGroup, shapes, inputs, outputs, corrected("seconds", paces)))


# --- An estimate as it is shown, written and read by programs


class EstimateLine(msgspec.Struct, frozen=True):
    """A part of an estimate: a phase, a model, a provider. ``cost_usd`` is that of the models whose price is
    known, None where none is."""

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
            total_cost((self.cost_usd, other.cost_usd)),
        )

    def __mul__(self, times: float) -> EstimateLine:
        cost = None if self.cost_usd is None else self.cost_usd * times
        return EstimateLine(self.calls * times, self.input_tokens * times, self.output_tokens * times, cost)


def total_cost(costs: Iterable[Span | None]) -> Span | None:
    """Sum the costs that are known; None where none is."""
    known = [cost for cost in costs if cost is not None]
    return sum(known, exact(0)) if known else None


class Saving(msgspec.Struct, frozen=True):
    """A change of the plan, in words, and what the plan would cost with it."""

    change: str
    cost_usd: Span


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """``unpriced`` are models that have calls and no known price: ``total.cost_usd`` is without them.
    ``basis`` says of each model what its lengths are taken from, ``prices`` whose prices are used; ``notes``
    what else to know."""

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
        """What ``--json`` prints and ``cost_estimate.json`` holds."""
        parts = {"by_phase": self.by_phase, "by_model": self.by_model, "by_provider": self.by_provider}

        def whole(take: Callable[[EstimateLine], Span]) -> dict[str, Any]:
            found = {name: {key: take(line) for key, line in part.items()} for name, part in parts.items()}
            return {"total": take(self.total), **found}

        return {
            "calls": whole(lambda line: _whole(line.calls)),
            "tokens": whole(lambda line: _whole(line.tokens))
            | {"input": _whole(self.total.input_tokens), "output": _whole(self.total.output_tokens)},
            "cost_usd": self.total.cost_usd,
            "hours": self.hours,
            "unpriced": self.unpriced,
            "cost_usd_of": {
                name: {key: line.cost_usd for key, line in part.items()} for name, part in parts.items()
            },
            "savings": self.savings,
            "basis": self.basis,
            "prices": self.prices,
            "notes": self.notes,
        }


def _whole(span: Span) -> Span:
    return each(round, span)


def estimate_of(shapes: Sequence[CallShape], lengths: Lengths, stages: Sequence[Collection[str]]) -> Estimate:
    """Price and time calls, corrected by what was seen. ``stages`` are phases that overlap, one stage after
    another."""
    groups = _groups(shapes, lengths)
    models = {group.shape.requested.name: group.shape.requested for group in groups}
    return Estimate(
        total=_line(groups),
        by_phase=_lines(groups, lambda shape: shape.phase),
        by_model=_lines(groups, lambda shape: shape.requested.name),
        by_provider=_lines(groups, lambda shape: shape.requested.provider),
        hours=_duration_s(stages, groups) * (1 / 3600),
        unpriced=tuple(dict.fromkeys(g.shape.requested.name for g in groups if g.cost_usd is None)),
        basis={name: lengths.basis(name) for name in models},
        prices={
            name: requested.tariff.source
            for name, requested in models.items()
            if requested.tariff is not None
        },
    )


def _lines(groups: Iterable[CallGroup], key: Callable[[CallShape], str]) -> dict[str, EstimateLine]:
    parts: dict[str, list[CallGroup]] = {}
    for group in groups:
        parts.setdefault(key(group.shape), []).append(group)
    return {name: _line(part) for name, part in parts.items()}


def _line(groups: Sequence[CallGroup]) -> EstimateLine:
    return EstimateLine(
        sum((group.shape.counted for group in groups), exact(0)),
        sum((group.input_tokens for group in groups), exact(0)),
        sum((group.output_tokens for group in groups), exact(0)),
        total_cost(group.cost_usd for group in groups) if groups else exact(0),
    )


def _duration_s(stages: Sequence[Collection[str]], groups: Sequence[CallGroup]) -> Span:
    """Seconds of all calls: of each stage, those of its busiest endpoint, those of the first and last calls
    that wait for another phase, and those of its batches."""
    total = exact(0)
    for phases in stages:
        ours = [group for group in groups if group.shape.phase in phases and group.shape.calls.high]
        live: dict[str, list[CallGroup]] = {}
        slowest: dict[str, Span] = {}
        for group in ours:
            if not group.shape.requested.batched:
                live.setdefault(group.shape.requested.endpoint.name, []).append(group)
                before = slowest.get(group.shape.phase, exact(0))
                slowest[group.shape.phase] = each(max, before, group.seconds)
        total += each(lambda *busy: max(busy), exact(0), *map(_busy_s, live.values()))
        total += sum(slowest.values() if len(phases) > 1 else (), exact(0))
        total += _BATCH_S * len({group.shape.phase for group in ours if group.shape.requested.batched})
    own = sum((group.shape.calls for group in groups), exact(0)) * _OWN_S
    return each(max, total, own)


def _busy_s(groups: Sequence[CallGroup]) -> Span:
    """Seconds that an endpoint works on what it is asked."""
    endpoint = groups[0].shape.requested.endpoint

    def busy(at_once: float, calls: float, work: float, tokens: float) -> float:
        by_requests = calls * 60 / (endpoint.requests_per_minute or inf)
        by_tokens = tokens * 60 / (endpoint.tokens_per_minute or inf)
        return max(work / max(min(at_once, calls), 1.0), by_requests, by_tokens)

    line = _line(groups)
    calls = sum((group.shape.calls for group in groups), exact(0))
    work = sum((each(mul, group.shape.calls, group.seconds) for group in groups), exact(0))
    return each(busy, endpoint.at_once, calls, work, line.tokens)


# --- Whether an estimate fits into a budget, in words


class BudgetFit(NamedTuple):
    """``fits``: the whole range of the estimate does."""

    fits: bool
    sentence: str


def budget_fit(
    name: str, budget_usd: float, spent_usd: float, line: EstimateLine, *, priced: bool
) -> BudgetFit:
    """Compare what ``line`` costs with what is left of the budget that ``name`` sets; ``priced`` says whether
    the price of all its calls is known."""
    left = max(0.0, budget_usd - spent_usd)
    of_it = f"{name} is {limit_in_dollars(budget_usd)}"
    if spent_usd:
        of_it += f", {dollars(spent_usd)} of it is spent, and {dollars(left)} is left"
    cost = line.cost_usd
    if cost is not None and cost.low > left:
        return BudgetFit(False, f"The estimate does not fit into the budget: {of_it}.")
    if cost is None or not priced:
        return BudgetFit(False, f"Whether it fits into the budget is not known without all prices: {of_it}.")
    if cost.high > left:
        return BudgetFit(False, f"The estimate may not fit into the budget: {of_it}.")
    return BudgetFit(True, f"The estimate fits into the budget: {of_it}.")
