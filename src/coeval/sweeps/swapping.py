"""LoRA adapters of a running server, replaced without a restart: ``--swap lora``.

A server may answer 200 and keep its old adapter, or a part of it. So eight greedy answers must change with
every swap, and be those of a cold start after the first swap of every server (`KeptServer`).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import aclosing, suppress
from pathlib import Path

import msgspec
from yarl import URL

from coeval.core.errors import SwapDoubted, Undecodable, describe_error
from coeval.core.foreign import decode
from coeval.core.plain import cut_middle, escape_line
from coeval.models.transport.body import WireError
from coeval.models.transport.connection import HttpReply
from coeval.models.transport.pool import RequestRoute, Wire
from coeval.sweeps.checkpoints import ADAPTER
from coeval.sweeps.worker_files import Server

KEPT_NAME = "coeval-swapped"
"""What a kept server calls its base model; no adapter is called so."""
ENVIRONMENT: Mapping[str, str] = {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True"}
"""vLLM has the requests that load adapters only where this is set."""

CANARIES = (
    "The first thing I noticed when I opened the door was",
    "Here is a short recipe for someone who has never cooked:",
    "def median(numbers):\n",
    "Dear neighbours, I am writing to you because",
    "Q: Why do the seasons change?\nA:",
    "The three most common mistakes in statistics are",
    "Il était une fois, dans un petit village,",
    "Let x be a number such that 3x + 7 = 40. Then",
)
# Tokens of one canary: 8 × 32 show the change of a few optimizer steps, and take seconds.
_CANARY_TOKENS = 32
# Of what a server says, in a message.
_LONGEST_SAID = 200


def with_base_model_of_adapter(server: Server) -> Server:
    """Return a server with what it starts with: one that serves adapters starts with their base model."""
    if not server.serves_adapters:
        return server
    return msgspec.structs.replace(
        server, checkpoint=read_base_model(server.checkpoint) or server.checkpoint, name=KEPT_NAME
    )


def read_base_model(path: str) -> str | None:
    """Read the base model that an adapter's folder names; None if it is no adapter."""
    try:
        return decode((Path(path) / ADAPTER).read_bytes(), _AdapterConfig).base_model_name_or_path or None
    except (OSError, Undecodable):
        return None


class _AdapterConfig(msgspec.Struct):
    base_model_name_or_path: str = ""


class ServedAdapter:
    """The adapter of a running server, and how to load the next one. ``server`` names the checkpoint it
    holds: an adapter, or the base model. After `load_first`, ``name`` is the model's name in requests, and
    ``answers`` those to the canaries, None if it gives none. ``loads`` counts adapters; ``is_proven``: a
    swap gave the answers of a cold start."""

    def __init__(self, url: str, server: Server, key: str | None) -> None:
        self.name = KEPT_NAME
        self.server = server
        self.answers: tuple[str, ...] | None = None
        self.loads = 0
        self.is_proven = False
        self._root = url.removesuffix("/v1")
        authorization = {"Authorization": f"Bearer {key}"} if key else {}
        self._headers = {"Content-Type": "application/json", **authorization}
        self._adapter = ""
        self._is_sglang = False

    async def load_first(self) -> None:
        """Load the adapter of a server that has just come up, and send it the canaries. Raises SwapDoubted:
        it does not load the adapter."""
        with suppress(WireError, OSError):
            self._is_sglang = (await self._send("GET", "/get_model_info")).status == 200
        await self._replace_adapter(self.server)
        with suppress(SwapDoubted):
            self.answers = await self._ask_canaries()

    async def swap(self, after: Server) -> tuple[str, ...]:
        """Load another checkpoint into the server; return its answers to the canaries. Raises SwapDoubted: it
        may hold anything."""
        before = self.server
        if self.answers is None:
            raise SwapDoubted(
                "the server does not answer plain prompts (/v1/completions), which check a swap"
            )
        if with_base_model_of_adapter(before).checkpoint != with_base_model_of_adapter(after).checkpoint:
            raise SwapDoubted(f"{after.name} has a different base model from {before.name}")
        await self._replace_adapter(after)
        answers = await self._ask_canaries()
        if answers == self.answers:
            raise SwapDoubted(f"with {after.name} loaded, the server answers as {before.name} does")
        self.server, self.answers = after, answers
        return answers

    async def _replace_adapter(self, server: Server) -> None:
        """Unload the server's adapter, and load another; none for a base model."""
        above = "" if self._is_sglang else "/v1"
        if self._adapter:
            await self._post(f"{above}/unload_lora_adapter", {"lora_name": self._adapter})
        self._adapter, self.name = "", KEPT_NAME
        if read_base_model(server.checkpoint) is None:
            return
        # vLLM keeps prompts' prefixes by an adapter's name: under one that it has had, those of other weights
        # would be read back.
        self.loads += 1
        name = f"{server.name}.{self.loads}"
        body = {"lora_name": name, "lora_path": server.checkpoint}
        await self._post(f"{above}/load_lora_adapter", body)
        self._adapter = name
        self.name = f"{KEPT_NAME}:{name}" if self._is_sglang else name

    async def _ask_canaries(self) -> tuple[str, ...]:
        """Send the canaries one after the other: answers of one batch depend on what else is in it."""
        answers = []
        fixed = {"model": self.name, "max_tokens": _CANARY_TOKENS, "temperature": 0, "seed": 0}
        for prompt in CANARIES:
            content = await self._post("/v1/completions", {**fixed, "prompt": prompt})
            try:
                answers += [choice.text for choice in decode(content, _CanaryReply).choices]
            except Undecodable as error:
                raise SwapDoubted(f"/v1/completions: {error}") from error
        return tuple(answers)

    async def _post(self, path: str, body: Mapping[str, object]) -> bytes:
        """Post JSON; raise SwapDoubted if the server fails, or says that it did."""
        try:
            reply = await self._send("POST", path, msgspec.json.encode(body))
        except (WireError, OSError) as error:
            raise SwapDoubted(f"{path} failed: {escape_line(describe_error(error))}") from error
        if reply.status != 200 or not _is_success(reply.body):
            shown = escape_line(reply.body.decode(errors="replace"))
            raise SwapDoubted(f"{path} failed: {reply.status} {cut_middle(shown, _LONGEST_SAID)}")
        return reply.body

    async def _send(self, method: str, path: str, body: bytes | None = None) -> HttpReply:
        async with aclosing(Wire()) as wire:
            route = RequestRoute.make(method, URL(f"{self._root}{path}"), self._headers)
            return await wire.send(route, body, self.server.start_timeout_s)


class _Outcome(msgspec.Struct):
    success: bool = True


def _is_success(body: bytes) -> bool:
    """Check the reply's ``success``: SGLang may report a failure with status 200; vLLM answers in plain
    text."""
    try:
        return decode(body, _Outcome).success
    except Undecodable:
        return True


class _CanaryText(msgspec.Struct):
    text: str = ""


class _CanaryReply(msgspec.Struct):
    choices: list[_CanaryText] = []
