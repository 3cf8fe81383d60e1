"""The server behind `coeval label`: one question at a time, without anything else of the run.

The page is blind, so this server answers neither items nor scores. Access is limited as in
`coeval.reports.view.view_app`.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from aiohttp import web

from coeval.reports.label_session import LabelSession
from coeval.reports.view.view_app import (
    LARGEST_BODY,
    ViewToken,
    asset_response,
    json_response,
    make_guard,
    page_response,
    read_body,
)

# Of a question; who answered it is not among them.
_SHOWN = ("id", "prompt", "reference", "answer", "factor", "criterion")


class _LevelBody(msgspec.Struct, forbid_unknown_fields=True):
    id: str
    level: str


class _EmptyBody(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a request without parameters."""


def make_label_app(session: LabelSession, token: ViewToken | None) -> web.Application:
    """Make the application. ``token``: required of every request; None: everybody on this machine is
    answered."""
    app = web.Application(middlewares=[make_guard(token)], client_max_size=LARGEST_BODY)
    handlers = _LabelHandlers(session)
    app.add_routes(
        [
            web.get("/", handlers.show_page),
            web.get("/assets/{name}", handlers.send_asset),
            web.get("/api/label", handlers.send_state),
            web.post("/api/label", handlers.record_level),
            web.post("/api/undo", handlers.withdraw_last_label),
        ]
    )
    return app


class _LabelHandlers:
    """Handlers of a labelling session; a label is on disk before its reply leaves."""

    def __init__(self, session: LabelSession) -> None:
        self._session = session

    async def show_page(self, _: web.Request) -> web.Response:
        return page_response("label")

    async def send_asset(self, request: web.Request) -> web.Response:
        return asset_response(request.match_info["name"])

    async def send_state(self, _: web.Request) -> web.Response:
        return json_response(self._state())

    async def record_level(self, request: web.Request) -> web.Response:
        body = await read_body(request, _LevelBody, "this is not a label")
        await asyncio.to_thread(self._session.record_level, body.id, body.level)
        return json_response(self._state())

    async def withdraw_last_label(self, request: web.Request) -> web.Response:
        await read_body(request, _EmptyBody, "send an empty object")
        await asyncio.to_thread(self._session.withdraw_last_label)
        return json_response(self._state())

    def _state(self) -> dict[str, Any]:
        """Return the person's progress and the next question, without naming the student."""
        session, question = self._session, self._session.next_question
        shown_question = None
        if question is not None:
            shown_question = {name: getattr(question, name) for name in _SHOWN}
            shown_question["levels"] = question.scale.levels
        counts = {"done": len(session.levels_by_id), "total": len(session.questions)}
        return {"by": session.by, **counts, "question": shown_question}
