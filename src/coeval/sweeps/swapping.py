"""Weights of a running server, replaced without a restart: ``--swap reload`` and ``--swap lora``.

A server may answer 200 and keep its old weights, or load a part of the new ones. So the new weights are
loaded, the old ones again, and the new ones again: eight greedy answers must be the same after both loads of
the new weights, other than before, and as before with the old ones. A part that no load ever replaces
escapes that: the first swap of a server is therefore compared with a cold start (`KeptServer`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

import msgspec
from yarl import URL

from coeval.core.errors import SwapDoubted, Undecodable, named
from coeval.core.foreign import decode
from coeval.core.plain import plain, shortened
from coeval.core.text import digest
from coeval.models.transport.body import WireError
from coeval.models.transport.connection import HttpReply
from coeval.models.transport.pool import RequestRoute, Wire
from coeval.sweeps.checkpoints import ADAPTER
from coeval.sweeps.sweep_settings import Swap
from coeval.sweeps.worker_files import Server

KEPT_NAME = "coeval-swapped"
"""What a kept server calls the model that it was started with; no adapter is called so."""
LINK = "checkpoint"
"""In a kept server's folder: leads to the weights that it is to load, since vLLM reloads the path that it was
started with."""
ENVIRONMENT: Mapping[Swap, Mapping[str, str]] = {
    "restart": {},
    "reload": {"VLLM_SERVER_DEV_MODE": "1"},
    "lora": {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True"},
}
"""vLLM has the requests that swap weights only where these are set."""

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
# Keys of config.json that say who wrote it, and nothing of the architecture.
_BY_WRITER = ("_name_or_path", "transformers_version")
# Files that servers read once, at their start: tokenizer, chat template, sampling defaults, code.
_AT_START = re.compile(
    r"(tokenizer|special_tokens|added_tokens|vocab|merges|chat_template|generation_config|(pre)?processor"
    r"|(image|video)_|quant|hf_quant).*|.*\.(model|tiktoken|jinja|py)"
)


def as_started(server: Server) -> Server:
    """Return a kept server as its command is filled: with a name that outlives the checkpoint, and with the
    link to its weights, or the base model of its adapter."""
    match server.swap:
        case "restart":
            return server
        case "lora":
            served = base_of(server.checkpoint) or server.checkpoint
        case "reload":
            served = str(_linked(server))
    return msgspec.structs.replace(server, checkpoint=served, name=KEPT_NAME)


def _linked(server: Server) -> Path:
    """Have the link lead to a checkpoint; a name at a hub is served as it is."""
    target = Path(server.checkpoint)
    if server.folder is None or not target.is_dir():
        return target
    link = server.folder / LINK
    made = link.with_suffix(".new")
    made.unlink(missing_ok=True)
    made.symlink_to(target)
    made.replace(link)
    return link.absolute()


def base_of(path: str) -> str | None:
    """Return the base model that an adapter's folder names; None where it is no adapter."""
    try:
        return decode((Path(path) / ADAPTER).read_bytes(), _AdapterConfig).base_model_name_or_path or None
    except (OSError, Undecodable):
        return None


class _AdapterConfig(msgspec.Struct):
    base_model_name_or_path: str = ""


def alike(before: str, after: str, swap: Swap) -> bool:
    """Whether a server of one checkpoint can hold the other: they differ in their weights only, or in their
    adapter only."""
    if swap == "lora":
        return (base_of(before) or before) == (base_of(after) or after)
    shapes = {_shape(Path(path)) for path in (before, after)}
    return len(shapes) == 1 and None not in shapes


def _shape(folder: Path) -> str | None:
    """Hash all that a server reads at its start but the weights; None where that cannot be read."""
    try:
        config = decode((folder / "config.json").read_bytes(), dict[str, Any])
        kept = sorted(
            (entry.name, entry.read_bytes()) for entry in folder.iterdir() if _AT_START.fullmatch(entry.name)
        )
    except (OSError, Undecodable):
        return None
    architecture = {name: value for name, value in config.items() if name not in _BY_WRITER}
    return digest(repr((sorted(architecture.items()), kept)))


class ServedWeights:
    """The weights of a server that is up: which checkpoint it holds, and how it gets the next one.

    ``server`` names the checkpoint that it was started for. After `settle`, ``name`` is what to ask the model
    for as, and ``said`` its answers to the canaries; None where it gives none.
    """

    def __init__(self, url: str, server: Server, key: str | None) -> None:
        self.name = KEPT_NAME
        self.said: tuple[str, ...] | None = None
        self._root = url.removesuffix("/v1")
        self._server = server
        self._headers = {
            "Content-Type": "application/json",
            **({"Authorization": f"Bearer {key}"} if key else {}),
        }
        self._adapter, self._loads = "", 0
        self._is_sglang = False

    async def settle(self) -> None:
        """Take up a server that has just come up: load its adapter, if that is what it serves, and have its
        canaries.

        Raises SwapDoubted: it does not load the adapter.
        """
        self._is_sglang = await self._has("/get_model_info")
        if self._server.swap == "lora":
            await self._load(self._server)
        try:
            self.said = await self._canaries()
        except SwapDoubted:
            self.said = None

    async def swap(self, after: Server) -> tuple[str, ...]:
        """Have the server hold another checkpoint; its answers to the canaries.

        Raises SwapDoubted: it may hold anything.
        """
        before, said = self._server, self.said
        if said is None:
            raise SwapDoubted("the server answers no plain prompt (/v1/completions), which checks a swap")
        if not alike(before.checkpoint, after.checkpoint, after.swap):
            raise SwapDoubted(f"{before.name} is gone, or differs from {after.name} in more than its weights")
        found = await self._after_load(after)
        if found == said:
            raise SwapDoubted(f"with {after.name} loaded, the server answers as {before.name} does")
        if await self._after_load(before) != said:
            raise SwapDoubted(f"with {before.name} loaded again, the server does not answer as before")
        if await self._after_load(after) != found:
            raise SwapDoubted(f"two loads of {after.name} gave different answers")
        self._server, self.said = after, found
        return found

    async def _after_load(self, server: Server) -> tuple[str, ...]:
        await self._load(server)
        return await self._canaries()

    async def _load(self, server: Server) -> None:
        if server.swap == "lora":
            await self._load_adapter(server)
        elif self._is_sglang:
            body = {"model_path": server.checkpoint, "flush_cache": True}
            await self._post("/update_weights_from_disk", body)
        else:
            _linked(server)
            await self._post("/sleep?level=2")
            await self._post("/wake_up?tags=weights")
            await self._post("/collective_rpc", {"method": "reload_weights"})
            await self._post("/wake_up?tags=kv_cache")
            await self._post("/reset_prefix_cache")

    async def _load_adapter(self, server: Server) -> None:
        above = "" if self._is_sglang else "/v1"
        if self._adapter:
            await self._post(f"{above}/unload_lora_adapter", {"lora_name": self._adapter})
        self._adapter, self.name = "", KEPT_NAME
        if base_of(server.checkpoint) is None:
            return
        # vLLM keeps prompts' prefixes by an adapter's name: under one that it has had, those of other weights
        # would be read back.
        self._loads += 1
        name = f"{server.name}.{self._loads}"
        body = {"lora_name": name, "lora_path": server.checkpoint}
        await self._post(f"{above}/load_lora_adapter", body)
        self._adapter = name
        self.name = f"{KEPT_NAME}:{name}" if self._is_sglang else name

    async def _canaries(self) -> tuple[str, ...]:
        """One after the other: answers of one batch depend on what else is in it."""
        said = []
        fixed = {"model": self.name, "max_tokens": _CANARY_TOKENS, "temperature": 0, "seed": 0}
        for prompt in CANARIES:
            content = await self._post("/v1/completions", {**fixed, "prompt": prompt})
            try:
                said += [choice.text for choice in decode(content, _CanaryReply).choices]
            except Undecodable as error:
                raise SwapDoubted(f"/v1/completions: {error}") from error
        return tuple(said)

    async def _post(self, path: str, body: Mapping[str, object] | None = None) -> bytes:
        """
        Raises SwapDoubted: the server does not do it, or says that it has not.
        """
        try:
            reply = await self._sent("POST", path, b"" if body is None else msgspec.json.encode(body))
        except (WireError, OSError) as error:
            raise SwapDoubted(f"{path} failed: {plain(named(error))}") from error
        if reply.status != 200 or not _is_success(reply.body):
            shown = plain(reply.body.decode(errors="replace"))
            raise SwapDoubted(f"{path} failed: {reply.status} {shortened(shown, _LONGEST_SAID)}")
        return reply.body

    async def _has(self, path: str) -> bool:
        with suppress(WireError, OSError):
            return (await self._sent("GET", path)).status == 200
        return False

    async def _sent(self, method: str, path: str, body: bytes | None = None) -> HttpReply:
        async with aclosing(Wire()) as wire:
            route = RequestRoute.to(method, URL(f"{self._root}{path}"), self._headers)
            return await wire.send(route, body, self._server.start_timeout_s)


class _Outcome(msgspec.Struct):
    success: bool = True


def _is_success(body: bytes) -> bool:
    """SGLang may say in a reply of status 200 that it has failed; vLLM answers in plain text."""
    try:
        return decode(body, _Outcome).success
    except Undecodable:
        return True


class _CanaryText(msgspec.Struct):
    text: str = ""


class _CanaryReply(msgspec.Struct):
    choices: list[_CanaryText] = []
