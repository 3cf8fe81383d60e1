"""Terms of a session's models, ceilings and token prices; and what is known of models without asking them."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import msgspec

from coeval.core.entry_points import import_object
from coeval.core.errors import UsageError
from coeval.core.figures import dollars, dollars_beyond_limit, limit_in_dollars
from coeval.core.foreign import convert
from coeval.core.model import ModelSpec, max_tokens_of_all_answers
from coeval.core.options import BUDGET, max_cost
from coeval.core.records import SamplingParameters
from coeval.core.text import join_names
from coeval.engine.model_work import RoleModel
from coeval.models.catalog import HOSTS, OWN_CODE
from coeval.models.metering.account_file import ModelAccount, Spent, Terms, describe_uncertain
from coeval.models.pacing.limits import DEFAULT_CONCURRENCY
from coeval.pricing.estimate import EndpointPace, PricedModel
from coeval.pricing.lengths import RULE_OF_THUMB, Span, exact
from coeval.pricing.price_book import FREE_HERE, Offer, PriceBook
from coeval.pricing.pricing_file import LOCAL_FILE
from coeval.pricing.tariff import Rates, Tariff, make_cost_bound_unless_free, make_pricer, scale_tariff

RoleParameters: TypeAlias = Mapping[str, Any]
"""What a model is sent in one role: its parameters by name."""

# Fields of a request by which some providers' prices differ.
_PRICED_FIELDS = ("service_tier", "speed")


def make_terms(
    specs: Iterable[ModelSpec],
    limits: Mapping[str, Terms],
    prices: PriceBook,
    sent: Mapping[str, Sequence[RoleParameters]] = MappingProxyType({}),
) -> dict[str, Terms]:
    """Add its prices to each model's ``limits``, by name. ``sent``: its parameters in each role. Raises
    UsageError: the pricing file cannot be used, or another package's host has invalid prices."""
    prices.refuse_unknown_interfaces(HOSTS, HOSTS.own)
    terms = {}
    for spec in specs:
        tariff = find_common_tariff(spec, sent.get(spec.name) or ({},), prices)
        own = limits.get(spec.name, Terms())
        if tariff is not None:
            own = own._replace(
                price=make_pricer(tariff), priced_by=tariff.source, most=make_cost_bound_unless_free(tariff)
            )
            if HOSTS[spec.interface].batch:
                in_batch = tariff
                if tariff is not FREE_HERE:  # the prices are not read for it
                    in_batch = scale_tariff(tariff, prices.table.batch_multipliers.get(spec.interface, 1.0))
                own = own._replace(
                    batch_price=make_pricer(in_batch), batch_most=make_cost_bound_unless_free(in_batch)
                )
        terms[spec.name] = own
    return terms


def warn_undiscounted_batches(
    specs: Iterable[ModelSpec], batched: Container[str], terms: Mapping[str, Terms], prices: PriceBook
) -> Iterator[str]:
    """Warn about each of the ``batched`` models without a known batch discount."""
    for spec in specs:
        costs = terms[spec.name].most is not None
        if spec.name in batched and costs and spec.interface not in prices.table.batch_multipliers:
            yield (
                f"{spec.name} uses batch jobs at the live price, as no batch price is known for the "
                f"interface {spec.interface}; if batches cost less there, set it in {LOCAL_FILE}: "
                f"`batch_multipliers: {{{spec.interface}: 0.5}}`"
            )


def warn_models_counted_free(
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
            f"the budget counts these models as free: {join_names(free)}, served at a private address by an "
            "interface for your own servers. Costs that a gateway there reports are booked; if it "
            f"reports none, set a price in {LOCAL_FILE}"
        )


def find_common_tariff(spec: ModelSpec, sent: Sequence[RoleParameters], prices: PriceBook) -> Tariff | None:
    """Find a model's price when ``sent`` these parameters in its roles, since some prices depend on them.
    None where unknown, or where roles differ in price."""
    offers = {make_offer(spec, parameters) for parameters in sent}
    return find_tariff(offers.pop(), prices) if len(offers) == 1 else None


def make_offer(spec: ModelSpec, sent: RoleParameters = MappingProxyType({})) -> Offer:
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


def find_tariff(offer: Offer, prices: PriceBook) -> Tariff | None:
    """Find a model's price where it is served, including the host's own; None where unknown."""
    tariff = prices.find_tariff(offer)
    host = HOSTS[offer.interface]
    if tariff is not None or not host.prices:
        return tariff
    price_of = import_object(host.prices, host.name)
    rates = price_of(offer.lookup_name) if callable(price_of) else price_of
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


def require_prices_and_bounds(
    requested: Iterable[RequestedUnder], terms: Mapping[str, Terms], budget_usd: float | None
) -> None:
    """Check that every model under a budget has a price and a bound on its answers. Raises UsageError: nobody
    knows the price of a model with a budget, its own or that of all, or nothing bounds its answers."""
    unpriced: dict[str, str] = {}
    unbounded: dict[str, str] = {}
    for spec, sampling, _ in requested:
        of_model = terms[spec.name]
        if budget_usd is None and of_model.max_cost_usd is None:
            continue
        key = str(BUDGET if budget_usd is not None else max_cost(spec.name))
        if of_model.price is None:
            unpriced[spec.name] = key
        elif of_model.most is not None and max_tokens_of_all_answers(sampling, spec) is None:
            unbounded[spec.name] = key
    problems = []
    if unpriced:
        problems.append(
            f"{join_names(dict.fromkeys(unpriced.values()))} cannot be enforced without a known price for "
            f"{join_names(unpriced)}. Set it under overrides in Config/provider_pricing.yaml "
            "(docs/prices.md)"
        )
    if unbounded:
        problems.append(
            f"{join_names(dict.fromkeys(unbounded.values()))} cannot be enforced: nothing bounds the answers "
            f"of {join_names(unbounded)}. Set parameters.max_tokens to 1 or more, in each of their roles"
        )
    if problems:
        raise UsageError("\n".join(problems))


def require_budget(
    least_usd: float, budget_usd: float, accounts: Collection[ModelAccount], shows: str
) -> None:
    """Check that the remaining work fits the budget at its least cost; ``shows`` names the option that shows
    costs. No process may be at work on ``accounts``. Raises UsageError: what is to be done costs more at the
    least than is left of the budget."""
    spent = Spent.add_up(accounts, at_work=False)
    if spent.usd + least_usd <= budget_usd:
        return
    needed, gone = dollars(least_usd), ""
    if spent.usd:
        needed, so_far = dollars_beyond_limit(budget_usd, least_usd, spent.usd)
        gone = f", and {so_far} of it is spent{describe_uncertain(spent.perhaps_usd)}"
    raise UsageError(
        f"the run does not fit into its budget: the remaining work costs at least {needed}, and {BUDGET} "
        f"is {limit_in_dollars(budget_usd)}{gone}; {shows} breaks the cost down. Raise {BUDGET}, or "
        "plan less"
    )


# --- What is known of models without asking them: cost, speed, how much they think, what limits them

_LIMITS = ("max_completion_tokens", "max_output_tokens", "num_predict")


class _Speed(msgspec.Struct, frozen=True):
    """Seconds to the first token, and tokens in a second from then on (None: at once)."""

    first_s: float
    tokens_per_s: float | None


class _RulesOfThumb(msgspec.Struct, frozen=True):
    """``rules_of_thumb.toml``: by interface, or else ``usual``; thinking in tokens."""

    speeds: dict[str, _Speed]
    requests_at_once: dict[str, float]
    thinking_by_effort: dict[str, int]
    thinking_by_family: dict[str, int]


_RULES = convert(
    tomllib.loads(Path(__file__).with_name("rules_of_thumb.toml").read_text(encoding="utf-8")), _RulesOfThumb
)
# Accounts of the lowest tiers take some 25 requests of a large model at once, higher ones some 160.
_TIMES_AT_ONCE = 2.5


class ModelFacts:
    """What is known of models before they are called: prices, speed, thinking, limits. ``sent`` are a model's
    parameters in each role (`find_common_tariff`); ``is_batched(phase, model)``: calls go as a batch."""

    def __init__(
        self,
        specs: Sequence[ModelSpec],
        sent: Mapping[str, Sequence[RoleParameters]],
        prices: PriceBook,
        is_batched: Callable[[str, str], bool],
    ) -> None:
        """Look up the tariff and the endpoint of each model."""
        self._specs = {spec.name: spec for spec in specs}
        self._prices = prices
        self._is_batched = is_batched
        self._tariffs = {
            spec.name: find_common_tariff(spec, sent.get(spec.name) or ({},), prices)
            for spec in specs
            if spec.interface in HOSTS
        }
        at: dict[str, list[ModelSpec]] = {}
        for spec in specs:
            at.setdefault(_endpoint_key(spec), []).append(spec)
        self._endpoints = {
            spec.name: _make_endpoint_pace(name, specs_here)
            for name, specs_here in at.items()
            for spec in specs_here
        }

    def set_own_code_prices(self, mean_usd: Callable[[str], float]) -> None:
        """Price calls of the user's code at the mean of the costs that it reported."""
        for name, spec in self._specs.items():
            host = HOSTS.get(spec.interface)
            free = self._tariffs.get(name) is FREE_HERE
            if host is not None and host.dialect == OWN_CODE and free and (usd := mean_usd(name)):
                rates = Rates(input_usd_per_mtok=0.0, output_usd_per_mtok=0.0, usd_per_request=usd)
                self._tariffs[name] = Tariff(rates=rates, source="the mean of reported costs")

    def price_model(self, phase: str, role_model: RoleModel) -> PricedModel:
        """Describe how the calls of a model in a phase are priced and timed."""
        name, sampling = role_model.called_name, role_model.sampling
        spec = self._specs[name]
        batched = self._is_batched(phase, name)
        share = self._prices.table.batch_multipliers.get(spec.interface, 1.0) if batched else 1.0
        speed = _guess_speed(spec)
        return PricedModel(
            name=name,
            recorded_as=role_model.name,
            role=role_model.role,
            provider=spec.interface,
            endpoint=self._endpoints[spec.name],
            tariff=self._tariffs.get(spec.name),
            share=share,
            batched=batched,
            limit=find_output_limit(sampling),
            caches=spec.prompt_caching,
            first_s=speed.first_s,
            tokens_per_s=speed.tokens_per_s,
            thinking=RULE_OF_THUMB.span_around(_guess_thinking_tokens(spec, sampling)),
        )


def find_output_limit(sampling: SamplingParameters) -> int | None:
    """Return the most tokens that a reply may have, by whichever name it is set."""
    named = (sampling.rest.get(name) for name in _LIMITS)
    limits = [limit for limit in (sampling.max_tokens, *named) if isinstance(limit, int) and limit > 0]
    return min(limits, default=None)


def _guess_thinking_tokens(spec: ModelSpec, sampling: SamplingParameters) -> int:
    if spec.interface == "simulated":
        return 0
    if sampling.thinking_budget is not None:
        return max(0, min(sampling.thinking_budget // 2, 2000))
    if sampling.reasoning_effort is not None:
        efforts = _RULES.thinking_by_effort
        return efforts.get(sampling.reasoning_effort, efforts["usual"])
    model = spec.lookup_name
    families = _RULES.thinking_by_family.items()
    return next((n for family, n in families if re.match(family, model, re.IGNORECASE)), 0)


def _guess_speed(spec: ModelSpec) -> _Speed:
    if spec.interface == "simulated":
        pace = float(spec.options.get("tokens_per_s", 0.0))
        return _Speed(float(spec.options.get("latency_s", 0.0)), pace or None)
    return _RULES.speeds.get(spec.interface, _RULES.speeds["usual"])


def _endpoint_key(spec: ModelSpec) -> str:
    """Return what tells endpoints apart in a configuration: the address, and the credential."""
    own = spec.name if spec.interface == "simulated" else ""
    return "\0".join((spec.interface, spec.base_url or "", spec.account or "", spec.access_key or "", own))


def _make_endpoint_pace(name: str, specs: Sequence[ModelSpec]) -> EndpointPace:
    interface = specs[0].interface
    own = [spec.max_concurrency for spec in specs if spec.max_concurrency is not None]
    ceiling = float(max(own, default=DEFAULT_CONCURRENCY))
    usual = _RULES.requests_at_once.get(interface, _RULES.requests_at_once["usual"])
    at_once = Span(usual, usual * _TIMES_AT_ONCE, usual / _TIMES_AT_ONCE)
    requests = [spec.requests_per_minute for spec in specs if spec.requests_per_minute is not None]
    tokens = [spec.tokens_per_minute for spec in specs if spec.tokens_per_minute is not None]
    return EndpointPace(
        name,
        exact(ceiling) if interface == "simulated" else at_once.cap_at(ceiling),
        min(requests, default=None),
        min(tokens, default=None),
    )
