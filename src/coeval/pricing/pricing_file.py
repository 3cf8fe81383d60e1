"""The pricing file: the user's own prices, multipliers, and the hosts that `interface: auto` chooses from.

`Config/provider_pricing.yaml` of the working directory replaces sections of the packaged file: one with
only `overrides` keeps the packaged routes. Its `batch_multipliers` list only the interfaces that differ.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeAlias

import msgspec
from ruamel.yaml.error import YAMLError

from coeval.core.errors import KeyMissing, Misshapen, UsageError
from coeval.core.figures import dollar_rate
from coeval.core.foreign import convert
from coeval.core.regular_files import read_file_bytes
from coeval.core.yaml_text import yaml_reader
from coeval.pricing.tariff import Rates, Tariff, Tier, longest_valid_rates_today

LOCAL_FILE = Path("Config") / "provider_pricing.yaml"
PACKAGED_FILE = Path(__file__).with_name("provider_pricing.yaml")

_SHARES = "batch_multipliers"

Share: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=100)]


class Route(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A host that serves a model, and its name there."""

    interface: str
    model: str


class CacheMultipliers(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Cache prices as shares of an interface's input price, where not stated; None means the input price."""

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
        """Return ``overrides`` by interface (None: all) and lower-case model id. Raises Misshapen: an entry
        is no price."""
        prices: dict[tuple[str | None, str], OwnPrice] = {}
        for name, entry in self.overrides.items():
            if entry and all(isinstance(below, dict) for below in entry.values()):
                for model, price in entry.items():
                    prices[name.lower(), f"{model}".lower()] = _convert_price(f"{name}.{model}", price)
            else:
                prices[None, name.lower()] = _convert_price(name, entry)
        return prices


def _convert_price(name: str, entry: dict[str, Any]) -> OwnPrice:
    try:
        return convert(entry, OwnPrice)
    except Misshapen as error:
        raise Misshapen(f"overrides.{name}: {error}") from error


def read_merged_pricing(folder: Path = Path()) -> PricingFile:
    """Read the pricing file of a working directory. Raises UsageError: the directory's file cannot be used;
    the message says where and why."""
    local = folder / LOCAL_FILE
    sections = _read_sections(PACKAGED_FILE)
    if not local.exists():
        return _convert_sections(sections, PACKAGED_FILE)
    own = _read_sections(local)
    shares, own_shares = sections.get(_SHARES), own.get(_SHARES)
    if isinstance(shares, dict) and isinstance(own_shares, dict):
        own[_SHARES] = shares | own_shares
    return _convert_sections(sections | own, local)


def _read_sections(path: Path) -> dict[str, Any]:
    try:
        data = yaml_reader().load(read_file_bytes(path).decode("utf-8-sig"))
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


def _convert_sections(sections: dict[str, Any], path: Path) -> PricingFile:
    try:
        table = convert(sections, PricingFile)
        table.own_prices()
    except Misshapen as error:
        raise UsageError(
            f"{path} is not as it should be: {error}; docs/prices.md shows its format"
        ) from error
    return table


# --- The host that `interface: auto` stands for: the cheapest one with a credential

# Tokens of input per token of output when hosts are compared by price: prompts of tasks and judges are longer
# than answers.
INPUT_PER_OUTPUT = 3


class Choice(NamedTuple):
    """The chosen route; ``tariff`` is None where unknown. ``others`` are the alternatives with their prices;
    ``keyless`` the hosts without a credential."""

    route: Route
    tariff: Tariff | None
    others: tuple[tuple[Route, Tariff | None], ...]
    keyless: tuple[str, ...]

    def __str__(self) -> str:
        """Return ``groq, as llama-3.1-8b-instant ($0.05 in, … per million tokens; openrouter: …)``."""
        parts = [format_rates(self.tariff)]
        parts += [f"{route.interface}: {format_rates(tariff)}" for route, tariff in self.others]
        if self.keyless:
            parts.append(f"no credential for {', '.join(self.keyless)}")
        return f"{self.route.interface}, as {self.route.model} ({'; '.join(parts)})"


def format_rates(tariff: Tariff | None) -> str:
    """Format the list price of input and output."""
    if tariff is None:
        return "price unknown"
    rates = longest_valid_rates_today(tariff)
    into, out = dollar_rate(rates.input_usd_per_mtok), dollar_rate(rates.output_usd_per_mtok)
    return f"${into} in, ${out} out per million tokens"


def choose_route(
    model_id: str,
    has_credential: Callable[[str], bool],
    table: PricingFile,
    find_tariff: Callable[[Route], Tariff | None],
    key_variables: Mapping[str, str] | None = None,
) -> Choice:
    """Choose the cheapest route to a model among the hosts with a credential. Ties go to the first route in
    the file; routes of unknown price come last. ``key_variables`` names, by interface, the variables to set,
    for messages only. Raises KeyMissing: no host of it has a credential; UsageError: no route is known."""
    routes = _require_routes(model_id, table.auto_routing)
    usable = [route for route in routes if has_credential(route.interface)]
    keyless = tuple(dict.fromkeys(route.interface for route in routes if route not in usable))
    if not usable:
        named = key_variables or {}
        hosts = [f"{host} ({named[host]})" if host in named else host for host in keyless]
        raise KeyMissing(
            f"no credential for any host of '{model_id}'; set a key of one of: {', '.join(hosts)}, "
            "in keys.yaml or in the environment"
        )
    priced = [(route, find_tariff(route)) for route in usable]
    (route, tariff), *others = sorted(priced, key=lambda pair: blend_list_price(pair[1]))
    return Choice(route, tariff, tuple(others), keyless)


def blend_list_price(tariff: Tariff | None) -> float:
    """Return the price of `INPUT_PER_OUTPUT` input tokens and one output token; infinite if unknown."""
    if tariff is None:
        return float("inf")
    rates = longest_valid_rates_today(tariff)
    return INPUT_PER_OUTPUT * rates.input_usd_per_mtok + rates.output_usd_per_mtok


def _require_routes(model_id: str, routes_by_model: Mapping[str, tuple[Route, ...]]) -> tuple[Route, ...]:
    by_lower = {name.lower(): routes for name, routes in routes_by_model.items()}
    wanted = model_id.lower()
    for name in (wanted, wanted.rpartition("/")[2]):
        if routes := by_lower.get(name):
            return routes
    near = difflib.get_close_matches(wanted.rpartition("/")[2], by_lower, n=1)
    hint = f"did you mean '{near[0]}'? Else name" if near else "name"
    raise UsageError(
        f"no host is known for '{model_id}'; {hint} its interface, "
        f"or add the model to auto_routing in {LOCAL_FILE.as_posix()}"
    )
