"""What hosts serve, as tables and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console

from coeval.cli.say import say
from coeval.cli.views.name_table import Column, NameRow, print_table
from coeval.core.text import dollar_rate, numbered
from coeval.engine.host_survey import HostReport, OfferedModel
from coeval.pricing.price_book import FREE_HERE

__all__ = ["hosts_as_data", "print_hosts", "served_by"]

NOTHING = "–"
_COLUMNS = [Column(heading) for heading in ("context", "input", "output")]
_MORE_COLUMNS = [*_COLUMNS, Column("cached"), Column("price by", words=True, free=True)]


def print_hosts(reports: Sequence[HostReport], verbose: bool, console: Console) -> None:
    """A table for each host that has a list. What an experiment asks there is marked with its names."""
    priced: dict[str, None] = {}
    for report in reports:
        if report.problem is not None:
            continue
        rows = []
        for model in report.models:
            names = report.names.get(model.id, ())
            shown = f"{model.id} ({', '.join(names)})" if names else model.id
            rows.append(NameRow(shown, _cells(model, verbose), "bold" if names else ""))
            priced |= dict.fromkeys(_sources(model))
        title = f"{served_by(report)}: {numbered(len(rows), 'model')}"
        if rows:
            print_table(console, title, "model", _MORE_COLUMNS if verbose else _COLUMNS, rows)
        else:
            say(console, title)
        console.print()
    if any(report.models for report in reports):
        free = f"; {FREE_HERE.source}" if priced.pop(FREE_HERE.source, 0) is None else ""
        by = f", by {'; '.join(priced)}" if priced else ""
        longer = "; +: more for long prompts" if any(map(_is_tiered, reports)) else ""
        say(
            console,
            f"Prices in US dollars per million tokens{by}{free}; {NOTHING}: not known{longer}.",
            "dim",
        )


def served_by(report: HostReport) -> str:
    """``openai (account lab) at https://…``"""
    account = f" (account {report.account})" if report.account is not None else ""
    return f"{report.interface}{account}" + (f" at {report.base_url}" if report.base_url else "")


def _cells(model: OfferedModel, verbose: bool) -> tuple[str, ...]:
    window = NOTHING if model.context_window is None else f"{model.context_window:,}"
    if model.tariff is None:
        return (window, NOTHING, NOTHING, *([NOTHING, ""] if verbose else []))
    rates, longer = model.tariff.rates, "+" if model.tariff.tiers else ""
    into, out = dollar_rate(rates.input_usd_per_mtok), dollar_rate(rates.output_usd_per_mtok)
    told = [window, f"{into}{longer}", f"{out}{longer}"]
    if verbose:
        cached = rates.cached_usd_per_mtok
        told += [NOTHING if cached is None else f"{dollar_rate(cached)}{longer}", model.tariff.source]
    return tuple(told)


def _is_tiered(report: HostReport) -> bool:
    return any(model.tariff is not None and model.tariff.tiers for model in report.models)


def _sources(model: OfferedModel) -> Iterator[str]:
    if model.tariff is not None:
        yield model.tariff.source.partition(":")[0]


def hosts_as_data(reports: Sequence[HostReport]) -> list[dict[str, Any]]:
    """The same for JSON; what is not known is null."""
    return [
        {
            "interface": report.interface,
            "account": report.account,
            "base_url": report.base_url,
            "problem": report.problem,
            "models": [_model_as_data(model, report.names) for model in report.models],
        }
        for report in reports
    ]


def _model_as_data(model: OfferedModel, names: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    tariff = model.tariff
    return {
        "id": model.id,
        "names": list(names.get(model.id, ())),
        "context_window": model.context_window,
        "price": None
        if tariff is None
        else {"rates": tariff.rates, "tiers": tariff.tiers, "source": tariff.source},
    }
