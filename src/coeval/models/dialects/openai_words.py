"""The typed parameters in the words of each host of OpenAI's shape, and those that it has no word for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NoReturn

from coeval.core.errors import BadRequest
from coeval.core.model import ModelSpec
from coeval.core.records import Message, Request, SamplingParameters
from coeval.models.catalog import Host
from coeval.models.dialects.dialect import FieldRejected
from coeval.models.dialects.first_turn import in_first_turn
from coeval.models.dialects.memo import Memo
from coeval.models.dialects.openai_families import NOT_AT_ALL, ModelTraits, SystemRole

__all__ = ["OUR_NAMES", "draw", "said_by"]

OUR_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "temperature": "temperature",
        "top_p": "top_p",
        "top_k": "top_k",
        "max_tokens": "max_tokens",
        "max_completion_tokens": "max_tokens",
        "stop": "stop",
        "seed": "seed",
        "random_seed": "seed",
        "reasoning_effort": "reasoning_effort",
        "reasoning": "reasoning_effort",
        "thinking": "reasoning_effort",
        "thinking_budget": "thinking_budget",
        "metadata": "metadata",
        "logprobs": "logprobs",
        "top_logprobs": "logprobs",
    }
)
"""What we send, by the hosts' names for it; how an error speaks of it."""


def draw(body: dict[str, Any], request: Request, spec: ModelSpec, host: Host, traits: ModelTraits) -> None:
    """Put in the typed parameters, by the names of the host.

    Raises
    ------
    BadRequest
        one is set that the host, or this model of it, has nothing for; where it may go, FieldRejected.
    """
    seed = request.seed
    body.update(_words(request.sampling, spec, host, traits, request.top_logprobs, seed is None))
    if seed is not None:
        body[host.seed_field] = seed


def _worded(
    sampling: SamplingParameters,
    spec: ModelSpec,
    host: Host,
    traits: ModelTraits,
    top_logprobs: int | None,
    own_seed: bool,
) -> dict[str, Any]:
    body: dict[str, Any] = {}
    if sampling.temperature is not None:
        body["temperature"] = sampling.temperature
    if sampling.top_p is not None:
        body["top_p"] = sampling.top_p
    if sampling.top_k is not None:
        body["top_k"] = sampling.top_k
    if sampling.max_tokens is not None:
        body[host.output_limit_field(spec.known_as)] = sampling.max_tokens
    if sampling.stop is not None:
        body["stop"] = sampling.stop
    if not own_seed or sampling.seed is not None:
        body[host.seed_field] = sampling.seed  # or that of the request, which is put in its place
    if top_logprobs is not None:
        body["logprobs"] = True
        body["top_logprobs"] = top_logprobs
    if sampling.reasoning_effort is not None or sampling.thinking_budget is not None:
        body.update(_reasoning(sampling.reasoning_effort, sampling.thinking_budget, host))
    if not (host.any_shaped and spec.base_url is not None):
        if not host.lacks.isdisjoint(body):
            _refuse_lacking(body, host)
        if sampling.stop is not None and host.most_stops is not None:
            _hold_to_stops(sampling.stop, host.most_stops, host)
    if traits.takes or traits.reasoning_takes:
        reasons = sampling.reasoning_effort not in (None, "none")
        _hold_to_model(body, {**traits.takes, **(traits.reasoning_takes if reasons else {})}, spec.known_as)
    return body


_words = Memo(_worded)
"""A model is asked in few ways, each of them very often."""


def _reasoning(effort: str | None, budget: int | None, host: Host) -> dict[str, Any]:
    """How much to reason, as the host is told."""
    if budget is not None and host.reasons_by != "reasoning":
        raise FieldRejected(
            f"{host.name} has nothing for thinking_budget; leave it out", field="thinking_budget"
        )
    match host.reasons_by:
        case "reasoning":
            if effort is not None and budget is not None:
                raise BadRequest(f"{host.name} takes reasoning_effort or thinking_budget, not both")
            return {"reasoning": {"max_tokens": budget} if budget else {"effort": effort or "none"}}
        case "thinking" if effort == "none":
            return {"thinking": {"type": "disabled"}}
        case "thinking":
            return {"thinking": {"type": "enabled"}, "reasoning_effort": effort}
        case _:
            return {"reasoning_effort": effort}


def _refuse_lacking(body: Mapping[str, Any], host: Host) -> NoReturn:
    name = next(name for name in sorted(host.lacks) if name in body)
    raise FieldRejected(
        f"{host.name} has nothing for {name}; leave it out, or set it in extra_body where the host has it "
        "after all",
        field=name,
    )


def _hold_to_stops(stop: Sequence[str], most: int, host: Host) -> None:
    if len(stop) > most:
        raise FieldRejected(f"{host.name} takes at most {most} texts in stop, not {len(stop)}", field="stop")


def _hold_to_model(body: Mapping[str, Any], takes: Mapping[str, Any], model: str) -> None:
    for name, value in takes.items():
        if name in body and body[name] != value:
            only = "" if value is NOT_AT_ALL else f" other than {value}"
            raise FieldRejected(
                f"{model} takes no {name}{only}; leave {name} out of the model's parameters", field=name
            )


def said_by(messages: Sequence[Message], system: SystemRole) -> Sequence[Any]:
    """The messages with the system prompt, if there is one, said by whoever the model listens to."""
    if all(message.role != "system" for message in messages):
        return messages
    if system == "developer":
        return [
            {"role": "developer", "content": message.content} if message.role == "system" else message
            for message in messages
        ]
    return in_first_turn(messages)
