"""Price lookup: the user's prices first, then free local models, then the library."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from difflib import get_close_matches
from functools import cache, cached_property
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from coeval.core.errors import UsageError
from coeval.core.model import is_private_address
from coeval.pricing import pricing_file
from coeval.pricing.tariff import FREE, Rates, RatesT, Tariff, Tier

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, Provider

# --- Packaged prices
#
# Prices of the `genai-prices` library: its data as installed, never a download.
#
# The library is loaded with the first price: loading takes a seventh of a second. It counts as we do:
# `input_tokens` include cached ones, and a tier's rates hold for all tokens of a request. Prices of other
# things than tokens of text (searches, audio) are left out: our requests have none.

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


def find_library_tariff(
    provider: str, model: str, at: datetime | None = None, context: Mapping[str, str] | None = None
) -> Tariff | None:
    """Look up a model's token prices in the library, by the library's provider id; None where unknown. ``at``
    defaults to now; ``context`` holds fields of a request that the price depends on, such as
    ``service_tier``. A model without a rate of input or of output counts as unknown: it does not answer in
    text."""
    info = _find_model(provider, model)
    if info is None:
        return None
    moment = at or datetime.now(UTC)
    prices = info.get_prices(moment, context)
    units = {name: value for name in _FIELDS if (value := getattr(prices, name)) is not None}
    if not units and model.endswith(_FREE):
        return Tariff(rates=FREE, source=f"{model} is free")
    if not {"input_mtok", "output_mtok"} <= units.keys():
        return None
    starts = sorted({tier.start for value in units.values() for tier in getattr(value, "tiers", ())})
    per_thousand = prices.requests_kcount
    per_request = float(per_thousand) / 1000 if isinstance(per_thousand, Decimal) else 0.0
    until = _find_next_change(info, moment)
    return Tariff(
        rates=Rates(**_rates_above(units, -inf), usd_per_request=per_request),
        tiers=tuple(
            Tier(above=start, **_rates_above(units, start), usd_per_request=per_request) for start in starts
        ),
        source=f"{name_library()}: {provider} {info.id}",
        until=until,
        renewed=None if until is None else lambda now: find_library_tariff(provider, model, now, context),
    )


def find_provider_by_url(url: str) -> str | None:
    """Find the provider whose API is at a base URL, by the library's patterns; None for none."""
    return next((provider.id for provider in _providers() if re.match(provider.api_pattern, url)), None)


@cache
def name_library() -> str:
    import genai_prices

    return f"genai-prices {genai_prices.__version__}"


def _providers() -> list[Provider]:
    from genai_prices import data_snapshot

    return data_snapshot.get_snapshot().providers


@cache
def _find_model(provider: str, model: str) -> ModelInfo | None:
    """Find a model by the provider's exact id; the library's rules match spellings of the model's id."""
    providers = _providers()
    match = next((candidate for candidate in providers if candidate.id == provider), None)
    return None if match is None else match.find_model(model, all_providers=providers)


def _rates_above(units: Mapping[str, Any], start_tokens: float) -> dict[str, float]:
    """Return the fields of `Rates` for the tier above ``start_tokens`` (-inf: the base rates)."""
    rates = {}
    for name, value in units.items():
        prices = [tier.price for tier in getattr(value, "tiers", ()) if tier.start <= start_tokens]
        rates[_FIELDS[name]] = float(prices[-1] if prices else getattr(value, "base", value))
    return rates


def _find_next_change(model: ModelInfo, now: datetime) -> datetime | None:
    """Return when another price of a model may begin next: a coming date, or an hour of the day."""
    moments = []
    prices: list[Any] = model.prices if isinstance(model.prices, list) else []
    for constraint in (price.constraint for price in (*prices, *(model.price_variants or ()))):
        if constraint is None:
            continue
        if (start := getattr(constraint, "start_date", None)) is not None:
            moments.append(datetime(start.year, start.month, start.day, tzinfo=UTC))
            continue
        for hour in (constraint.start_time, constraint.end_time):
            today = datetime.combine(now.date(), hour if hour.tzinfo else hour.replace(tzinfo=UTC))
            moments += [today, today + timedelta(days=1)]
    return min((moment for moment in moments if moment > now), default=None)


# --- Price book

# Hugging Face's router forwards a request to the provider named after the last colon of the model id; the
# library lists each of them as a provider. Without one the router chooses, and the price is unknown.
_OF_ROUTER = "huggingface_"

FREE_HERE = Tariff(rates=FREE, source="local models are free")


class Offer(NamedTuple):
    """A model at a host. ``base_model`` is what it is, where ``model`` is a freely chosen name. ``provider``
    is the library's id of the interface's host, empty where the library has none. ``local``: the interface
    is for servers that its user runs. ``context`` are fields of a request that its price depends on."""

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
    """Prices for a working directory. Files and library are loaded on first use. Raises UsageError: the
    directory's pricing file cannot be used; so do the methods."""

    def __init__(self, folder: Path = Path()) -> None:
        self._folder = folder
        own_file = folder / pricing_file.LOCAL_FILE
        self._has_own_file = own_file.exists() and not own_file.samefile(pricing_file.PACKAGED_FILE)

    @cached_property
    def table(self) -> pricing_file.PricingFile:
        return pricing_file.read_merged_pricing(self._folder)

    @cached_property
    def _own_prices(self) -> Mapping[tuple[str | None, str], pricing_file.OwnPrice]:
        return self.table.own_prices()

    def find_tariff(self, offer: Offer) -> Tariff | None:
        """Find a model's price where it is served; None where unknown. A gateway's models have the prices of
        their interface; a base URL of another provider that the library knows has that provider's."""
        free = offer.local and (offer.base_url is None or is_private_address(offer.base_url))
        if free and not self._has_own_file:
            return FREE_HERE  # the packaged file prices no local model
        keys = (
            (interface, name.lower())
            for name in (offer.model, offer.lookup_name)
            for interface in (offer.interface.lower(), None)
        )
        own = next((price for key in keys if (price := self._own_prices.get(key)) is not None), None)
        if own is not None:
            rates = Rates(**{name: getattr(own, name) for name in Rates.__struct_fields__})
            tariff = Tariff(rates=rates, tiers=own.tiers, source=str(pricing_file.LOCAL_FILE))
            return self._add_cache_rates(tariff, offer.interface)
        if free:
            return FREE_HERE
        ids = _library_ids(offer)
        return None if ids is None else find_library_tariff(*ids, context=dict(offer.context))

    def find_context_window(self, offer: Offer) -> int | None:
        """Return the model's context window in tokens, None where the library does not know it."""
        ids = _library_ids(offer)
        info = None if ids is None else _find_model(*ids)
        return None if info is None else info.context_window

    def refuse_unknown_interfaces(self, known_interfaces: Container[str], suggested: Iterable[str]) -> None:
        """Raise UsageError where the directory's pricing file names an interface that is not known; it
        suggests one of ``suggested``."""
        if not self._has_own_file:
            return
        routes = ((model, route) for model, routes in self.table.auto_routing.items() for route in routes)
        named = (
            *((interface, "overrides") for interface, _ in self._own_prices if interface is not None),
            *((interface, "batch_multipliers") for interface in self.table.batch_multipliers),
            *((interface, "cache_multipliers") for interface in self.table.cache_multipliers),
            *((route.interface, f"auto_routing.{model}") for model, route in routes),
        )
        for interface, section in named:
            if interface not in known_interfaces:
                near = get_close_matches(interface, suggested, n=1)
                hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(suggested)}"
                file = self._folder / pricing_file.LOCAL_FILE
                raise UsageError(f"{file}: {section} names {interface}, which is not an interface; {hint}")

    def _add_cache_rates(self, tariff: Tariff, interface: str) -> Tariff:
        """Fill in cache rates by the interface's multipliers where the price states none."""
        shares = self.table.cache_multipliers.get(interface, pricing_file.CacheMultipliers())
        return msgspec.structs.replace(
            tariff,
            rates=_derive_cache_rates(tariff.rates, shares),
            tiers=tuple(_derive_cache_rates(tier, shares) for tier in tariff.tiers),
        )


def _derive_cache_rates(rates: RatesT, shares: pricing_file.CacheMultipliers) -> RatesT:
    changes = {}
    if rates.cached_usd_per_mtok is None and shares.read is not None:
        changes["cached_usd_per_mtok"] = rates.input_usd_per_mtok * shares.read
    if rates.cache_write_usd_per_mtok is None and shares.write is not None:
        changes["cache_write_usd_per_mtok"] = rates.input_usd_per_mtok * shares.write
    return msgspec.structs.replace(rates, **changes)


def _library_ids(offer: Offer) -> tuple[str, str] | None:
    model = offer.lookup_name
    provider = find_provider_by_url(offer.base_url) if offer.base_url is not None else None
    provider = provider or ("" if offer.local else offer.provider)
    if provider == _OF_ROUTER:
        model, colon, named = model.rpartition(":")
        return (f"{_OF_ROUTER}{named}", model) if colon else None
    return (provider, model) if provider else None
