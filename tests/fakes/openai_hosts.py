"""Every host that speaks OpenAI's chat completions, each as strict as its own documentation."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

from aiohttp import web

from fakes.openai_chat import Answer, Fault, completion_of
from fakes.openai_request import misfit_of
from fakes.openai_rules import RULES, Rules, Told
from fakes.scripted import Behaviour, Refusal, ScriptedHost, serving

__all__ = ["ShapedHost", "shaped_host"]


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

    def no_access(self, request: web.Request) -> Told | None:
        """Why a request is turned away for its key."""
        key = request.headers.get(self.rules.header, "")
        if not key.startswith(self.rules.before):
            return Told(401, f"no {self.rules.header} with a key")
        if self.keys is not None and key.removeprefix(self.rules.before) not in self.keys:
            return Told(401, "Incorrect API key provided.", "invalid_api_key")
        return None

    def _misplaced(self, request: web.Request, body: dict[str, Any]) -> Told | None:
        model = str(body.get("model"))
        if request.path != self.rules.path.replace("{model}", model):
            return Told(404, "Resource not found")
        if self.rules.query is not None and dict(request.query) != self.rules.query:
            return Told(404, "Resource not found")
        return None

    def misfit(self, body: dict[str, Any], *, passes: bool = False) -> Told | None:
        """What is wrong with the fields of a request; ``passes``: it asks to have unknown ones passed on."""
        rules = self.rules
        extra = rules.passes_extra and passes
        unknown = next((name for name in body if name not in rules.fields and not extra), None)
        if unknown is not None:
            return rules.unknown(unknown)
        plain = {name: value for name, value in body.items() if name in rules.fields - rules.own - {"stop"}}
        misfit = misfit_of(plain) or rules.check(body)
        return misfit and Told(400, misfit.message, misfit.code, misfit.param)

    def no_json(self) -> Behaviour:
        return Told(400, "We could not parse the JSON body of your request.")

    def behave(self, behaviour: Behaviour, body: dict[str, Any]) -> web.Response:
        match behaviour:
            case Answer():
                return web.json_response(completion_of(body, behaviour), headers=behaviour.headers)
            case Fault():
                told = Told(
                    behaviour.status, behaviour.message, behaviour.code, behaviour.param, behaviour.kind
                )
                return self._error(told, behaviour)
            case Told():
                return self._error(behaviour)
            case _:
                raise TypeError(f"no behaviour of an OpenAI-shaped host: {behaviour!r}")

    def _error(self, told: Told, fault: Fault | None = None) -> web.Response:
        headers = fault.headers if fault is not None else {}
        return web.json_response(self.rules.error(told), status=told.status, headers=headers)


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
