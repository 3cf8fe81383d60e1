"""OpenAI's chat completions: what all hosts that speak them have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from conformance.interface import SECRET, Behaviour, Heard, Interface, Said
from fakes.openai_chat import Answer, Asked, Fault

__all__ = ["OpenAIInterface"]

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

    def heard(self, asked: Asked) -> Heard:
        body = asked.body
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
            key=asked.headers.get("Authorization", "").removeprefix("Bearer "),
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
