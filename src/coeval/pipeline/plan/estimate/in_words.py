"""An estimate in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from coeval.core.text import dollars
from coeval.engine.progress import short
from coeval.pricing.estimate import Estimate, EstimateLine
from coeval.pricing.lengths import Span


def calls(span: Span) -> str:
    """``12,400``, or the range that it falls in."""
    low, high = round(span.low), round(span.high)
    return f"{low:,}" if low == high else f"{low:,}–{high:,}"


def ends(span: Span) -> str:
    """The ends of a range of money."""
    return f"{dollars(span.low)} – {dollars(span.high)}"


def hours(span: Span) -> str:
    """``about 4 minutes (2 to 26)``, in the unit that suits."""
    for size, unit in ((1.0, "hour"), (1 / 60, "minute"), (1 / 3600, "second")):
        if span.central >= size or unit == "second":
            low, central, high = (_figure(end / size) for end in (span.low, span.central, span.high))
            return f"about {central} {unit}{'' if central == '1' else 's'} ({low} to {high})"
    raise AssertionError("unreachable: seconds suit whatever is shorter")


def _figure(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0") if number < 10 else f"{number:,.0f}"


def summed_up(estimate: Estimate) -> Iterator[str]:
    """What it comes to, and where most of it goes."""
    total = estimate.total
    cost = "cost unknown"
    if total.cost_usd is not None:
        plus = ", and what models without a known price cost" if estimate.unpriced else ""
        cost = f"{dollars(total.cost_usd.central)} ({ends(total.cost_usd)}){plus}"
    yield f"{calls(total.calls)} calls, {tokens(total.tokens)} tokens, {cost}, {hours(estimate.hours)}."
    if estimate.unpriced:
        names = ", ".join(estimate.unpriced)
        yield (
            f"No price is known for {names}; overrides in Config/provider_pricing.yaml can name one "
            "(docs/prices.md)."
        )
    yield from _where(total, estimate.by_phase, estimate.by_model)


def _where(total: EstimateLine, *parts: Mapping[str, EstimateLine]) -> Iterator[str]:
    if total.cost_usd is None or not total.cost_usd.central:
        return
    most = [max(part.items(), key=lambda item: _central(item[1])) for part in parts if len(part) > 1]
    shares = [f"{name} takes {share(_central(line), total.cost_usd.central)}" for name, line in most]
    if shares:
        yield f"Where it goes: {', '.join(shares)} of it."


def _central(line: EstimateLine) -> float:
    return line.cost_usd.central if line.cost_usd is not None else 0.0


def share(part: float, whole: float) -> str:
    """``42%``"""
    return f"{part / whole:.0%}" if whole else "0%"


def tokens(span: Span) -> str:
    """``1.2M``"""
    return short(round(span.central))
