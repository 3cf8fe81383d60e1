"""An estimate as it is shown: calls, tokens, money and hours with their ranges, how long calls take, and
whether it fits into a budget.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from coeval.core.text import dollars, limit_in_dollars
from coeval.pricing.call_shape import CallGroup, cost_of
from coeval.pricing.unknowns import SCENARIOS, Scenarios, Span, exact, span_of

# --- An estimate as it is shown, written and read by programs: calls, tokens, money and hours, with their
# ranges


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


class Saving(msgspec.Struct, frozen=True):
    """A change of the plan, in words, and what the plan would cost with it."""

    change: str
    cost_usd: Span


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """``unpriced`` are models that have calls and no known price: ``total.cost_usd`` is without them.
    ``basis`` says of each model what its lengths are taken from; ``notes`` what else to know."""

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
        calls = {
            name: {key: _whole(line.calls) for key, line in part.items()} for name, part in parts.items()
        }
        tokens = {
            name: {key: _whole(line.tokens) for key, line in part.items()} for name, part in parts.items()
        }
        costs = {name: {key: line.cost_usd for key, line in part.items()} for name, part in parts.items()}
        return {
            "calls": {"total": _whole(self.total.calls), **calls},
            "tokens": {
                "total": _whole(self.total.tokens),
                "input": _whole(self.total.input_tokens),
                "output": _whole(self.total.output_tokens),
                **tokens,
            },
            "cost_usd": self.total.cost_usd,
            "hours": self.hours,
            "unpriced": self.unpriced,
            "cost_usd_of": costs,
            "savings": self.savings,
            "basis": self.basis,
            "prices": self.prices,
            "notes": self.notes,
        }


def _whole(span: Span) -> dict[str, int]:
    return {"central": round(span.central), "low": round(span.low), "high": round(span.high)}


def estimate_of(
    groups: Sequence[CallGroup], seconds: Scenarios, calls: Mapping[tuple[str, str], Span]
) -> Estimate:
    """The sums of ``groups``; ``calls`` are those by phase and model, as the plan counts them: their ends are
    bounds."""
    paid = [group for group in groups if group.calls.any()]
    costs = [cost_of(group) for group in paid]

    def line(
        counted: Iterable[Span], *, phase: str = "", model: str = "", provider: str = ""
    ) -> EstimateLine:
        """The part that is named; all of it where none is."""
        mine = [
            at
            for at, group in enumerate(paid)
            if phase in ("", group.phase)
            and model in ("", group.model)
            and provider in ("", group.pricing.provider)
        ]
        known = [cost for at in mine if (cost := costs[at]) is not None]
        return EstimateLine(
            sum(counted, exact(0)),
            span_of(_sum(paid[at].calls * paid[at].input_tokens for at in mine)),
            span_of(_sum(paid[at].calls * paid[at].output_tokens for at in mine)),
            span_of(_sum(known)) if known or not mine else None,
        )

    providers = {group.model: group.pricing.provider for group in groups}
    return Estimate(
        total=line(calls.values()),
        by_phase={
            phase: line((span for (of, _), span in calls.items() if of == phase), phase=phase)
            for phase in dict.fromkeys(phase for phase, _ in calls)
        },
        by_model={
            name: line((span for (_, of), span in calls.items() if of == name), model=name)
            for name in dict.fromkeys(model for _, model in calls)
        },
        by_provider={
            host: line((span for (_, of), span in calls.items() if providers.get(of) == host), provider=host)
            for host in dict.fromkeys(providers.values())
        },
        hours=span_of(seconds / 3600),
        unpriced=tuple(dict.fromkeys(g.model for g, cost in zip(paid, costs, strict=True) if cost is None)),
    )


def _sum(figures: Iterable[Scenarios]) -> Scenarios:
    return sum(figures, np.zeros(SCENARIOS + 1))


# --- Whether an estimate fits into a budget, in words


class BudgetFit(NamedTuple):
    """``fits``: the whole range of the estimate does."""

    fits: bool
    sentence: str


def budget_fit(
    name: str, budget_usd: float, spent_usd: float, line: EstimateLine, *, priced: bool
) -> BudgetFit:
    """What ``line`` costs beside what is left of the budget that ``name`` sets; ``priced`` says whether the
    price of all its calls is known."""
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


# What a call takes of this process, which makes one after another.
_OWN_S = 0.001


class EndpointPace(NamedTuple):
    """How much an endpoint takes at once, and at most in a minute."""

    name: str
    concurrency: Scenarios
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None


def duration_s(
    stages: Sequence[Sequence[str]],
    groups: Iterable[CallGroup],
    paces: Mapping[str, EndpointPace],
    batch_s: Mapping[str, Scenarios],
) -> Scenarios:
    """Seconds of all calls. ``stages`` are phases that overlap, one stage after another; ``paces`` by model,
    models of one endpoint with the same one. ``batch_s`` is how long a batch of a phase takes: the models
    that are asked live meanwhile wait for none but their own phase's."""
    every = list(groups)
    total = np.zeros(SCENARIOS + 1)
    for phases in stages:
        live = [group for group in every if group.phase in phases and not group.pricing.batched]
        busy = [_busy_s(of_endpoint, paces) for of_endpoint in _by_endpoint(live, paces)]
        total += np.max(busy, axis=0) if busy else 0.0
        for phase in phases:
            seconds = [group.seconds * (group.calls > 0) for group in live if group.phase == phase]
            total += np.max(seconds, axis=0) if seconds and len(phases) > 1 else 0.0
            if any(group.phase == phase and group.pricing.batched for group in every):
                total += batch_s[phase]
    own = sum(group.calls for group in every) * _OWN_S
    return np.maximum(total, own)


def _by_endpoint(groups: Iterable[CallGroup], paces: Mapping[str, EndpointPace]) -> list[list[CallGroup]]:
    found: dict[str, list[CallGroup]] = {}
    for group in groups:
        found.setdefault(paces[group.model].name, []).append(group)
    return list(found.values())


def _busy_s(groups: Sequence[CallGroup], paces: Mapping[str, EndpointPace]) -> Scenarios:
    """How long an endpoint is at work on what it is asked."""
    pace = paces[groups[0].model]
    calls = sum(group.calls for group in groups)
    at_once = np.maximum(np.minimum(pace.concurrency, calls), 1.0)
    busy: Scenarios = sum(group.calls * group.seconds for group in groups) / at_once
    if pace.requests_per_minute is not None:
        busy = np.maximum(busy, calls * 60 / pace.requests_per_minute)
    if pace.tokens_per_minute is not None:
        tokens = sum(g.calls * (g.input_tokens + g.output_tokens) for g in groups)
        busy = np.maximum(busy, tokens * 60 / pace.tokens_per_minute)
    return busy
