"""Resolve `interface: auto` to hosts that the user has credentials for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import chain
from types import MappingProxyType
from typing import NamedTuple

from coeval.core.errors import KeyMissing, UsageError
from coeval.engine.terms import find_common_tariff
from coeval.models.catalog import HOSTS, Host
from coeval.pipeline.config.schema import Config, ModelConfig
from coeval.pipeline.config.values import ParameterMap
from coeval.pricing.price_book import PriceBook
from coeval.pricing.pricing_file import Route, choose_route
from coeval.pricing.tariff import Tariff


class ResolvedConfig(NamedTuple):
    """A configuration without ``auto``, and a sentence on each model that had it."""

    config: Config
    choices: tuple[str, ...] = ()


def resolve_models(
    config: Config,
    has_credential: Callable[[str], bool],
    prices: PriceBook,
    previous_routes: Mapping[str, Route] = MappingProxyType({}),
) -> ResolvedConfig:
    """Bind every ``auto`` model to the cheapest host with a credential.

    ``has_credential`` answers for an interface. ``previous_routes``, by model, are kept by a run that is
    continued even if another host is cheaper now, since its answers would differ.

    Raises UsageError: some models have no host; all are named. KeyMissing: they lack only a credential.
    """
    models: list[ModelConfig] = []
    choices: list[str] = []
    problems: list[UsageError] = []
    for model in config.models:
        if model.interface != "auto":
            models.append(model)
            continue
        try:
            bound, choice = _choose_host(model, has_credential, prices, previous_routes.get(model.name))
        except UsageError as error:
            problems.append(type(error)(f"model '{model.name}': {error}"))
            continue
        models.append(bound)
        choices.append(f"model {model.name}: interface auto is {choice}")
    if problems:
        only_keys = all(isinstance(problem, KeyMissing) for problem in problems)
        raise (KeyMissing if only_keys else UsageError)("\n".join(map(str, problems)))
    return ResolvedConfig(config.model_copy(update={"models": models}) if choices else config, tuple(choices))


def list_routes(config: Config) -> dict[str, Route]:
    """Return each model's host, and its id there."""
    return {model.name: Route(model.interface, model.spec().model) for model in config.models}


def _choose_host(
    model: ModelConfig, has_credential: Callable[[str], bool], prices: PriceBook, previous_route: Route | None
) -> tuple[ModelConfig, str]:
    """Return the model at its previous or cheapest host, and that choice in words."""
    variables = {name: _name_credential_variables(host) for name, host in HOSTS.items()}

    def find_tariff(route: Route) -> Tariff | None:
        moved = model.at_host(route.interface, route.model)
        return find_common_tariff(moved.spec(), list_role_parameters(moved), prices)

    choice = choose_route(model.spec().model, has_credential, prices.table, find_tariff, variables)
    if previous_route is not None and previous_route in [route for route, _ in choice.others]:
        words = f"{previous_route.interface}, as {previous_route.model} (as before)"
        return model.at_host(previous_route.interface, previous_route.model), words
    return model.at_host(choice.route.interface, choice.route.model), str(choice)


def list_role_parameters(model: ModelConfig) -> list[ParameterMap]:
    """List, for each role of a model, the parameters beyond those that all hosts know."""
    return [model.sampling(role).rest for role in model.roles]


def _name_credential_variables(host: Host) -> str:
    names = host.key_env or tuple(chain.from_iterable(host.settings.values()))
    return " or ".join(names) if host.key_env else ", ".join(names)
