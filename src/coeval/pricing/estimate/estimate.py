"""An estimate as it is shown, written and read by programs: calls, tokens, money and hours, with their
ranges."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from coeval.pricing.estimate.call_group import CallGroup, cost_of
from coeval.pricing.estimate.span import Scenarios, Span, exact, span_of
from coeval.pricing.estimate.unknowns import SCENARIOS

__all__ = ["Estimate", "EstimateLine", "Saving", "estimate_of"]


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
