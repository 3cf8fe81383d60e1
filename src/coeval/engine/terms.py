"""Terms of a session's models: ceilings and token prices."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from coeval.core.entry_points import loaded
from coeval.core.errors import UsageError
from coeval.core.model import ModelSpec
from coeval.core.options import BUDGET, max_cost
from coeval.core.records import SamplingParameters
from coeval.core.text import dollars, dollars_beyond, limit_in_dollars, listed
from coeval.models.catalog import HOSTS
from coeval.models.metering.account_file import ModelAccount, Spent, Terms, perhaps
from coeval.models.metering.answer_bound import most_answer_tokens
from coeval.pricing.price_book import FREE_HERE, Offer, PriceBook
from coeval.pricing.pricing_file import LOCAL_FILE
from coeval.pricing.tariff import Rates, Tariff, discounted, pricer, upper_price

# Fields of a request by which some providers' prices differ.
_PRICED_FIELDS = ("service_tier", "speed")


class Ceiling(NamedTuple):
    """Limits of a model over the life of a folder; None for no limit."""

    max_calls: int | None = None
    max_cost_usd: float | None = None


def terms_of(
    specs: Iterable[ModelSpec],
    ceilings: Mapping[str, Ceiling],
    prices: PriceBook,
    sent: Mapping[str, Sequence[Mapping[str, Any]]] = MappingProxyType({}),
) -> dict[str, Terms]:
    """Make the terms of each model by name. ``sent`` are its parameters in each role; see `tariff_of_roles`.

    Raises UsageError: the pricing file cannot be used, or a host of another package brings prices that are
    none.
    """
    prices.refuse_strangers(HOSTS, HOSTS.own)
    terms = {}
    for spec in specs:
        tariff = tariff_of_roles(spec, sent.get(spec.name) or ({},), prices)
        max_calls, max_cost_usd = ceilings.get(spec.name, Ceiling())
        own = Terms(max_calls=max_calls, max_cost_usd=max_cost_usd)
        if tariff is not None:
            own = own._replace(price=pricer(tariff), priced_by=tariff.source, most=upper_price(tariff))
            if HOSTS[spec.interface].batch and tariff is FREE_HERE:
                own = own._replace(
                    batch_price=own.price, batch_most=own.most
                )  # the prices are not read for it
            elif HOSTS[spec.interface].batch:
                share = prices.table.batch_multipliers.get(spec.interface, 1.0)
                in_batch = discounted(tariff, share)
                own = own._replace(batch_price=pricer(in_batch), batch_most=upper_price(in_batch))
        terms[spec.name] = own
    return terms


def batched_at_full_price(
    specs: Iterable[ModelSpec], batched: Container[str], terms: Mapping[str, Terms], prices: PriceBook
) -> Iterator[str]:
    """Warn about each of the ``batched`` models without a known batch discount."""
    for spec in specs:
        costs = terms[spec.name].most is not None
        if spec.name in batched and costs and spec.interface not in prices.table.batch_multipliers:
            yield (
                f"{spec.name} goes by batch jobs at the live price, as none is known of batch jobs of the "
                f"interface {spec.interface}; if they cost less there, say so in {LOCAL_FILE}: "
                f"`batch_multipliers: {{{spec.interface}: 0.5}}`"
            )


def counted_as_free(
    specs: Iterable[ModelSpec], terms: Mapping[str, Terms], budget_usd: float | None
) -> Iterator[str]:
    """Name the hosted models that a budget counts as free, and why."""
    free = [
        spec.name
        for spec in specs
        if terms[spec.name].priced_by == FREE_HERE.source
        and (spec.base_url or HOSTS[spec.interface].url)
        and (budget_usd is not None or terms[spec.name].max_cost_usd is not None)
    ]
    if free:
        yield (
            f"counted as free by the budget: {listed(free)}, served at a private address by an interface for "
            "servers of your own. What a gateway there says an answer costs is booked; one that says nothing "
            f"needs a price in {LOCAL_FILE}"
        )


def tariff_of_roles(spec: ModelSpec, sent: Sequence[Mapping[str, Any]], prices: PriceBook) -> Tariff | None:
    """Find a model's price when ``sent`` these parameters in its roles, since some prices depend on them.
    None where unknown, or where roles differ in price."""
    offers = {offer_of(spec, parameters) for parameters in sent}
    return tariff_of(offers.pop(), prices) if len(offers) == 1 else None


def offer_of(spec: ModelSpec, sent: Mapping[str, Any] = MappingProxyType({})) -> Offer:
    """Make the price lookup of a model; ``sent`` are its parameters."""
    host = HOSTS[spec.interface]
    body = {**sent, **spec.extra_body}
    context = tuple((name, value) for name in _PRICED_FIELDS if isinstance(value := body.get(name), str))
    provider = host.priced_as or host.name
    return Offer(
        host.name,
        spec.model,
        spec.base_url,
        provider,
        local=host.local,
        context=context,
        base_model=spec.base_model,
    )


def tariff_of(offer: Offer, prices: PriceBook) -> Tariff | None:
    """Find a model's price where it is served, including the host's own; None where unknown."""
    tariff = prices.tariff(offer)
    host = HOSTS[offer.interface]
    if tariff is not None or not host.prices:
        return tariff
    price_of = loaded(host.prices, host.name)
    rates = price_of(offer.known_as) if callable(price_of) else price_of
    if rates is None:
        return None
    if not isinstance(rates, Rates):
        raise UsageError(f"{host.name}: {host.prices} gives no Rates; reinstall its package")
    return Tariff(rates=rates, source=host.prices.partition(":")[0])


# --- Budget terms: a price and a bound for every model


class RequestedUnder(NamedTuple):
    """A model with the parameters of one role."""

    spec: ModelSpec
    sampling: SamplingParameters
    judge: bool = False


def refuse_boundless(
    requested: Iterable[RequestedUnder], terms: Mapping[str, Terms], budget_usd: float | None
) -> None:
    """Check that every model under a budget has a price and a bound on its answers.

    Raises UsageError: a model has a budget, its own or that of all, and nobody knows its price, or nothing
    bounds what one of its answers may have.
    """
    unpriced: dict[str, str] = {}
    unbounded: dict[str, str] = {}
    for spec, sampling, _ in requested:
        of_model = terms[spec.name]
        if budget_usd is None and of_model.max_cost_usd is None:
            continue
        key = str(BUDGET if budget_usd is not None else max_cost(spec.name))
        if of_model.price is None:
            unpriced[spec.name] = key
        elif of_model.most is not None and most_answer_tokens(sampling, spec) is None:
            unbounded[spec.name] = key
    problems = []
    if unpriced:
        problems.append(
            f"{listed(dict.fromkeys(unpriced.values()))} cannot be enforced without a known price of "
            f"{listed(unpriced)}. Name it under overrides in Config/provider_pricing.yaml (docs/prices.md)"
        )
    if unbounded:
        problems.append(
            f"{listed(dict.fromkeys(unbounded.values()))} cannot be kept to: nothing bounds the answers of "
            f"{listed(unbounded)}. Set parameters.max_tokens to 1 or more, in each of their roles"
        )
    if problems:
        raise UsageError("\n".join(problems))


def refuse_least(least_usd: float, budget_usd: float, accounts: Collection[ModelAccount], shows: str) -> None:
    """Check that the remaining work fits the budget at its least cost; ``shows`` names the option that shows
    costs. No process may be at work on ``accounts``.

    Raises UsageError: what is to be done costs more at the least than is left of the budget.
    """
    spent = Spent.of(accounts, at_work=False)
    if spent.usd + least_usd <= budget_usd:
        return
    needed, gone = dollars(least_usd), ""
    if spent.usd:
        needed, so_far = dollars_beyond(budget_usd, least_usd, spent.usd)
        gone = f", and {so_far} of it is spent{perhaps(spent.perhaps_usd)}"
    raise UsageError(
        f"the run does not fit into its budget: what is to be done costs {needed} at the least, and {BUDGET} "
        f"is {limit_in_dollars(budget_usd)}{gone}; {shows} shows what costs what. Raise {BUDGET}, or "
        "plan less"
    )
