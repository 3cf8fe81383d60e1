"""Every host that speaks OpenAI's chat completions, each as strict as its own documentation: fields, limits,
keys, the shape of its errors.

Read in November 2026: the providers' references, and the types of their own clients (groq,
cerebras-cloud-sdk, mistralai, openrouter, azure-ai-inference, huggingface_hub).
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

from aiohttp import web

from fakes.openai_chat import Answer, Fault, completion_of
from fakes.openai_request import Misfit, misfit_of
from fakes.scripted import Behaviour, Refusal, ScriptedHost, serving


@dataclass(frozen=True)
class Reported:
    """An error before it has a host's shape."""

    status: int
    message: str
    code: str | None = None
    param: str | None = None
    kind: str = "invalid_request_error"


_SHARED = frozenset(
    {
        *("model", "messages", "temperature", "top_p", "max_tokens", "stop", "stream", "stream_options"),
        *("frequency_penalty", "presence_penalty", "response_format", "tools", "tool_choice"),
    }
)
_OPENAI = _SHARED | {
    *(
        "logit_bias",
        "logprobs",
        "max_completion_tokens",
        "metadata",
        "modalities",
        "n",
        "parallel_tool_calls",
    ),
    *("prediction", "prompt_cache_key", "reasoning_effort", "safety_identifier", "seed", "service_tier"),
    *("store", "top_logprobs", "user", "verbosity"),
}


def openai_error(reported: Reported) -> dict[str, Any]:
    problem = {
        "message": reported.message,
        "type": reported.kind,
        "param": reported.param,
        "code": reported.code,
    }
    return {"error": problem}


def azure_error(reported: Reported) -> dict[str, Any]:
    """Azure has a code where OpenAI has none: the status, or a word of its own."""
    error: dict[str, Any] = {"code": reported.code or str(reported.status), "message": reported.message}
    if reported.code == "content_filter":
        verdicts = {"violence": {"filtered": True, "severity": "high"}, "hate": {"filtered": False}}
        inner = {"code": "ResponsibleAIPolicyViolation", "content_filter_result": verdicts}
        error |= {"param": "prompt", "type": None, "status": 400, "innererror": inner}
    return {"error": error}


def openrouter_error(reported: Reported) -> dict[str, Any]:
    return {"error": {"code": reported.status, "message": reported.message}, "user_id": "user_1"}


def mistral_error(reported: Reported) -> dict[str, Any]:
    """Lists of places for what is not of the right form; a bare message for the rest."""
    if reported.status == 422:
        place = {
            "type": "extra_forbidden",
            "loc": ["body", reported.param],
            "msg": reported.message,
            "input": 1,
        }
        return {"detail": [place]}
    return {
        "object": "error",
        "message": reported.message,
        "type": reported.kind,
        "param": reported.param,
        "code": None,
    }


def flat_error(reported: Reported) -> dict[str, Any]:
    return {
        "message": reported.message,
        "type": reported.kind,
        "param": reported.param,
        "code": reported.code or "wrong_api_format",
    }


def text_error(reported: Reported) -> dict[str, Any]:
    return {"error": reported.message, "error_type": "validation"}


def detail_error(reported: Reported) -> dict[str, Any]:
    return {"detail": {"error": reported.message}}


def vllm_error(reported: Reported) -> dict[str, Any]:
    return {
        "error": {
            "message": reported.message,
            "type": "BadRequestError",
            "param": None,
            "code": reported.status,
        }
    }


def _as_openai(name: str) -> Reported:
    return Reported(400, f"Unrecognized request argument supplied: {name}", param=None)


def _as_groq(name: str) -> Reported:
    return Reported(400, f"property '{name}' is unsupported")


def _as_fastapi(name: str) -> Reported:
    return Reported(422, "Extra inputs are not permitted", param=name)


def _as_cerebras(name: str) -> Reported:
    return Reported(400, f"property '{name}' is unsupported", param=name)


def _as_deepseek(name: str) -> Reported:
    return Reported(422, f"Failed to deserialize the JSON body into the target type: unknown field `{name}`")


def _most_stops(body: Mapping[str, Any], most: int) -> Misfit | None:
    stop = body.get("stop", "")
    if not isinstance(stop, str) and not all(isinstance(text, str) for text in stop):
        return Misfit("Invalid type for 'stop': expected a text or a list of texts.", param="stop")
    if isinstance(stop, list) and len(stop) > most:
        return Misfit(f"Invalid 'stop': array too long. Expected at most {most}.", param="stop")
    return None


def _groq(body: Mapping[str, Any]) -> Misfit | None:
    model = str(body.get("model"))
    for name in ("logprobs", "top_logprobs", "logit_bias"):
        if name in body:
            return Misfit(f"`{name}` is not supported with this model", param=name)
    if "reasoning_effort" in body and not re.match(r"openai/gpt-oss|qwen/qwen3", model):
        return Misfit("`reasoning_effort` is not supported with this model", param="reasoning_effort")
    form = body.get("response_format") or {}
    if form.get("type") == "json_schema":
        if not re.match(r"openai/gpt-oss|moonshotai/kimi-k2|meta-llama/llama-4", model):
            return Misfit("This model does not support response format `json_schema`.")
        if form["json_schema"].get("strict") and not model.startswith("openai/gpt-oss"):
            return Misfit("json_schema with strict: true is not supported with this model.")
    return _most_stops(body, 4)


def _deepseek(body: Mapping[str, Any]) -> Misfit | None:
    if (body.get("response_format") or {}).get("type") == "json_schema":
        return Misfit("This response_format type is unavailable now")
    thinking = body.get("thinking")
    if thinking is not None and thinking not in ({"type": "enabled"}, {"type": "disabled"}):
        return Misfit("thinking must be enabled or disabled")
    if body["model"] == "deepseek-reasoner" and ("logprobs" in body or "top_logprobs" in body):
        return Misfit("deepseek-reasoner does not support the parameter `logprobs`", param="logprobs")
    return _most_stops(body, 16)


def _openrouter(body: Mapping[str, Any]) -> Misfit | None:
    reasoning = body.get("reasoning")
    if reasoning is not None:
        if not set(reasoning) <= {"effort", "max_tokens", "exclude", "enabled", "summary"}:
            return Misfit("Invalid reasoning")
        if "effort" in reasoning and "max_tokens" in reasoning:
            return Misfit('Only one of "reasoning.effort" and "reasoning.max_tokens" can be specified')
    return _most_stops(body, 4)


def _any_stops(body: Mapping[str, Any]) -> Misfit | None:
    return _most_stops(body, 1024)


def _stops(most: int) -> Callable[[Mapping[str, Any]], Misfit | None]:
    return lambda body: _most_stops(body, most)


@dataclass(frozen=True, kw_only=True)
class Rules:
    """One host. ``path`` is asked for, with ``query``; the key stands in ``header`` after ``before``;
    ``headers`` have to come too. ``fields`` are those that a request may have, ``own`` those of them that are
    not OpenAI's; ``check`` is what it documents besides."""

    path: str = "/v1/chat/completions"
    query: Mapping[str, str] | None = None
    header: str = "Authorization"
    before: str = "Bearer "
    fields: frozenset[str]
    own: frozenset[str] = frozenset()
    check: Callable[[Mapping[str, Any]], Misfit | None] = _any_stops
    unknown: Callable[[str], Reported] = _as_openai
    error: Callable[[Reported], dict[str, Any]] = openai_error
    passes_extra: bool = False


RULES: Mapping[str, Rules] = {
    "openai": Rules(fields=_OPENAI, check=_stops(4)),
    "azure_openai": Rules(
        path="/openai/deployments/{model}/chat/completions",
        query={"api-version": "2025-04-01-preview"},
        header="api-key",
        before="",
        fields=_OPENAI | {"data_sources"},
        check=_stops(4),
        error=azure_error,
    ),
    "azure_openai v1": Rules(
        path="/openai/v1/chat/completions",
        query={},
        header="api-key",
        before="",
        fields=_OPENAI,
        check=_stops(4),
        error=azure_error,
    ),
    "azure_ai": Rules(
        path="/models/chat/completions",
        query={"api-version": "2024-05-01-preview"},
        header="api-key",
        before="",
        fields=_SHARED | {"seed", "modalities"},
        error=azure_error,
        passes_extra=True,
    ),
    "openrouter": Rules(
        path="/api/v1/chat/completions",
        fields=_OPENAI
        | {"reasoning", "provider", "models", "plugins", "top_k", "top_a", "min_p", "route"}
        | {"repetition_penalty", "session_id"},
        own=frozenset({"reasoning", "top_k", "top_a", "min_p", "repetition_penalty"}),
        check=_openrouter,
        error=openrouter_error,
    ),
    "groq": Rules(
        path="/openai/v1/chat/completions",
        fields=_SHARED
        | {"include_reasoning", "reasoning_format", "reasoning_effort", "seed", "service_tier", "user", "n"}
        | {"logprobs", "top_logprobs", "logit_bias", "max_completion_tokens", "metadata", "store"}
        | {"parallel_tool_calls"},
        own=frozenset({"include_reasoning", "reasoning_format"}),
        check=_groq,
        unknown=_as_groq,
    ),
    "deepseek": Rules(
        fields=_SHARED | {"thinking", "reasoning_effort", "logprobs", "top_logprobs"},
        own=frozenset({"thinking"}),
        check=_deepseek,
        unknown=_as_deepseek,
    ),
    "mistral": Rules(
        fields=(_SHARED - {"stream_options"})
        | {"random_seed", "metadata", "min_tokens", "repetition_penalty", "top_k", "logprobs", "top_logprobs"}
        | {"prompt_logprobs", "top_prompt_logprobs", "n", "prediction", "parallel_tool_calls", "safe_prompt"}
        | {"reasoning_effort", "prompt_mode", "guardrails", "prompt_cache_key", "service_tier"},
        own=frozenset(
            {"random_seed", "min_tokens", "repetition_penalty", "top_k", "safe_prompt", "prompt_mode"}
        ),
        unknown=_as_fastapi,
        error=mistral_error,
    ),
    "deepinfra": Rules(
        path="/v1/openai/chat/completions",
        fields=_SHARED
        | {"top_k", "min_p", "repetition_penalty", "seed", "n", "user", "reasoning_effort", "logprobs"}
        | {"top_logprobs", "max_completion_tokens"},
        own=frozenset({"top_k", "min_p", "repetition_penalty"}),
        check=_stops(16),
        unknown=_as_fastapi,
        error=detail_error,
    ),
    "cerebras": Rules(
        fields=_SHARED
        | {"clear_thinking", "disable_reasoning", "logit_bias", "logprobs", "max_completion_tokens", "n"}
        | {"min_completion_tokens", "min_tokens", "parallel_tool_calls", "prediction", "prompt_cache_key"}
        | {"reasoning_effort", "reasoning_format", "seed", "service_tier", "top_logprobs", "user"},
        own=frozenset({"clear_thinking", "disable_reasoning", "min_tokens", "reasoning_format"}),
        check=_stops(4),
        unknown=_as_cerebras,
        error=flat_error,
    ),
    "huggingface_api": Rules(
        fields=_SHARED
        | {"logit_bias", "logprobs", "top_logprobs", "n", "seed", "tool_prompt"}
        | {"reasoning_effort"},
        own=frozenset({"tool_prompt"}),
        error=text_error,
    ),
    "ollama": Rules(
        fields=_SHARED | {"seed", "reasoning_effort", "reasoning", "logprobs", "top_logprobs"},
        own=frozenset({"reasoning"}),
    ),
    "vllm": Rules(
        fields=_OPENAI
        | {"top_k", "min_p", "repetition_penalty", "min_tokens", "ignore_eos", "stop_token_ids"}
        | {"chat_template_kwargs", "guided_json", "structured_outputs", "skip_special_tokens"},
        own=frozenset({"top_k", "min_p", "repetition_penalty", "min_tokens", "ignore_eos"}),
        error=vllm_error,
    ),
}
"""By interface; a host with two APIs has two."""


@dataclass
class ShapedHost(ScriptedHost):
    """A running host; ``keys`` are those that it knows (None: any)."""

    rules: Rules = RULES["openai"]
    keys: frozenset[str] | None = None
    models: tuple[str, ...] = ("some-model",)

    usual: ClassVar[Behaviour] = Answer()

    def routes(self) -> list[web.RouteDef]:
        listed = self.rules.path.removesuffix("/chat/completions") + "/models"
        return [web.get(listed, self._list), *super().routes()]

    async def _list(self, request: web.Request) -> web.Response:
        if (fault := self.no_access(request)) is not None:
            return self.behave(fault, {})
        models = [{"id": model, "object": "model", "created": 1, "owned_by": "us"} for model in self.models]
        return web.json_response({"object": "list", "data": models})

    def check(self, request: web.Request, content: bytes, body: dict[str, Any]) -> None:
        passes = request.headers.get("extra-parameters") == "pass-through"
        fault = self.no_access(request) or self._misplaced(request, body) or self.misfit(body, passes=passes)
        if fault is not None:
            raise Refusal(fault)

    def no_access(self, request: web.Request) -> Reported | None:
        """Why a request is turned away for its key."""
        key = request.headers.get(self.rules.header, "")
        if not key.startswith(self.rules.before):
            return Reported(401, f"no {self.rules.header} with a key")
        if self.keys is not None and key.removeprefix(self.rules.before) not in self.keys:
            return Reported(401, "Incorrect API key provided.", "invalid_api_key")
        return None

    def _misplaced(self, request: web.Request, body: dict[str, Any]) -> Reported | None:
        model = str(body.get("model"))
        if request.path != self.rules.path.replace("{model}", model):
            return Reported(404, "Resource not found")
        if self.rules.query is not None and dict(request.query) != self.rules.query:
            return Reported(404, "Resource not found")
        return None

    def misfit(self, body: dict[str, Any], *, passes: bool = False) -> Reported | None:
        """What is wrong with the fields of a request; ``passes``: it asks to have unknown ones passed on."""
        rules = self.rules
        extra = rules.passes_extra and passes
        unknown = next((name for name in body if name not in rules.fields and not extra), None)
        if unknown is not None:
            return rules.unknown(unknown)
        plain = {name: value for name, value in body.items() if name in rules.fields - rules.own - {"stop"}}
        misfit = misfit_of(plain) or rules.check(body)
        return misfit and Reported(400, misfit.message, misfit.code, misfit.param)

    def no_json(self) -> Behaviour:
        return Reported(400, "We could not parse the JSON body of your request.")

    def behave(self, behaviour: Behaviour, body: dict[str, Any]) -> web.Response:
        match behaviour:
            case Answer():
                return web.json_response(completion_of(body, behaviour), headers=behaviour.headers)
            case Fault():
                reported = Reported(
                    behaviour.status, behaviour.message, behaviour.code, behaviour.param, behaviour.kind
                )
                return self._error(reported, behaviour)
            case Reported():
                return self._error(behaviour)
            case _:
                raise TypeError(f"no behaviour of an OpenAI-shaped host: {behaviour!r}")

    def _error(self, reported: Reported, fault: Fault | None = None) -> web.Response:
        headers = fault.headers if fault is not None else {}
        return web.json_response(self.rules.error(reported), status=reported.status, headers=headers)


@asynccontextmanager
async def shaped_host(
    name: str, *script: Behaviour, keys: Iterable[str] | None = None
) -> AsyncIterator[ShapedHost]:
    """Serve a host of `RULES` on loopback; its URL is the base URL that its interface is redirected to."""
    rules = RULES[name]
    host = ShapedHost(deque(script), rules=rules, keys=None if keys is None else frozenset(keys))
    base = "" if name.startswith("azure") else rules.path.removesuffix("/chat/completions")
    async with serving(host, base):
        yield host
