"""The host that `interface: auto` stands for: the cheapest one with a credential."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import NamedTuple

from coeval.core.errors import KeyMissing, UsageError
from coeval.core.text import dollar_rate
from coeval.pricing.pricing_file import LOCAL_FILE, PricingFile, Route
from coeval.pricing.tariff import Tariff, list_rates

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
        """Format as ``groq, as llama-3.1-8b-instant ($0.05 in, $0.08 out per million tokens; openrouter:
        …)``."""
        reported = [shown_rates(self.tariff)]
        reported += [f"{route.interface}: {shown_rates(tariff)}" for route, tariff in self.others]
        if self.keyless:
            reported.append(f"no credential for {', '.join(self.keyless)}")
        return f"{self.route.interface}, as {self.route.model} ({'; '.join(reported)})"


def shown_rates(tariff: Tariff | None) -> str:
    """Format the list price of input and output."""
    if tariff is None:
        return "price unknown"
    rates = list_rates(tariff)
    into, out = dollar_rate(rates.input_usd_per_mtok), dollar_rate(rates.output_usd_per_mtok)
    return f"${into} in, ${out} out per million tokens"


def choose_route(
    model_id: str,
    has_credential: Callable[[str], bool],
    table: PricingFile,
    tariff_of: Callable[[Route], Tariff | None],
    key_variables: Mapping[str, str] | None = None,
) -> Choice:
    """Choose the cheapest route to a model among the hosts with a credential.

    Ties go to the first route in the file; routes of unknown price come last. ``key_variables`` names, by
    interface, the variables to set, for messages only.

    Raises KeyMissing: no host of it has a credential; UsageError: no route is known.
    """
    routes = _routes(model_id, table.auto_routing)
    open_to_us = [route for route in routes if has_credential(route.interface)]
    keyless = tuple(dict.fromkeys(route.interface for route in routes if route not in open_to_us))
    if not open_to_us:
        named = key_variables or {}
        hosts = [f"{each} ({named[each]})" if each in named else each for each in keyless]
        raise KeyMissing(
            f"no credential for any host of '{model_id}'; set a key of one of: {', '.join(hosts)}, "
            "in keys.yaml or in the environment"
        )
    priced = [(route, tariff_of(route)) for route in open_to_us]
    (route, tariff), *others = sorted(priced, key=lambda each: blended_usd(each[1]))
    return Choice(route, tariff, tuple(others), keyless)


def blended_usd(tariff: Tariff | None) -> float:
    """Return the blended list price for comparisons; infinite where unknown."""
    if tariff is None:
        return float("inf")
    rates = list_rates(tariff)
    return INPUT_PER_OUTPUT * rates.input_usd_per_mtok + rates.output_usd_per_mtok


def _routes(model_id: str, known: Mapping[str, tuple[Route, ...]]) -> tuple[Route, ...]:
    by_lower = {name.lower(): routes for name, routes in known.items()}
    needed = model_id.lower()
    for name in (needed, needed.rpartition("/")[2]):
        if routes := by_lower.get(name):
            return routes
    near = difflib.get_close_matches(needed.rpartition("/")[2], by_lower, n=1)
    hint = f"did you mean '{near[0]}'? Else name" if near else "name"
    raise UsageError(
        f"no host is known for '{model_id}'; {hint} its interface, "
        f"or add the model to auto_routing in {LOCAL_FILE.as_posix()}"
    )
