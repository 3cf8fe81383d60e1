"""A host that speaks Google's generateContent: strict about requests, and faulty on demand.

What it accepts and answers follows the Gemini API's reference (v1beta, whose fields v1 has by now too).
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar
from urllib.parse import unquote

from aiohttp import web

from fakes.gemini_request import misfit_of
from fakes.scripted import Behaviour, Refusal, ScriptedHost, serving

__all__ = ["Answer", "Blocked", "Fault", "GeminiHost", "fake", "info", "quota", "retry_in"]

STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


@dataclass(frozen=True)
class Answer:
    """A good answer. ``usage`` is prompt and answer; ``thought_tokens`` and ``cached`` are told where set,
    and ``logprobs`` are pairs of a token and its log-probability."""

    text: str | None = "ok"
    finish_reason: str = "STOP"
    usage: tuple[int, int] = (11, 3)
    thoughts: str | None = None
    thought_tokens: int | None = None
    cached: int | None = None
    logprobs: Sequence[tuple[str, float]] = ()
    candidate: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Blocked:
    """A prompt that is not answered."""

    reason: str = "SAFETY"


@dataclass(frozen=True)
class Fault:
    """An error in Google's shape; ``details`` are those of google.rpc."""

    code: int
    message: str = "something went wrong"
    status: str | None = None
    details: Sequence[Mapping[str, Any]] = ()
    headers: Mapping[str, str] = field(default_factory=dict)


def info(reason: str) -> Mapping[str, Any]:
    return {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": reason,
        "domain": "googleapis.com",
        "metadata": {"service": "generativelanguage.googleapis.com"},
    }


def retry_in(delay: str) -> Mapping[str, Any]:
    return {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay}


def quota(*ids: str, value: str = "50") -> Mapping[str, Any]:
    metric = "generativelanguage.googleapis.com/generate_content_free_tier_requests"
    dimensions = {"location": "global", "model": "gemini-2.5-flash"}
    named = [
        {"quotaMetric": metric, "quotaId": name, "quotaDimensions": dimensions, "quotaValue": value}
        for name in ids
    ]
    return {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": named}


NO_KEY = Fault(403, "Method doesn't allow unregistered callers (callers without established identity).")
WRONG_KEY = Fault(400, "API key not valid. Please pass a valid API key.", details=[info("API_KEY_INVALID")])


@dataclass
class GeminiHost(ScriptedHost):
    """The Gemini API; ``keys`` and ``models`` are those that are known (None: any). ``listed`` are the models
    of its list, two a page."""

    keys: frozenset[str] | None = None
    models: frozenset[str] | None = None
    listed: Sequence[Mapping[str, Any]] = ()

    usual: ClassVar[Behaviour] = Answer()
    paths: ClassVar[str] = r"/v1(beta)?/models/(?P<model>[\w.-]+):generateContent"

    def routes(self) -> list[web.RouteDef]:
        return [*super().routes(), web.get("/v1beta/models", self.list_models)]

    def no_json(self) -> Behaviour:
        return Fault(400, "Invalid JSON payload received. Unexpected token.")

    def check(self, request: web.Request, content: bytes, body: dict[str, Any]) -> None:
        found = re.fullmatch(self.paths, unquote(request.raw_path))
        if found is None:
            raise Refusal(Fault(404, "The requested URL was not found on this server."))
        self.check_caller(request)
        model = found["model"]
        if self.models is not None and model not in self.models:
            raise Refusal(
                Fault(404, f"models/{model} is not found for API version v1beta, or is not supported.")
            )
        misfit = misfit_of(body, model)
        if misfit is not None:
            raise Refusal(Fault(400, misfit))

    def check_caller(self, request: web.Request) -> None:
        """Raise the Refusal of whoever may not ask."""
        key = request.headers.get("x-goog-api-key")
        if key is None:
            raise Refusal(NO_KEY)
        if self.keys is not None and key not in self.keys:
            raise Refusal(WRONG_KEY)

    def behave(self, behaviour: Behaviour, body: dict[str, Any]) -> web.Response:
        match behaviour:
            case Answer():
                return web.json_response(_answer(behaviour))
            case Blocked():
                feedback = {"blockReason": behaviour.reason, "safetyRatings": []}
                usage = {"promptTokenCount": 7, "totalTokenCount": 7}
                return web.json_response({"promptFeedback": feedback, "usageMetadata": usage})
            case Fault():
                return _error(behaviour)
            case _:
                raise AssertionError(f"no behaviour of this host: {behaviour!r}")

    async def list_models(self, request: web.Request) -> web.Response:
        try:
            self.check_caller(request)
        except Refusal as refusal:
            return _error(refusal.args[0])
        start = int(request.query.get("pageToken", 0))
        page: dict[str, Any] = {"models": self.listed[start : start + 2]}
        if start + 2 < len(self.listed):
            page["nextPageToken"] = str(start + 2)
        return web.json_response(page)


def _answer(answer: Answer) -> dict[str, Any]:
    prompt, made = answer.usage
    parts: list[dict[str, Any]] = []
    if answer.thoughts is not None:
        parts.append({"text": answer.thoughts, "thought": True})
    if answer.text is not None:
        parts.append({"text": answer.text})
    candidate: dict[str, Any] = {
        "content": {"parts": parts, "role": "model"},
        "finishReason": answer.finish_reason,
        "index": 0,
    }
    if answer.logprobs:
        chosen = [{"token": token, "tokenId": 7, "logProbability": value} for token, value in answer.logprobs]
        candidate["logprobsResult"] = {
            "chosenCandidates": chosen,
            "topCandidates": [{"candidates": [token]} for token in chosen],
        }
    usage = {
        "promptTokenCount": prompt,
        "candidatesTokenCount": made,
        "totalTokenCount": prompt + made + (answer.thought_tokens or 0),
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": prompt}],
    }
    if answer.thought_tokens is not None:
        usage["thoughtsTokenCount"] = answer.thought_tokens
    if answer.cached is not None:
        usage["cachedContentTokenCount"] = answer.cached
    return {
        "candidates": [{**candidate, **answer.candidate}],
        "usageMetadata": usage,
        "modelVersion": "gemini-2.5-flash",
        "responseId": "bWFkZSB1cA",
    }


def _error(fault: Fault) -> web.Response:
    status = fault.status or STATUSES.get(fault.code, "UNKNOWN")
    error: dict[str, Any] = {"code": fault.code, "message": fault.message, "status": status}
    if fault.details:
        error["details"] = list(fault.details)
    return web.json_response({"error": error}, status=fault.code, headers=fault.headers)


@asynccontextmanager
async def fake(
    *script: Behaviour,
    keys: Iterable[str] | None = None,
    models: Iterable[str] | None = None,
    listed: Sequence[Mapping[str, Any]] = (),
) -> AsyncIterator[GeminiHost]:
    """Serve on loopback; ``url`` is the host's, without a version."""
    known = None if keys is None else frozenset(keys)
    host = GeminiHost(
        script=deque(script), keys=known, models=None if models is None else frozenset(models), listed=listed
    )
    async with serving(host):
        yield host
