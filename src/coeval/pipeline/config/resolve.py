"""`interface: auto` put in terms of the hosts that the user has credentials for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import chain
from types import MappingProxyType
from typing import Any, NamedTuple

from coeval.core.errors import KeyMissing, UsageError
from coeval.engine.terms import tariff_of_roles
from coeval.models.catalog import HOSTS, Host
from coeval.pipeline.config.schema import Config, ModelConfig
from coeval.pricing.price_book import PriceBook
from coeval.pricing.pricing_file import Route, choose_route
from coeval.pricing.tariff import Tariff


class Resolved(NamedTuple):
    """A configuration without ``auto``, and a sentence on each model that had it."""

    config: Config
    choices: tuple[str, ...] = ()


def resolve_models(
    config: Config,
    has_credential: Callable[[str], bool],
    prices: PriceBook,
    before: Mapping[str, Route] = MappingProxyType({}),
) -> Resolved:
    """Bind every ``auto`` model to the cheapest host with a credential.

    ``has_credential`` answers for an interface. ``before`` are the routes of a run that goes on, by model: it
    stays with them, whatever has become cheaper since, for answers of another host would be others.

    Raises UsageError: some model has no host; all such models are named. KeyMissing: they lack nothing but a
    credential.
    """
    models: list[ModelConfig] = []
    choices: list[str] = []
    problems: list[UsageError] = []
    for model in config.models:
        if model.interface != "auto":
            models.append(model)
            continue
        try:
            bound, choice = _bound(model, has_credential, prices, before.get(model.name))
        except UsageError as error:
            problems.append(type(error)(f"model '{model.name}': {error}"))
            continue
        models.append(bound)
        choices.append(f"model {model.name}: interface auto is {choice}")
    if problems:
        only_keys = all(isinstance(problem, KeyMissing) for problem in problems)
        raise (KeyMissing if only_keys else UsageError)("\n".join(map(str, problems)))
    return Resolved(config.model_copy(update={"models": models}) if choices else config, tuple(choices))


def routes_of(config: Config) -> dict[str, Route]:
    """Where the models of a configuration are asked, and by which id."""
    return {model.name: Route(model.interface, model.spec().model) for model in config.models}


def _bound(
    model: ModelConfig, has_credential: Callable[[str], bool], prices: PriceBook, before: Route | None
) -> tuple[ModelConfig, str]:
    variables = {name: _variables(host) for name, host in HOSTS.items()}
    choice = choose_route(
        model.spec().model,
        has_credential,
        prices.table,
        lambda route: _tariff(_at(model, route), prices),
        variables,
    )
    if before is not None and before in [route for route, _ in choice.others]:
        return _at(model, before), f"{before.interface}, as {before.model} (as before)"
    return _at(model, choice.route), str(choice)


def sent_in_roles(model: ModelConfig) -> list[dict[str, Any]]:
    """What a model is asked with in each of its roles, beside the parameters that all hosts know."""
    return [model.sampling(role).rest for role in model.roles]


def _tariff(model: ModelConfig, prices: PriceBook) -> Tariff | None:
    return tariff_of_roles(model.spec(), sent_in_roles(model), prices)


def _at(model: ModelConfig, route: Route) -> ModelConfig:
    """The model at one of its hosts."""
    return model.requested_as(route.model, interface=route.interface)


def _variables(host: Host) -> str:
    names = host.key_env or tuple(chain.from_iterable(host.settings.values()))
    return " or ".join(names) if host.key_env else ", ".join(names)
