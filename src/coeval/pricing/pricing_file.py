"""The pricing file: prices of one's own, multipliers, and the hosts that `interface: auto` chooses from.

`Config/provider_pricing.yaml` of the working directory goes before the packaged file, section by
section: a file that only overrides prices keeps the packaged routes. Of `batch_multipliers` it names those
interfaces that differ.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, TypeAlias

import msgspec
from ruamel.yaml.error import YAMLError

from coeval.core.errors import Misshapen, UsageError
from coeval.core.foreign import convert
from coeval.core.plain import file_bytes
from coeval.core.yaml_text import yaml_reader
from coeval.pricing.tariff import Rates, Tier

LOCAL_FILE = Path("Config") / "provider_pricing.yaml"
PACKAGED_FILE = Path(__file__).with_name("provider_pricing.yaml")

_SHARES = "batch_multipliers"

Share: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=100)]


class Route(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A host that serves a model, and its name there."""

    interface: str
    model: str


class CacheMultipliers(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Cache prices of an interface as shares of its input price, for prices that do not state them; None
    means the input price."""

    read: Share | None = None
    write: Share | None = None


class OwnPrice(Rates, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A user's price: rates, and tiers for longer prompts in rising order."""

    tiers: tuple[Tier, ...] = ()

    def __post_init__(self) -> None:
        starts = [tier.above for tier in self.tiers]
        if starts != sorted(set(starts)):
            raise ValueError("the tiers of a price must rise, each `above` larger than the one before")


class PricingFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A pricing file. ``auto_routing``: model id → routes; ``batch_multipliers``: interface → share of the
    live price; ``cache_multipliers``: interface → shares of the input price; ``overrides``: model id → price,
    or interface → model id → price."""

    auto_routing: dict[str, tuple[Route, ...]] = {}
    batch_multipliers: dict[str, Share] = {}
    cache_multipliers: dict[str, CacheMultipliers] = {}
    overrides: dict[str, dict[str, Any]] = {}

    def own_prices(self) -> dict[tuple[str | None, str], OwnPrice]:
        """Return ``overrides`` by interface (None: all) and lower-case model id.

        Raises Misshapen: an entry is no price.
        """
        prices: dict[tuple[str | None, str], OwnPrice] = {}
        for name, entry in self.overrides.items():
            if entry and all(isinstance(below, dict) for below in entry.values()):
                for model, price in entry.items():
                    prices[name.lower(), f"{model}".lower()] = _own_price(f"{name}.{model}", price)
            else:
                prices[None, name.lower()] = _own_price(name, entry)
        return prices


def _own_price(name: str, entry: dict[str, Any]) -> OwnPrice:
    try:
        return convert(entry, OwnPrice)
    except Misshapen as error:
        raise Misshapen(f"overrides.{name}: {error}") from error


def read_pricing(folder: Path = Path()) -> PricingFile:
    """Read the pricing file of a working directory.

    Raises UsageError: the directory's file cannot be used; the message says where and why.
    """
    local = folder / LOCAL_FILE
    sections = _sections(PACKAGED_FILE)
    if not local.exists():
        return _converted(sections, PACKAGED_FILE)
    own = _sections(local)
    shares, own_shares = sections.get(_SHARES), own.get(_SHARES)
    if isinstance(shares, dict) and isinstance(own_shares, dict):
        own[_SHARES] = shares | own_shares
    return _converted(sections | own, local)


def _sections(path: Path) -> dict[str, Any]:
    try:
        data = yaml_reader().load(file_bytes(path).decode("utf-8-sig"))
    except (YAMLError, ValueError, RecursionError, OSError) as error:
        raise UsageError(
            f"{path} cannot be read: {' '.join(str(error).split())}; correct or remove it"
        ) from error
    if data is None:
        return {}
    if not isinstance(data, dict):
        names = ", ".join(PricingFile.__struct_fields__)
        raise UsageError(f"{path} is not a mapping; it may hold {names}")
    return {key: value for key, value in data.items() if value is not None}


def _converted(sections: dict[str, Any], path: Path) -> PricingFile:
    try:
        table = convert(sections, PricingFile)
        table.own_prices()
    except Misshapen as error:
        raise UsageError(
            f"{path} is not as it should be: {error}; docs/prices.md shows its format"
        ) from error
    return table
