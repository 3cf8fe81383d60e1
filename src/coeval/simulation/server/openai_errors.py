"""Errors in OpenAI's shape: ``{"error": {"message", "type", "param", "code"}}``."""

from __future__ import annotations

from typing import Any

import msgspec
from aiohttp import web

INVALID = "invalid_request_error"


class Refusal(Exception):
    """A request that is not served; ``response`` says why."""

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        kind: str = INVALID,
        param: str | None = None,
        code: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self._status = status
        self._headers = headers
        self._error = {"message": message, "type": kind, "param": param, "code": code}

    @property
    def response(self) -> web.Response:
        return json_response({"error": self._error}, self._status, self._headers)


def json_response(
    body: dict[str, Any], status: int = 200, headers: dict[str, str] | None = None
) -> web.Response:
    return web.Response(
        status=status, body=msgspec.json.encode(body), content_type="application/json", headers=headers
    )
