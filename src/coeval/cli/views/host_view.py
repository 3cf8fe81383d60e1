"""What hosts serve and which credentials were found, as tables and as JSON."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from rich.console import Console

from coeval.cli.streams import say
from coeval.cli.views.table_view import show_rows, show_table
from coeval.core.errors import UsageError
from coeval.core.figures import MISSING
from coeval.core.model import ModelSpec
from coeval.core.text import dollar_rate, pluralize
from coeval.engine.probing import HostReport, OfferedModel
from coeval.models.catalog import HOSTS, OWN_CODE
from coeval.models.keys import Keys
from coeval.models.open import find_model_obstacle
from coeval.pricing.price_book import FREE_HERE
from coeval.reports.content import Cell, ReportTable, make_columns

# --- Credentials found, by place


class FoundCredential(msgspec.Struct, frozen=True):
    """Whether an interface (with an ``account`` of its own, or for one ``model``) can be asked, by what was
    ``found``: field → where it stands. ``missing`` says what there is to do where it cannot."""

    interface: str
    account: str | None
    model: str | None
    usable: bool
    found: dict[str, str]
    missing: str | None


def credentials(keys: Keys, specs: Iterable[ModelSpec], interface: str | None) -> list[FoundCredential]:
    """Those of all interfaces, or of one; then those of accounts, and of models that bring their own."""
    if interface is not None and interface not in HOSTS:
        raise UsageError(f"--interface: there is no {interface}; there are {', '.join(sorted(HOSTS))}")
    specs = list(specs)
    used = {spec.interface for spec in specs}
    needed = [interface] if interface is not None else [name for name in HOSTS if not used or name in used]
    found = [
        _of_interface(keys, name) for name in needed if HOSTS[name].dialect not in ("benchmark", OWN_CODE)
    ]
    for name, (at, path) in sorted(keys.accounts().items()):
        if at in needed:
            place = {"account": f"`providers.{name}` in {path}"}
            missing = _missing(ModelSpec(name=name, interface=at, model=at, account=name), keys)
            found.append(FoundCredential(at, name, None, missing is None, place, missing))
    for spec in specs:
        if spec.access_key is not None:
            own, missing = {"api_key": "`access_key` of the model"}, _missing(spec, keys)
            found.append(FoundCredential(spec.interface, None, spec.name, missing is None, own, missing))
    return found


def _of_interface(keys: Keys, name: str) -> FoundCredential:
    missing = _missing(ModelSpec(name=name, interface=name, model=name), keys)
    return FoundCredential(name, None, None, missing is None, keys.sources(name), missing)


def _missing(spec: ModelSpec, keys: Keys) -> str | None:
    """What a model lacks to be asked, without its name: the table has it."""
    if HOSTS[spec.interface].local and spec.base_url is None:
        return None  # whether weights can be loaded here is another question
    missing = find_model_obstacle(spec, keys)
    if missing is not None:
        missing = re.sub(rf'^interface "?{re.escape(spec.interface)}"?( \(model [^)]*\))?:? ', "", missing)
    return missing


def print_credentials(found: Sequence[FoundCredential], console: Console) -> None:
    """A row for each."""
    rows = [(_named(each), each.usable, _where(each)) for each in found]
    show_rows(console, "", make_columns("interface", "usable", "found"), rows)


def _named(found: FoundCredential) -> str:
    if found.account is not None:
        return f"{found.interface} (account {found.account})"
    return found.interface if found.model is None else f"{found.interface} (model {found.model})"


def _where(found: FoundCredential) -> str:
    """Fields with their places; where something is lacking, what to set."""
    reported = [f"{field}: {place}" for field, place in found.found.items()]
    if found.usable:
        return "; ".join(reported) or "none needed"
    if reported and found.missing is not None:
        return "; ".join([*reported, found.missing])
    host = HOSTS[found.interface]
    variables = " or ".join(host.key_env) or ", ".join(names[0] for names in host.settings.values() if names)
    return f"nothing; set {variables}" if variables else "nothing"


_COLUMNS = (*make_columns("model"), *make_columns("context", "input", "output", kind="count"))
_MORE_COLUMNS = (*_COLUMNS, *make_columns("cached", kind="count"), *make_columns("price by"))


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
            rows.append((shown, *_cells(model, verbose)))
            priced |= dict.fromkeys(_sources(model))
        title = f"{served_by(report)}: {pluralize(len(rows), 'model')}"
        if rows:
            bold = frozenset((at, 0) for at, model in enumerate(report.models) if model.id in report.names)
            columns = _MORE_COLUMNS if verbose else _COLUMNS
            show_table(console, ReportTable("", title, columns, tuple(rows), bold=bold))
        else:
            say(console, title)
        console.print()
    if any(report.models for report in reports):
        free = f"; {FREE_HERE.source}" if priced.pop(FREE_HERE.source, 0) is None else ""
        by = f", by {'; '.join(priced)}" if priced else ""
        longer = (
            "; +: more for long prompts"
            if any(
                model.tariff is not None and model.tariff.tiers
                for report in reports
                for model in report.models
            )
            else ""
        )
        say(
            console,
            f"Prices in US dollars per million tokens{by}{free}; {MISSING}: not known{longer}.",
            "dim",
        )


def served_by(report: HostReport) -> str:
    """``openai (account lab) at https://…``"""
    account = f" (account {report.account})" if report.account is not None else ""
    return f"{report.interface}{account}" + (f" at {report.base_url}" if report.base_url else "")


def _cells(model: OfferedModel, verbose: bool) -> tuple[Cell, ...]:
    if model.tariff is None:
        return (model.context_window, None, None, *([None, ""] if verbose else []))
    rates, longer = model.tariff.rates, "+" if model.tariff.tiers else ""
    into, out = dollar_rate(rates.input_usd_per_mtok), dollar_rate(rates.output_usd_per_mtok)
    reported: list[Cell] = [model.context_window, f"{into}{longer}", f"{out}{longer}"]
    if verbose:
        cached = rates.cached_usd_per_mtok
        reported += [None if cached is None else f"{dollar_rate(cached)}{longer}", model.tariff.source]
    return tuple(reported)


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
