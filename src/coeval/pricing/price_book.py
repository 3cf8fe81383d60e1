"""Price lookup: the user's prices first, then free local models, then the library."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from difflib import get_close_matches
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from coeval.core.errors import UsageError
from coeval.core.model import is_own_address
from coeval.pricing.pricing_file import (
    LOCAL_FILE,
    PACKAGED_FILE,
    CacheMultipliers,
    OwnPrice,
    PricingFile,
    read_pricing,
)
from coeval.pricing.tariff import FREE, Rates, Tariff, Tier

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, ModelPrice, Provider

# --- Packaged prices
#
# Prices of the `genai-prices` library: its data as installed, never a download.
#
# The library is loaded when a price is first asked for: it takes a seventh of a second. It counts as we do:
# `input_tokens` are all of the prompt, cached parts are taken out of them, and a tier's rates hold for all
# tokens of a request. Prices of other things than tokens of text (searches, audio) are left out: we ask for
# none.

# The library's units that are ours, in its words.
_FIELDS = {
    "input_mtok": "input_usd_per_mtok",
    "output_mtok": "output_usd_per_mtok",
    "cache_read_mtok": "cached_usd_per_mtok",
    "cache_write_mtok": "cache_write_usd_per_mtok",
    "output_reasoning_mtok": "reasoning_usd_per_mtok",
}
# How OpenRouter names what costs nothing; the library has no rates of these.
_FREE = ":free"


def library_tariff(
    provider: str, model: str, at: datetime | None = None, context: Mapping[str, str] | None = None
) -> Tariff | None:
    """Look up a provider's (by the library's id) token prices of a model; None where unknown.

    ``at`` defaults to now; ``context`` is what of a request the price depends on, such as ``service_tier``. A
    model whose price lacks a rate of input or of output is unknown: it does not answer in text.
    """
    found = _model(provider, model)
    if found is None:
        return None
    moment = at or datetime.now(UTC)
    prices = found.get_prices(moment, context)
    units = {name: value for name in _FIELDS if (value := getattr(prices, name)) is not None}
    if not units and model.endswith(_FREE):
        return Tariff(rates=FREE, source=f"{model} is free")
    if not {"input_mtok", "output_mtok"} <= units.keys():
        return None
    starts = sorted({tier.start for value in units.values() for tier in _tiers(value)})
    per_request = (
        float(prices.requests_kcount or 0) / 1000 if isinstance(prices.requests_kcount, Decimal) else 0.0
    )
    until = _next_change(found, moment)
    return Tariff(
        rates=Rates(**_rates(units, None), usd_per_request=per_request),
        tiers=tuple(
            Tier(above=start, **_rates(units, start), usd_per_request=per_request) for start in starts
        ),
        source=f"{library_name()}: {provider} {found.id}",
        until=until,
        renewed=None if until is None else lambda now: library_tariff(provider, model, now, context),
    )


def context_window(provider: str, model: str) -> int | None:
    """Return a model's context window in tokens, None where unknown."""
    found = _model(provider, model)
    return None if found is None else found.context_window


def provider_at(url: str) -> str | None:
    """Find the provider whose API is at a base URL, by the library's patterns; None for none."""
    return next((each.id for each in _providers() if re.match(each.api_pattern, url)), None)


@cache
def library_name() -> str:
    import genai_prices

    return f"genai-prices {genai_prices.__version__}"


def _providers() -> list[Provider]:
    from genai_prices import data_snapshot

    return data_snapshot.get_snapshot().providers


@cache
def _model(provider: str, model: str) -> ModelInfo | None:
    """By exact id of the provider; the library's rules match the model's ids of different spelling."""
    providers = _providers()
    found = next((each for each in providers if each.id == provider), None)
    return None if found is None else found.find_model(model, all_providers=providers)


def _tiers(value: Any) -> list[Any]:
    tiers: list[Any] = getattr(value, "tiers", [])
    return tiers


def _rates(units: Mapping[str, Any], start: int | None) -> dict[str, float]:
    """The rates of a tier that begins above ``start`` tokens, None being none."""
    return {_FIELDS[name]: float(_rate(value, start)) for name, value in units.items()}


def _rate(value: Any, start: int | None) -> Decimal:
    rate: Decimal = getattr(value, "base", value)
    for tier in _tiers(value):
        if start is not None and tier.start <= start:
            rate = tier.price
    return rate


def _constraints(model: ModelInfo) -> Iterator[Any]:
    prices: ModelPrice | list[Any] = model.prices
    conditional = [*(prices if isinstance(prices, list) else ()), *(model.price_variants or ())]
    return (each.constraint for each in conditional if each.constraint is not None)


def _next_change(model: ModelInfo, now: datetime) -> datetime | None:
    """The next moment at which another of a model's prices may hold: a date that comes, or an hour of the
    day."""
    moments = []
    for constraint in _constraints(model):
        if (start := getattr(constraint, "start_date", None)) is not None:
            moments.append(datetime(start.year, start.month, start.day, tzinfo=UTC))
            continue
        for hour in (constraint.start_time, constraint.end_time):
            today = datetime.combine(now.date(), hour if hour.tzinfo else hour.replace(tzinfo=UTC))
            moments += [today, today + timedelta(days=1)]
    return min((moment for moment in moments if moment > now), default=None)


# --- Price book

RatesT = TypeVar("RatesT", bound=Rates)

# Hugging Face's router sends a request on to the provider that stands behind the last colon of the model id;
# the library has each of these as a provider of its own. Without one the router chooses, and nobody knows
# the price.
_OF_ROUTER = "huggingface_"

FREE_HERE = Tariff(rates=FREE, source="local models are free")


class Offer(NamedTuple):
    """A model where it is offered; ``base_model`` is what it is, where ``model`` is a free name.

    ``provider`` is the library's id of the interface's host, empty where the library has none. ``local``: the
    interface is for servers that its user runs. ``context`` are fields of a request that its price depends
    on.
    """

    interface: str
    model: str
    base_url: str | None = None
    provider: str = ""
    local: bool = False
    context: tuple[tuple[str, str], ...] = ()
    base_model: str | None = None

    @property
    def lookup_name(self) -> str:
        return self.base_model or self.model


class PriceBook:
    """Prices for a working directory. Files and library are loaded on first use.

    Raises UsageError: the directory's pricing file cannot be used; so do the methods.
    """

    def __init__(self, folder: Path = Path()) -> None:
        self._folder = folder
        own_file = folder / LOCAL_FILE
        self._has_own_file = own_file.exists() and not own_file.samefile(PACKAGED_FILE)

    @cached_property
    def table(self) -> PricingFile:
        return read_pricing(self._folder)

    @cached_property
    def _own(self) -> Mapping[tuple[str | None, str], OwnPrice]:
        return self.table.own_prices()

    def tariff(self, offer: Offer) -> Tariff | None:
        """Find a model's price where it is served; None where unknown.

        A gateway's models have the prices of their interface; a base URL of another provider that the library
        knows has that provider's.
        """
        free = offer.local and (offer.base_url is None or is_own_address(offer.base_url))
        if free and not self._has_own_file:
            return FREE_HERE  # without reading the packaged file, which has no price of such
        named = (
            (where, name.lower())
            for name in (offer.model, offer.lookup_name)
            for where in (offer.interface.lower(), None)
        )
        own = next((price for place in named if (price := self._own.get(place)) is not None), None)
        if own is not None:
            return self._with_cache(
                Tariff(rates=_listed(own), tiers=own.tiers, source=str(LOCAL_FILE)), offer
            )
        if free:
            return FREE_HERE
        place = _place(offer)
        return None if place is None else library_tariff(*place, context=dict(offer.context))

    def context_window(self, offer: Offer) -> int | None:
        """Return the model's context window in tokens, None where the library does not know it."""
        place = _place(offer)
        return None if place is None else context_window(*place)

    def refuse_strangers(self, interfaces: Container[str], known: Iterable[str]) -> None:
        """Check the interfaces named in the directory's pricing file.

        Raises UsageError: the directory's file speaks of an interface that is none of ``interfaces``, of
        which ``known`` are those that can be meant.
        """
        for interface, section in self._named_interfaces() if self._has_own_file else ():
            if interface not in interfaces:
                near = get_close_matches(interface, known, n=1)
                hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
                raise UsageError(
                    f"{self._folder / LOCAL_FILE}: {section} names {interface}, which is no interface; {hint}"
                )

    def _named_interfaces(self) -> Iterator[tuple[str, str]]:
        """Each with the section that names it."""
        yield from ((interface, "overrides") for interface, _ in self._own if interface is not None)
        yield from ((interface, "batch_multipliers") for interface in self.table.batch_multipliers)
        yield from ((interface, "cache_multipliers") for interface in self.table.cache_multipliers)
        for model, routes in self.table.auto_routing.items():
            yield from ((route.interface, f"auto_routing.{model}") for route in routes)

    def _with_cache(self, tariff: Tariff, offer: Offer) -> Tariff:
        """With the interface's multipliers where the price says nothing of the cache."""
        shares = self.table.cache_multipliers.get(offer.interface, CacheMultipliers())
        return msgspec.structs.replace(
            tariff,
            rates=_shared(tariff.rates, shares),
            tiers=tuple(_shared(tier, shares) for tier in tariff.tiers),
        )


def _listed(own: OwnPrice) -> Rates:
    return Rates(**{name: getattr(own, name) for name in Rates.__struct_fields__})


def _shared(rates: RatesT, shares: CacheMultipliers) -> RatesT:
    changes = {}
    if rates.cached_usd_per_mtok is None and shares.read is not None:
        changes["cached_usd_per_mtok"] = rates.input_usd_per_mtok * shares.read
    if rates.cache_write_usd_per_mtok is None and shares.write is not None:
        changes["cache_write_usd_per_mtok"] = rates.input_usd_per_mtok * shares.write
    return msgspec.structs.replace(rates, **changes)


def _place(offer: Offer) -> tuple[str, str] | None:
    """Under which provider and id the library may have an offer."""
    model = offer.lookup_name
    provider = provider_at(offer.base_url) if offer.base_url is not None else None
    provider = provider or ("" if offer.local else offer.provider)
    if provider == _OF_ROUTER:
        model, colon, named = model.rpartition(":")
        return (f"{_OF_ROUTER}{named}", model) if colon else None
    return (provider, model) if provider else None
