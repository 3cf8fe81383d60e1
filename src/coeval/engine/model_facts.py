"""What is known of models without asking them: what their calls cost, how quick they are, what sets them
limits. Of speeds these are rules of thumb, to be corrected by what is seen."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from coeval.core.model import ModelSpec
from coeval.core.records import Purpose, SamplingParameters
from coeval.engine.model_work import RoleModel
from coeval.engine.terms import tariff_of_roles
from coeval.models.catalog import HOSTS
from coeval.models.pacing.limits import DEFAULT_CONCURRENCY
from coeval.pricing.call_shape import AskedModel, Pricing, Speed, thinking_tokens
from coeval.pricing.estimate import EndpointPace
from coeval.pricing.price_book import PriceBook
from coeval.pricing.unknowns import Cell, ErrorSpread, Guess, ScenarioDraws, Scenarios
from coeval.simulation.prose import TypicalLengths, typical_lengths

__all__ = ["ModelFacts", "output_limit", "speed_of"]

_LIMITS = ("max_completion_tokens", "max_output_tokens", "num_predict")

_SPEED = Speed(0.8, 70.0)
# By interface; hosts of large models have some 50 to 100 tokens in a second for each request.
_SPEEDS = {
    "cerebras": Speed(0.4, 900.0),
    "groq": Speed(0.4, 300.0),
    "deepseek": Speed(1.2, 35.0),
    "huggingface": Speed(0.4, 20.0),
    "ollama": Speed(0.4, 30.0),
    "vllm": Speed(0.3, 40.0),
}
# Requests that a host takes at once, where nobody limits them.
_AT_ONCE = 64
_AT_ONCE_HERE = {"huggingface": 8, "ollama": 4}
_CONCURRENCY = ErrorSpread(shared=0.2, task=0.0, model=0.5, cell=0.0, item=0.0)
# How long a batch takes: at the least, as expected, at the most. Providers promise a day, and say one to
# four hours.
_BATCH_S = (600.0, 2 * 3600.0, 24 * 3600.0)


class ModelFacts:
    """``sent`` are the parameters that a model is asked with in its roles, by its name (see
    `tariff_of_roles`); ``is_batched`` says of a phase and a model whether its calls go as a batch;
    ``judged_by`` who is asked in a judge's place, by name."""

    def __init__(
        self,
        specs: Sequence[ModelSpec],
        sent: Mapping[str, Sequence[Mapping[str, Any]]],
        prices: PriceBook,
        is_batched: Callable[[str, str], bool],
        judged_by: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._specs = {spec.name: spec for spec in specs}
        self._prices = prices
        self._is_batched = is_batched
        self._judged_by = judged_by
        self.tariffs = {
            spec.name: tariff_of_roles(spec, sent.get(spec.name) or ({},), prices)
            for spec in specs
            if spec.interface in HOSTS
        }

    @property
    def typical(self) -> dict[str, TypicalLengths]:
        """How long the texts of simulated models are, which is known of them, by name."""
        return {
            name: typical_lengths(float(spec.options.get("verbosity", 1.0)))
            for name, spec in self._specs.items()
            if spec.interface == "simulated"
        }

    def asked_in(self, phase: Purpose, role_model: RoleModel) -> AskedModel:
        """How the calls of a model in a phase are priced and timed."""
        name, sampling = role_model.name, role_model.sampling
        spec = self._specs[self._judged_by.get(name, name) if role_model.role == "judge" else name]
        batched = self._is_batched(phase, name)
        share = self._prices.table.batch_multipliers.get(spec.interface, 1.0) if batched else 1.0
        return AskedModel(
            name=name,
            role=role_model.role,
            pricing=Pricing(spec.interface, self.tariffs.get(spec.name), share, batched),
            speed=speed_of(spec),
            thinking=0 if spec.interface == "simulated" else thinking_tokens(spec.known_as, sampling),
            limit=output_limit(sampling),
            caches=spec.prompt_caching,
        )

    def speed(self, name: str) -> Speed:
        """How quick a model is expected to be."""
        return speed_of(self._specs[name])

    def paces(self, draws: ScenarioDraws) -> dict[str, EndpointPace]:
        """Of each model's endpoint; models that are asked at the same one share it."""
        endpoints: dict[str, list[ModelSpec]] = {}
        for spec in self._specs.values():
            endpoints.setdefault(_endpoint(spec), []).append(spec)
        guesses = {Cell("", name): Guess(_at_once(specs)) for name, specs in endpoints.items()}
        drawn = draws.means("concurrency", guesses, _CONCURRENCY)
        return {
            spec.name: _pace(name, specs, drawn[Cell("", name)])
            for name, specs in endpoints.items()
            for spec in specs
        }

    def batch_s(self, phases: Sequence[str], draws: ScenarioDraws) -> dict[str, Scenarios]:
        """How long the batches of each phase take."""
        least, expected, most = map(float, np.log(_BATCH_S))
        return {phase: np.exp(draws.between(least, expected, most)) for phase in phases}


def speed_of(spec: ModelSpec) -> Speed:
    """How quick a model is expected to be."""
    if spec.interface == "simulated":
        pace = float(spec.options.get("tokens_per_s", 0.0))
        return Speed(float(spec.options.get("latency_s", 0.0)), pace or None)
    return _SPEEDS.get(spec.interface, _SPEED)


def output_limit(sampling: SamplingParameters) -> int | None:
    """The most tokens that a reply may have, by whichever name it is set."""
    named = (sampling.rest.get(name) for name in _LIMITS)
    limits = [limit for limit in (sampling.max_tokens, *named) if isinstance(limit, int) and limit > 0]
    return min(limits, default=None)


def _endpoint(spec: ModelSpec) -> str:
    """What tells endpoints apart, as far as a configuration tells it: the address and who asks."""
    own = spec.name if spec.interface == "simulated" else ""
    return "\0".join((spec.interface, spec.base_url or "", spec.account or "", spec.access_key or "", own))


def _at_once(specs: Sequence[ModelSpec]) -> float:
    if specs[0].interface == "simulated":
        return float(_ceiling(specs))
    return float(min(_AT_ONCE_HERE.get(specs[0].interface, _AT_ONCE), _ceiling(specs)))


def _ceiling(specs: Sequence[ModelSpec]) -> int:
    return max(
        (s.max_concurrency for s in specs if s.max_concurrency is not None), default=DEFAULT_CONCURRENCY
    )


def _pace(name: str, specs: Sequence[ModelSpec], concurrency: Scenarios) -> EndpointPace:
    requests = [s.requests_per_minute for s in specs if s.requests_per_minute is not None]
    tokens = [s.tokens_per_minute for s in specs if s.tokens_per_minute is not None]
    return EndpointPace(
        name, np.minimum(concurrency, _ceiling(specs)), min(requests, default=None), min(tokens, default=None)
    )
