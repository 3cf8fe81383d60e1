"""What hosts serve and which credentials were found, as tables and as JSON."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec
from rich.console import Console

from coeval.cli.streams import say
from coeval.cli.views.table_view import show_rows, show_table
from coeval.core.figures import MISSING, dollar_rate
from coeval.core.model import ModelSpec
from coeval.core.text import pluralize
from coeval.engine.probing import HostReport, OfferedModel
from coeval.models.catalog import HOSTS, OWN_CODE
from coeval.models.keys import Keys
from coeval.models.open import find_model_obstacle
from coeval.pricing.price_book import FREE_HERE
from coeval.reports.content import Cell, ReportTable, make_columns

# --- Credentials found, by place


class FoundCredential(msgspec.Struct, frozen=True):
    """Whether an interface, an ``account`` of it or one ``model`` can be called, and where its credentials
    were ``found``, by field. ``missing`` says what to do if not."""

    interface: str
    account: str | None
    model: str | None
    usable: bool
    found: dict[str, str]
    missing: str | None


def find_credentials(keys: Keys, specs: Sequence[ModelSpec], interface: str | None) -> list[FoundCredential]:
    """Find the credentials of all interfaces or of one, then of accounts, and of models with their own."""
    used = {spec.interface for spec in specs}
    interfaces = [interface] if interface else [name for name in HOSTS if not used or name in used]
    credentials = []
    for name in interfaces:
        if HOSTS[name].dialect not in ("benchmark", OWN_CODE):
            missing = _explain_obstacle(ModelSpec(name=name, interface=name, model=name), keys)
            sources = keys.sources(name)
            credentials.append(FoundCredential(name, None, None, missing is None, sources, missing))
    for name, (at, path) in sorted(keys.locate_accounts().items()):
        if at in interfaces:
            sources = {"account": f"`providers.{name}` in {path}"}
            missing = _explain_obstacle(ModelSpec(name=name, interface=at, model=at, account=name), keys)
            credentials.append(FoundCredential(at, name, None, missing is None, sources, missing))
    for spec in specs:
        if spec.access_key is not None:
            at, own, missing = spec.interface, "`access_key` of the model", _explain_obstacle(spec, keys)
            sources = {"api_key": own}
            credentials.append(FoundCredential(at, None, spec.name, missing is None, sources, missing))
    return credentials


def _explain_obstacle(spec: ModelSpec, keys: Keys) -> str | None:
    """Say what a model lacks to be called, without its name, which the table has."""
    if HOSTS[spec.interface].local and spec.base_url is None:
        return None  # whether weights can be loaded here is another question
    missing = find_model_obstacle(spec, keys)
    if missing is not None:
        missing = re.sub(rf'^interface "?{re.escape(spec.interface)}"?( \(model [^)]*\))?:? ', "", missing)
    return missing


def print_credentials(credentials: Sequence[FoundCredential], console: Console) -> None:
    rows = []
    for credential in credentials:
        label = credential.interface
        label += f" (account {credential.account})" if credential.account is not None else ""
        label += f" (model {credential.model})" if credential.model is not None else ""
        rows.append((label, credential.usable, _describe_places_or_what_to_set(credential)))
    show_rows(console, "", make_columns("interface", "usable", "found"), rows)


def _describe_places_or_what_to_set(credential: FoundCredential) -> str:
    """List fields with their places, or what to set if something is missing."""
    parts = [f"{field}: {path}" for field, path in credential.found.items()]
    if credential.usable:
        return "; ".join(parts) or "none needed"
    if parts and credential.missing is not None:
        return "; ".join([*parts, credential.missing])
    host = HOSTS[credential.interface]
    variables = " or ".join(host.key_env) or ", ".join(names[0] for names in host.settings.values() if names)
    return f"nothing; set {variables}" if variables else "nothing"


_COLUMNS = (*make_columns("model"), *make_columns("context", "input", "output", kind="count"))
_MORE_COLUMNS = (*_COLUMNS, *make_columns("cached", kind="count"), *make_columns("price by"))


def print_host_models_and_prices(reports: Sequence[HostReport], verbose: bool, console: Console) -> None:
    """Print a table of the models of each host that lists them; those of the experiment are marked with its
    names."""
    priced: dict[str, None] = {}
    for report in reports:
        if report.problem is not None:
            continue
        rows = []
        for model in report.models:
            names = report.names.get(model.id, ())
            label = f"{model.id} ({', '.join(names)})" if names else model.id
            rows.append((label, *_model_cells(model, verbose)))
            if model.tariff is not None:
                priced[model.tariff.source.partition(":")[0]] = None
        title = f"{host_label(report)}: {pluralize(len(rows), 'model')}"
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
        tariffs = [model.tariff for report in reports for model in report.models if model.tariff is not None]
        longer = "; +: more for long prompts" if any(tariff.tiers for tariff in tariffs) else ""
        prices = f"Prices in US dollars per million tokens{by}{free}"
        say(console, f"{prices}; {MISSING}: not known{longer}.", "dim")


def host_label(report: HostReport) -> str:
    """Return a host as ``openai (account lab) at https://…``."""
    account = f" (account {report.account})" if report.account is not None else ""
    return f"{report.interface}{account}" + (f" at {report.base_url}" if report.base_url else "")


def _model_cells(model: OfferedModel, verbose: bool) -> tuple[Cell, ...]:
    if model.tariff is None:
        return (model.context_window, None, None, *([None, ""] if verbose else []))
    rates, longer = model.tariff.rates, "+" if model.tariff.tiers else ""
    into, out = dollar_rate(rates.input_usd_per_mtok), dollar_rate(rates.output_usd_per_mtok)
    cells: list[Cell] = [model.context_window, f"{into}{longer}", f"{out}{longer}"]
    if verbose:
        cached = rates.cached_usd_per_mtok
        cells += [None if cached is None else f"{dollar_rate(cached)}{longer}", model.tariff.source]
    return tuple(cells)


def hosts_as_data(reports: Sequence[HostReport]) -> list[dict[str, object]]:
    """Return the hosts for JSON; unknown values are null."""
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


def _model_as_data(model: OfferedModel, names_by_id: Mapping[str, Sequence[str]]) -> dict[str, object]:
    tariff = model.tariff
    price = tariff and {"rates": tariff.rates, "tiers": tariff.tiers, "source": tariff.source}
    return {
        "id": model.id,
        "names": list(names_by_id.get(model.id, ())),
        "context_window": model.context_window,
        "price": price,
    }
