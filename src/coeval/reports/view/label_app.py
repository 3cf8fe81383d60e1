"""The server behind `coeval label`: one question at a time, and nothing of the run beside it.

The page is blind, so this server answers neither items nor scores. Who is answered is as in
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
    asset_answer,
    guarded,
    json_answer,
    page_answer,
    sent,
)


class _LevelGiven(msgspec.Struct, forbid_unknown_fields=True):
    id: str
    level: str


class _Nothing(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a request that says nothing more."""


def make_label_app(session: LabelSession, token: ViewToken | None) -> web.Application:
    """``token``: without it nobody is answered; None: everybody on this machine is."""
    app = web.Application(middlewares=[guarded(token)], client_max_size=LARGEST_BODY)
    handlers = _LabelHandlers(session)
    app.add_routes(
        [
            web.get("/", handlers.page),
            web.get("/assets/{name}", handlers.asset),
            web.get("/api/label", handlers.state),
            web.post("/api/label", handlers.give),
            web.post("/api/undo", handlers.undo),
        ]
    )
    return app


class _LabelHandlers:
    """Who answers; a label is on disk before its answer leaves."""

    def __init__(self, session: LabelSession) -> None:
        self._session = session

    async def page(self, _: web.Request) -> web.Response:
        return page_answer("label")

    async def asset(self, request: web.Request) -> web.Response:
        return asset_answer(request.match_info["name"])

    async def state(self, _: web.Request) -> web.Response:
        return json_answer(self._state())

    async def give(self, request: web.Request) -> web.Response:
        given = await sent(request, _LevelGiven, "this is no label")
        await asyncio.to_thread(self._session.give, given.id, given.level)
        return json_answer(self._state())

    async def undo(self, request: web.Request) -> web.Response:
        await sent(request, _Nothing, "send an empty object")
        await asyncio.to_thread(self._session.undo)
        return json_answer(self._state())

    def _state(self) -> dict[str, Any]:
        """How far the person is, and the next question, without whose answer it is."""
        session = self._session
        question = session.next
        shown = None
        if question is not None:
            shown = {
                "id": question.id,
                "prompt": question.prompt,
                "reference": question.reference,
                "answer": question.answer,
                "factor": question.factor,
                "criterion": question.criterion,
                "levels": question.scale.levels,
            }
        given = len(session.given)
        return {"by": session.by, "done": given, "total": len(session.questions), "question": shown}
