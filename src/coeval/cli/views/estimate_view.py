"""An estimate as tables: calls, tokens and money by phase, model and provider, and what it comes to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rich.console import Console

from coeval.cli.say import say
from coeval.cli.views.name_table import Column, NameRow, print_table
from coeval.core.text import dollars
from coeval.engine.figures import short
from coeval.pricing.estimate.estimate import Estimate, EstimateLine
from coeval.pricing.estimate.span import Span

__all__ = ["print_estimate", "summed_up"]

_COLUMNS = [Column(heading) for heading in ("calls", "input", "output", "cost", "from – to")]
_UNKNOWN = "unknown"


def print_estimate(estimate: Estimate, console: Console) -> None:
    """Tables, the sum in a sentence, where the money goes, what would save some, and whose words these
    are."""
    parts = (("phase", estimate.by_phase), ("model", estimate.by_model), ("provider", estimate.by_provider))
    for heading, lines in parts:
        if heading == "provider" and len(lines) < 2:
            continue
        rows = [_row(name, line) for name, line in lines.items()]
        if heading == "phase":
            rows.append(_row("total", estimate.total, "bold"))
        title = "Estimate, in tokens and US dollars" if heading == "phase" else ""
        print_table(console, title, heading, _COLUMNS, rows)
        console.print()
    for sentence in summed_up(estimate):
        say(console, sentence)
    if estimate.savings:
        console.print()
        print_table(
            console,
            "What would cost less",
            "change",
            [Column("cost"), Column("from – to"), Column("saves")],
            [_saving(estimate, saving.change, saving.cost_usd) for saving in estimate.savings],
        )
    for sentence in _sources(estimate):
        say(console, sentence, "dim")


def _row(name: str, line: EstimateLine, style: str = "") -> NameRow:
    tokens = (_tokens(line.input_tokens), _tokens(line.output_tokens))
    cost = (_UNKNOWN, "") if line.cost_usd is None else (dollars(line.cost_usd.central), ends(line.cost_usd))
    return NameRow(name, (calls(line.calls), *tokens, *cost), style)


def _saving(estimate: Estimate, change: str, cost: Span) -> NameRow:
    before = estimate.total.cost_usd.central if estimate.total.cost_usd is not None else 0.0
    return NameRow(change, (dollars(cost.central), ends(cost), _share(before - cost.central, before)))


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
    yield f"{calls(total.calls)} calls, {_tokens(total.tokens)} tokens, {cost}, {hours(estimate.hours)}."
    if estimate.unpriced:
        names = ", ".join(estimate.unpriced)
        yield f"No price is known for {names}; overrides in Config/provider_pricing.yaml can name one."
    yield from _where(total, estimate.by_phase, estimate.by_model)


def _where(total: EstimateLine, *parts: Mapping[str, EstimateLine]) -> Iterator[str]:
    if total.cost_usd is None or not total.cost_usd.central:
        return
    most = [max(part.items(), key=lambda item: _central(item[1])) for part in parts if len(part) > 1]
    shares = [f"{name} takes {_share(_central(line), total.cost_usd.central)}" for name, line in most]
    if shares:
        yield f"Where it goes: {', '.join(shares)} of it."


def _central(line: EstimateLine) -> float:
    return line.cost_usd.central if line.cost_usd is not None else 0.0


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.0%}" if whole else "0%"


def _tokens(span: Span) -> str:
    return short(round(span.central))


def _sources(estimate: Estimate) -> Iterator[str]:
    by_source: dict[str, list[str]] = {}
    for name, source in estimate.basis.items():
        by_source.setdefault(source, []).append(name)
    for source, names in by_source.items():
        yield f"Lengths of {', '.join(names)}: {source}."
    if estimate.prices:
        yield f"Prices: {'; '.join(dict.fromkeys(estimate.prices.values()))}."
    yield from estimate.notes
