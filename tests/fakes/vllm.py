"""A vLLM server as vLLM 0.32 answers (`tests/engines` holds it against a real one): its window, and what it
says to requests that do not fit."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import msgspec
from aiohttp import web

from fakes.openai_chat import Answer, Behaviour, Server
from fakes.scripted import Raw, Refusal, serving

_VLLM_FIELDS = frozenset({"top_k", "min_p", "chat_template_kwargs", "seed"})


@dataclass
class VllmServer(Server):
    """``window`` is its ``--max-model-len``, which its list names if ``lists_window``. A prompt has as many
    tokens as words."""

    window: int = 4096
    lists_window: bool = True

    async def list_models(self, request: web.Request) -> web.StreamResponse:
        self.lists += 1
        window = self.window if self.lists_window else None
        base = {"id": "tiny", "object": "model", "owned_by": "vllm", "root": "/ckpt/tiny", "parent": None}
        adapter = {**base, "id": "polite", "root": "/ckpt/adapter", "parent": "tiny", "max_model_len": None}
        return web.json_response({"object": "list", "data": [{**base, "max_model_len": window}, adapter]})

    def check(self, request: web.Request, content: bytes, body: dict[str, Any]) -> None:
        super().check(request, content, body)
        most, prompt = body.get("max_tokens", 1), _prompt_tokens(body)
        if most > self.window:
            raise Refusal(
                _bad_request(
                    f"max_tokens={most} cannot be greater than max_model_len={self.window}. Please request "
                    f"fewer output tokens. (parameter=max_tokens, value={most})",
                    "max_tokens",
                )
            )
        if prompt >= self.window:
            raise Refusal(
                _bad_request(
                    f"This model's maximum context length is {self.window} tokens. However, your prompt "
                    f"contains at least {prompt} input tokens. Please reduce the length of the input prompt.",
                    "input_tokens",
                )
            )

    def answer_to(self, body: dict[str, Any]) -> Behaviour:
        prompt = _prompt_tokens(body)
        if prompt + body.get("max_tokens", 1) > self.window:  # shortened without a word
            return Answer("a b c", finish_reason="length", usage=(prompt, self.window - prompt))
        return super().answer_to(body)

    def behave(self, behaviour: Any, body: dict[str, Any]) -> web.Response:
        if isinstance(behaviour, Raw):
            return web.Response(body=behaviour.body, status=behaviour.status, content_type="application/json")
        return super().behave(behaviour, body)


def _prompt_tokens(body: dict[str, Any]) -> int:
    return sum(len(message["content"].split()) for message in body["messages"])


def _bad_request(message: str, param: str) -> Raw:
    problem = {"message": message, "type": "BadRequestError", "param": param, "code": 400}
    return Raw(msgspec.json.encode({"error": problem}), status=400)


@asynccontextmanager
async def vllm(window: int, *, lists_window: bool = True) -> AsyncIterator[VllmServer]:
    """Serve ``tiny``, and its adapter ``polite``."""
    server = VllmServer(deque(), extra_fields=_VLLM_FIELDS, window=window, lists_window=lists_window)
    async with serving(server, "/v1"):
        yield server
