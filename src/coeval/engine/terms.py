"""On what terms the models of a session are asked: their ceilings, and what their tokens cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from coeval.core.entry_points import loaded
from coeval.core.errors import UsageError
from coeval.core.model import ModelSpec
from coeval.models.catalog import HOSTS
from coeval.models.metering.account_file import Terms
from coeval.pricing.price_book import Offer, PriceBook
from coeval.pricing.tariff import Rates, Tariff, pricer

__all__ = ["offer_of", "tariff_of", "tariff_of_roles", "terms_of"]

_PRICED_FIELDS = ("service_tier", "speed")
"""Fields of a request by which some providers' prices differ."""


def terms_of(
    specs: Iterable[ModelSpec],
    max_calls: Mapping[str, int | None],
    prices: PriceBook,
    sent: Mapping[str, Sequence[Mapping[str, Any]]] = MappingProxyType({}),
) -> dict[str, Terms]:
    """The terms of each model by its name. ``sent`` are the parameters that a model is asked with in each of
    its roles, by its name: see `tariff_of_roles`.

    Raises
    ------
    UsageError
        the pricing file cannot be used, or a host of another package brings prices that are none.
    """
    prices.refuse_strangers(HOSTS, HOSTS.own)
    terms = {}
    for spec in specs:
        tariff = tariff_of_roles(spec, sent.get(spec.name) or ({},), prices)
        price, source = (None, None) if tariff is None else (pricer(tariff), tariff.source)
        terms[spec.name] = Terms(max_calls.get(spec.name), price, source)
    return terms


def tariff_of_roles(spec: ModelSpec, sent: Sequence[Mapping[str, Any]], prices: PriceBook) -> Tariff | None:
    """What a model costs that is ``sent`` these parameters in its roles: prices of some providers differ by
    them. None where nobody knows, or where roles differ in that: nobody can say then what an answer costs."""
    offers = {offer_of(spec, parameters) for parameters in sent}
    return tariff_of(offers.pop(), prices) if len(offers) == 1 else None


def offer_of(spec: ModelSpec, sent: Mapping[str, Any] = MappingProxyType({})) -> Offer:
    """What is asked for a model's price; ``sent`` are its parameters."""
    host = HOSTS[spec.interface]
    body = {**sent, **spec.extra_body}
    context = tuple((name, value) for name in _PRICED_FIELDS if isinstance(value := body.get(name), str))
    provider = host.priced_as or host.name
    return Offer(host.name, spec.model, spec.base_url, provider, local=host.local, context=context)


def tariff_of(offer: Offer, prices: PriceBook) -> Tariff | None:
    """What a model costs where it is asked, its host's own word included; None where nobody knows."""
    tariff = prices.tariff(offer)
    host = HOSTS[offer.interface]
    if tariff is not None or not host.prices:
        return tariff
    price_of = loaded(host.prices, host.name)
    rates = price_of(offer.model) if callable(price_of) else price_of
    if rates is None:
        return None
    if not isinstance(rates, Rates):
        raise UsageError(f"{host.name}: {host.prices} gives no Rates; reinstall its package")
    return Tariff(rates=rates, source=host.prices.partition(":")[0])
