"""OpenAI's chat completions, and the hosts that speak them, most of them in words of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import msgspec
from conformance.interface import SECRET, Behaviour, Heard, Interface, Said
from fakes.openai_chat import CONTENT_FILTER, Answer, Fault, Requested
from fakes.openai_hosts import RULES, ShapedHost, shaped_host

_NAMES = {
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "max_tokens": "max_tokens",
    "max_completion_tokens": "max_tokens",
    "stop": "stop",
    "seed": "seed",
    "reasoning_effort": "reasoning_effort",
}
_ENDINGS = {"stop": "stop", "length": "length", "stop sequence": "stop"}


@dataclass(frozen=True, kw_only=True, repr=False)
class OpenAIInterface(Interface):
    name: str = "openai"
    model: str = "gpt-4o-mini"
    env: Mapping[str, str] = field(default_factory=lambda: {"OPENAI_API_KEY": SECRET})
    refuses: frozenset[str] = frozenset({"thinking_budget"})
    logprobs: bool = True
    schema_refusals: Sequence[str] = (
        "'response_format' of type 'json_schema' is not supported with this model.",
    )

    def heard(self, requested: Requested) -> Heard:
        body = requested.body
        system = [message["content"] for message in body["messages"] if message["role"] == "system"]
        turns = [(m["role"], m["content"]) for m in body["messages"] if m["role"] != "system"]
        form = body.get("response_format")
        return Heard(
            model=body["model"],
            turns=turns,
            system="\n".join(system) if system else None,
            sampling={_NAMES[name]: value for name, value in body.items() if name in _NAMES},
            schema=form["json_schema"]["schema"] if form is not None else None,
            top_logprobs=body.get("top_logprobs"),
            key=requested.headers.get("Authorization", "").removeprefix("Bearer "),
        )

    def says(self, said: Said) -> Behaviour:
        message: dict[str, Any] = {}
        if said.reasoning is not None:
            message["reasoning_content"] = said.reasoning
        body: dict[str, Any] = {}
        if said.logprobs:
            message |= {"role": "assistant", "content": said.text}
            logprobs = {"content": [_token(*token) for token in said.logprobs]}
            body["choices"] = [
                {"index": 0, "message": message, "logprobs": logprobs, "finish_reason": "stop"}
            ]
        return Answer(
            said.text,
            finish_reason=_ENDINGS[said.ends],
            usage=(said.usage.input_tokens, said.usage.output_tokens),
            message=message,
            body=body,
        )

    def fails(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> Behaviour:
        return Fault(status, message, headers=headers or {})

    def refusals(self, words: str) -> Sequence[Behaviour]:
        return [Answer(None, message={"refusal": words})]


def _token(token: str, logprob: float) -> dict[str, Any]:
    own = {"token": token, "logprob": logprob, "bytes": list(token.encode())}
    return {**own, "top_logprobs": [own]}


Thinks: TypeAlias = Literal["reasoning_content", "reasoning", "parts"]


@dataclass(frozen=True, kw_only=True, repr=False)
class ShapedInterface(OpenAIInterface):
    """One of them: ``rules`` names its fake, ``thinks`` how it hands over reasoning."""

    model: str = "some-model"
    rules: str = ""
    thinks: Thinks = "reasoning"
    knows_filters: bool = False

    def __repr__(self) -> str:
        return self.rules or self.name

    def serve(self, *script: Behaviour) -> AbstractAsyncContextManager[ShapedHost]:
        return shaped_host(self.rules or self.name, *script, keys=[SECRET])

    def heard(self, requested: Requested) -> Heard:
        body = dict(requested.body)
        rules = RULES[self.rules or self.name]
        if "random_seed" in body:
            body["seed"] = body.pop("random_seed")
        reasoning = body.pop("reasoning", {})
        if "effort" in reasoning:
            body["reasoning_effort"] = reasoning["effort"]
        form = body.get("response_format")
        if form == {"type": "json_object"}:
            body["response_format"] = None
        heard = super().heard(requested._replace(body=body))
        sampling = dict(heard.sampling)
        if "max_tokens" in reasoning:
            sampling["thinking_budget"] = reasoning["max_tokens"]
        key = requested.headers.get(rules.header, "").removeprefix(rules.before)
        return msgspec.structs.replace(heard, sampling=sampling, key=key)

    def says(self, said: Said) -> Behaviour:
        answer = super().says(msgspec.structs.replace(said, reasoning=None))
        assert isinstance(answer, Answer)
        message = dict(answer.message)
        if said.reasoning is not None and self.thinks == "parts":
            thinking = [{"type": "text", "text": said.reasoning}]
            parts = [{"type": "thinking", "thinking": thinking}, {"type": "text", "text": said.text}]
            message["content"] = parts
        elif said.reasoning is not None:
            message[self.thinks] = said.reasoning
        usage = self.counts(said)
        return replace(answer, message=message, body={**answer.body, "usage": usage})

    def counts(self, said: Said) -> dict[str, Any]:
        """The usage as the host writes it."""
        usage = said.usage
        reported: dict[str, Any] = {
            "prompt_tokens": usage.input_tokens,
            "completion_tokens": usage.output_tokens,
            "total_tokens": usage.tokens,
        }
        prompt = {
            name: getattr(usage, name)
            for name in ("cached_tokens", "cache_write_tokens")
            if getattr(usage, name) is not msgspec.UNSET
        }
        if prompt:
            reported["prompt_tokens_details"] = prompt
        if usage.reasoning_tokens is not msgspec.UNSET:
            reported["completion_tokens_details"] = {"reasoning_tokens": usage.reasoning_tokens}
        return reported

    def filters(self) -> Sequence[Behaviour]:
        withheld = Answer("", finish_reason="content_filter")
        return [CONTENT_FILTER, withheld] if self.knows_filters else [withheld]


@dataclass(frozen=True, kw_only=True, repr=False)
class DeepSeekInterface(ShapedInterface):
    def counts(self, said: Said) -> dict[str, Any]:
        reported = super().counts(said)
        prompt = reported.pop("prompt_tokens_details", None)
        if prompt is not None:
            hit = prompt["cached_tokens"]
            reported |= {
                "prompt_cache_hit_tokens": hit,
                "prompt_cache_miss_tokens": said.usage.input_tokens - hit,
            }
        return reported

    def filters(self) -> Sequence[Behaviour]:
        return [Fault(400, "Content Exists Risk"), *super().filters()]


def _key(name: str, **more: str) -> Mapping[str, str]:
    return {name: SECRET, **more}


_NO_TOP_K = frozenset({"top_k", "thinking_budget"})
_NO_BUDGET = frozenset({"thinking_budget"})
_CACHED = frozenset({"cached_tokens"})
_BOTH = _CACHED | {"reasoning_tokens"}

SHAPED = (
    ShapedInterface(
        model="gpt-4o-mini",
        hosts_refusal=frozenset({"top_k"}),
        tells=_BOTH | {"cache_write_tokens"},
        thinks="reasoning_content",
        knows_filters=True,
    ),
    ShapedInterface(
        name="azure_openai",
        env=_key("AZURE_OPENAI_API_KEY"),
        options={"api_version": "2025-04-01-preview"},
        refuses=_NO_TOP_K,
        tells=_BOTH,
        thinks="reasoning_content",
        knows_filters=True,
    ),
    ShapedInterface(
        name="azure_openai",
        rules="azure_openai v1",
        env=_key("AZURE_OPENAI_API_KEY"),
        refuses=_NO_TOP_K,
        tells=_BOTH,
        thinks="reasoning_content",
        knows_filters=True,
    ),
    ShapedInterface(
        name="azure_ai",
        env=_key("AZURE_AI_API_KEY"),
        refuses=_NO_BUDGET,
        thinks="reasoning_content",
        knows_filters=True,
    ),
    ShapedInterface(
        name="openrouter",
        env=_key("OPENROUTER_API_KEY"),
        refuses=frozenset(),
        tells=_BOTH | {"cache_write_tokens"},
    ),
    ShapedInterface(
        name="groq",
        model="openai/gpt-oss-20b",
        env=_key("GROQ_API_KEY"),
        refuses=_NO_TOP_K,
        tells=_BOTH,
        logprobs=False,
    ),
    DeepSeekInterface(
        name="deepseek",
        env=_key("DEEPSEEK_API_KEY"),
        refuses=_NO_TOP_K | {"seed"},
        tells=_BOTH,
        thinks="reasoning_content",
        schema=False,
    ),
    ShapedInterface(name="mistral", env=_key("MISTRAL_API_KEY"), refuses=_NO_BUDGET, thinks="parts"),
    ShapedInterface(
        name="deepinfra",
        env=_key("DEEPINFRA_API_KEY"),
        refuses=_NO_BUDGET,
        tells=_CACHED,
        thinks="reasoning_content",
        schema=False,
    ),
    ShapedInterface(name="cerebras", env=_key("CEREBRAS_API_KEY"), refuses=_NO_TOP_K, tells=_BOTH),
    ShapedInterface(name="huggingface_api", env=_key("HF_TOKEN"), refuses=_NO_TOP_K),
    ShapedInterface(name="ollama", env=_key("OLLAMA_API_KEY"), refuses=_NO_TOP_K),
    ShapedInterface(name="vllm", env=_key("VLLM_API_KEY"), refuses=_NO_BUDGET, tells=_CACHED),
)
