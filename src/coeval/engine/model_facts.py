"""What is known of models without asking them: what their calls cost, how quick they are, how much they think
and what limits them. Speeds and thinking are rules of thumb, which records and samples correct."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from coeval.core.model import ModelSpec
from coeval.core.records import SamplingParameters
from coeval.engine.model_work import RoleModel
from coeval.engine.terms import tariff_of_roles
from coeval.models.catalog import HOSTS, OWN_CODE
from coeval.models.pacing.limits import DEFAULT_CONCURRENCY
from coeval.pricing.estimate import EndpointPace, RequestedModel
from coeval.pricing.lengths import RULE_OF_THUMB, Span, exact
from coeval.pricing.price_book import FREE_HERE, PriceBook
from coeval.pricing.tariff import Rates, Tariff

_LIMITS = ("max_completion_tokens", "max_output_tokens", "num_predict")


class _Speed(NamedTuple):
    """Seconds to the first token, and tokens in a second from then on (None: at once)."""

    first_s: float
    tokens_per_s: float | None


_SPEED = _Speed(0.8, 70.0)
# By interface; hosts of large models have some 50 to 100 tokens in a second for each request.
_SPEEDS = {
    "cerebras": _Speed(0.4, 900.0),
    "groq": _Speed(0.4, 300.0),
    "deepseek": _Speed(1.2, 35.0),
    "huggingface": _Speed(0.4, 20.0),
    "ollama": _Speed(0.4, 30.0),
    "vllm": _Speed(0.3, 40.0),
}
# Requests that a host takes at once where nobody limits them: accounts of the lowest tiers take some 25 of a
# large model, higher ones some 160.
_AT_ONCE, _TIMES_AT_ONCE = 64, 2.5
_AT_ONCE_HERE = {"huggingface": 8, "ollama": 4}

# Tokens that models think for a question of a paragraph. Whether a family thinks unless told otherwise is
# taken from its own pages; how much is a rule of thumb.
_BY_EFFORT = {"none": 0, "minimal": 40, "low": 200, "medium": 500, "high": 1400, "xhigh": 3000, "max": 4000}
# An effort that is not in the table: as for medium.
_USUALLY = 500
# Start of a model's id → tokens, the first that fits; others think only where they are told to.
_FAMILIES = {
    r"(.*/)?(ft:)?(o[1-9]|gpt-[5-9](?!.*chat))": 450,
    r"(.*/)?gpt-oss": 250,
    r"(.*/)?gemini-(2\.5|3)[\d.]*-flash-lite": 0,
    r"(.*/)?gemini-(2\.5|[3-9])[\d.]*-flash": 280,
    r"(.*/)?gemini-(2\.5|[3-9])": 700,
    r"(.*[/.])?deepseek-(r1|reasoner)": 800,
    r"(.*/)?(qwq|qwen3(?!.*instruct)|.*thinking)": 700,
    r"(.*/)?(magistral|grok-4(?!.*non-reasoning))": 500,
}


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
        self._tariffs = {
            spec.name: tariff_of_roles(spec, sent.get(spec.name) or ({},), prices)
            for spec in specs
            if spec.interface in HOSTS
        }
        at: dict[str, list[ModelSpec]] = {}
        for spec in specs:
            at.setdefault(_address(spec), []).append(spec)
        self._endpoints = {spec.name: _endpoint(name, of) for name, of in at.items() for spec in of}

    def own_code_costs(self, mean_usd: Callable[[str], float]) -> None:
        """Price calls of the user's code by what they have cost in the mean, where they said so."""
        for name, spec in self._specs.items():
            host = HOSTS.get(spec.interface)
            free = self._tariffs.get(name) is FREE_HERE
            if host is not None and host.dialect == OWN_CODE and free and (usd := mean_usd(name)):
                rates = Rates(input_usd_per_mtok=0.0, output_usd_per_mtok=0.0, usd_per_request=usd)
                self._tariffs[name] = Tariff(rates=rates, source="the mean of reported costs")

    def requested_in(self, phase: str, role_model: RoleModel) -> RequestedModel:
        """Say how the calls of a model in a phase are priced and timed."""
        name, sampling = role_model.asked, role_model.sampling
        spec = self._specs[self._judged_by.get(name, name) if role_model.role == "judge" else name]
        batched = self._is_batched(phase, name)
        share = self._prices.table.batch_multipliers.get(spec.interface, 1.0) if batched else 1.0
        speed = _speed(spec)
        return RequestedModel(
            name=name,
            player=role_model.name,
            role=role_model.role,
            provider=spec.interface,
            endpoint=self._endpoints[spec.name],
            tariff=self._tariffs.get(spec.name),
            share=share,
            batched=batched,
            limit=output_limit(sampling),
            caches=spec.prompt_caching,
            first_s=speed.first_s,
            tokens_per_s=speed.tokens_per_s,
            thinking=RULE_OF_THUMB.about(_thinking_tokens(spec, sampling)),
        )


def output_limit(sampling: SamplingParameters) -> int | None:
    """Return the most tokens that a reply may have, by whichever name it is set."""
    named = (sampling.rest.get(name) for name in _LIMITS)
    limits = [limit for limit in (sampling.max_tokens, *named) if isinstance(limit, int) and limit > 0]
    return min(limits, default=None)


def _thinking_tokens(spec: ModelSpec, sampling: SamplingParameters) -> int:
    if spec.interface == "simulated":
        return 0
    if sampling.thinking_budget is not None:
        return max(0, min(sampling.thinking_budget // 2, 2000))
    if sampling.reasoning_effort is not None:
        return _BY_EFFORT.get(sampling.reasoning_effort, _USUALLY)
    model = spec.known_as
    return next((n for family, n in _FAMILIES.items() if re.match(family, model, re.IGNORECASE)), 0)


def _speed(spec: ModelSpec) -> _Speed:
    if spec.interface == "simulated":
        pace = float(spec.options.get("tokens_per_s", 0.0))
        return _Speed(float(spec.options.get("latency_s", 0.0)), pace or None)
    return _SPEEDS.get(spec.interface, _SPEED)


def _address(spec: ModelSpec) -> str:
    """What tells endpoints apart, as far as a configuration tells it: the address and who asks."""
    own = spec.name if spec.interface == "simulated" else ""
    return "\0".join((spec.interface, spec.base_url or "", spec.account or "", spec.access_key or "", own))


def _endpoint(name: str, specs: Sequence[ModelSpec]) -> EndpointPace:
    interface = specs[0].interface
    own = [spec.max_concurrency for spec in specs if spec.max_concurrency is not None]
    ceiling = float(max(own, default=DEFAULT_CONCURRENCY))
    usual = float(_AT_ONCE_HERE.get(interface, _AT_ONCE))
    at_once = Span(usual, usual * _TIMES_AT_ONCE, usual / _TIMES_AT_ONCE)
    requests = [spec.requests_per_minute for spec in specs if spec.requests_per_minute is not None]
    tokens = [spec.tokens_per_minute for spec in specs if spec.tokens_per_minute is not None]
    return EndpointPace(
        name,
        exact(ceiling) if interface == "simulated" else at_once.up_to(ceiling),
        min(requests, default=None),
        min(tokens, default=None),
    )
