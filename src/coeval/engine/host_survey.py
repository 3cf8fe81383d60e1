"""Survey of hosts: the models they list, with context windows and prices where known."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from types import MappingProxyType
from typing import NamedTuple

from coeval.core.errors import ModelError, UsageError
from coeval.core.model import ModelSpec
from coeval.core.shown_url import shown_url
from coeval.engine.terms import offer_of, tariff_of
from coeval.models.address import EndpointKey, ModelAddress, address_of
from coeval.models.catalog import HOSTS, OWN_CODE
from coeval.models.dialects.dialect import ListedModel
from coeval.models.hosted import list_models
from coeval.models.keys import Keys
from coeval.models.open import obstacle
from coeval.models.pacing.limits import Limiter
from coeval.models.transport.endpoint import Endpoint, reach
from coeval.models.transport.http import Http
from coeval.pricing.price_book import PriceBook
from coeval.pricing.pricing_file import LOCAL_FILE
from coeval.pricing.tariff import Rates, Tariff

# Dialects of models that no host serves.
_IN_PROCESS = frozenset({"local", "simulated", "benchmark", OWN_CODE})
# For a list, with all that is tried again to have it.
_PATIENCE_S = 30.0


class OfferedModel(NamedTuple):
    """A listed model by its id; ``context_window`` in tokens, None if unknown."""

    id: str
    context_window: int | None
    tariff: Tariff | None


class HostReport(NamedTuple):
    """A host as one credential sees it: ``models`` by id, or a one-line ``problem``. ``names``: the
    configured models served there, by id."""

    interface: str
    account: str | None
    base_url: str
    models: tuple[OfferedModel, ...] = ()
    problem: str | None = None
    names: Mapping[str, tuple[str, ...]] = MappingProxyType({})


def everywhere(keys: Keys) -> list[ModelSpec]:
    """Make a nameless model for each interface with a credential, and for each account of the key files."""
    found = [
        ModelSpec(name=name, interface=name, model=name)
        for name, host in HOSTS.items()
        if host.dialect not in _IN_PROCESS and keys.sources(name) and obstacle(name, keys) is None
    ]
    accounts = sorted((name, interface) for name, (interface, _) in keys.accounts().items())
    return found + [
        ModelSpec(name=name, interface=interface, model=interface, account=name)
        for name, interface in accounts
    ]


def at_hosts(specs: Iterable[ModelSpec]) -> list[ModelSpec]:
    """Keep the models that are served over HTTP."""
    return [
        spec
        for spec in specs
        if spec.base_url is not None or HOSTS[spec.interface].dialect not in _IN_PROCESS
    ]


async def survey(specs: Iterable[ModelSpec], keys: Keys, prices: PriceBook) -> list[HostReport]:
    """Query all hosts and credentials at once, in the order of the models; no model is called.

    Raises UsageError: the pricing file cannot be used.
    """
    prices.refuse_strangers(HOSTS, HOSTS.own)
    reports: list[HostReport | ModelAddress] = []
    names: dict[EndpointKey, dict[str, tuple[str, ...]]] = {}
    for spec in specs:
        try:
            address = address_of(spec, HOSTS[spec.interface], keys)
        except UsageError as error:
            reports.append(
                HostReport(spec.interface, spec.account, shown_url(spec.base_url or ""), problem=_line(error))
            )
            continue
        if address.key not in names:
            names[address.key] = {}
            reports.append(address)
        there = names[address.key]
        there[spec.model] = (*there.get(spec.model, ()), spec.name)
    secrets = [secret for each in reports if isinstance(each, ModelAddress) for secret in each.secrets]
    http = Http()
    try:
        return await asyncio.gather(
            *(_report(_Asking(http, secrets, prices, names), each) for each in reports)
        )
    finally:
        await http.aclose()


class _Asking(NamedTuple):
    """What all hosts are asked with. ``secrets`` are those of all: hosts may repeat what others sent them.
    ``names`` are those of the models at each, by id."""

    http: Http
    secrets: Sequence[str]
    prices: PriceBook
    names: Mapping[EndpointKey, Mapping[str, tuple[str, ...]]]


async def _report(asking: _Asking, reported: HostReport | ModelAddress) -> HostReport:
    if isinstance(reported, HostReport):
        return reported
    address = reported
    spec = address.spec
    url = address.models_url or address.url
    names = asking.names[address.key]
    report = HostReport(spec.interface, spec.account, shown_url(url), names=names)
    if address.dialect.model_list is None or not address.host.lists_models:
        return report._replace(problem="it has no list of the models that can be asked")
    endpoint = Endpoint(url, address.signer, Limiter(), asking.secrets, address.host.headers)
    endpoint.leave_in((*names, *chain.from_iterable(names.values())))
    try:
        await reach(endpoint, address.dialect.model_list.path(None), "GET")
        async with asyncio.timeout(_PATIENCE_S):
            listed = await list_models(asking.http, endpoint, address.dialect)
    except ModelError as error:
        return report._replace(problem=_line(error))
    except TimeoutError:
        return report._replace(problem=f"it gave no list of its models within {_PATIENCE_S:.0f} s")
    offered = (_offered(model, spec, asking.prices) for model in listed or ())
    return report._replace(models=tuple(sorted(offered, key=lambda model: model.id)))


def _offered(model: ListedModel, spec: ModelSpec, prices: PriceBook) -> OfferedModel:
    """The user's own price, else what the host lists, else what is known of it."""
    offer = offer_of(spec)._replace(model=model.id, base_model=None)
    tariff = tariff_of(offer, prices)
    own = tariff is not None and tariff.source == str(LOCAL_FILE)
    if not own and model.input_usd_per_mtok is not None and model.output_usd_per_mtok is not None:
        rates = Rates(
            input_usd_per_mtok=model.input_usd_per_mtok, output_usd_per_mtok=model.output_usd_per_mtok
        )
        tariff = Tariff(rates=rates, source="the host's list")
    return OfferedModel(model.id, model.context_window or prices.context_window(offer), tariff)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
