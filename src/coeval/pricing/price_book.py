"""Price lookup: the user's prices first, then free local models, then the library."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from coeval.core.errors import UsageError
from coeval.core.model import is_own_address
from coeval.pricing.price_library import context_window, library_tariff, provider_at
from coeval.pricing.pricing_file import (
    LOCAL_FILE,
    PACKAGED_FILE,
    CacheMultipliers,
    OwnPrice,
    PricingFile,
    read_pricing,
)
from coeval.pricing.tariff import FREE, Rates, Tariff

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
    def known_as(self) -> str:
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
            for name in (offer.model, offer.known_as)
            for where in (offer.interface.lower(), None)
        )
        own = next((price for place in named if (price := self._own.get(place)) is not None), None)
        if own is not None:
            return self._with_cache(Tariff(rates=_rates(own), tiers=own.tiers, source=str(LOCAL_FILE)), offer)
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


def _rates(own: OwnPrice) -> Rates:
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
    model = offer.known_as
    provider = provider_at(offer.base_url) if offer.base_url is not None else None
    provider = provider or ("" if offer.local else offer.provider)
    if provider == _OF_ROUTER:
        model, colon, named = model.rpartition(":")
        return (f"{_OF_ROUTER}{named}", model) if colon else None
    return (provider, model) if provider else None
