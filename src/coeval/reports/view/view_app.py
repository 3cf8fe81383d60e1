"""The server behind `coeval view`: its pages, and the questions that they ask.

A folder is named by its number, so that no path ever comes from outside. Reading happens in threads, and
whatever is shown was read by the one that watches (`ViewedPlaces`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib.resources import files
from typing import TypeVar
from urllib.parse import parse_qsl, urlencode

import msgspec
from aiohttp import web

from coeval.core.errors import Undecodable, UsageError
from coeval.core.foreign import decode
from coeval.reports.items.item_browser import ItemBrowser
from coeval.reports.items.item_choice import ItemChoice, item_choice
from coeval.reports.items.item_rows import RowPage
from coeval.reports.view.item_marks import MarkedItem
from coeval.reports.view.view_guard import ViewToken, guarded, json_answer, refused
from coeval.reports.view.view_pages import view_page
from coeval.reports.view.viewed_folder import ViewedFolder
from coeval.reports.view.viewed_places import ViewedPlaces

__all__ = ["make_view_app"]

T = TypeVar("T")

_ASSETS = {
    "page.css": "coeval.reports.site",
    "items.css": "coeval.reports.items",
    "items.js": "coeval.reports.items",
    "answers.js": "coeval.reports.items",
    "item_sources.js": "coeval.reports.items",
    "view.css": "coeval.reports.view",
    "view.js": "coeval.reports.view",
    "waiting.js": "coeval.reports.view",
}
_TYPES = {"css": "text/css", "js": "text/javascript"}
_LARGEST_BODY = 1 << 17
_MOST_ROWS = 500
_MOST_BESIDE = 30
"""Folders: the page offers no more."""
_FRAMED = "frame-ancestors 'none'"
_ANSWERED_BY_PAGE = ("first", "most", "beside")
"""Parts of an address that say which rows of a choice, and beside whose."""


def make_view_app(places: ViewedPlaces, token: ViewToken | None) -> web.Application:
    """``token``: without it nobody is answered; None: everybody on this machine is."""
    app = web.Application(middlewares=[guarded(token)], client_max_size=_LARGEST_BODY)
    desk = _ViewDesk(places)
    number = r"/f/{number:\d{1,6}}"
    app.add_routes(
        [
            web.get("/", desk.overview),
            web.get("/api/folders", desk.folders),
            web.get("/assets/{name}", desk.asset),
            web.get(f"{number}/", desk.page),
            web.get(f"{number}/report", desk.report),
            web.get(f"{number}/api/state", desk.state),
            web.get(f"{number}/api/items", desk.items),
            web.get(f"{number}/api/item", desk.item),
            web.get(f"{number}/api/marks", desk.marks),
            web.post(f"{number}/api/mark", desk.mark),
        ]
    )
    return app


class _MarkGiven(msgspec.Struct, forbid_unknown_fields=True):
    item: str
    task: str
    flag: bool = False
    note: str = ""


class _ViewDesk:
    """Who answers."""

    def __init__(self, places: ViewedPlaces) -> None:
        self._places = places

    async def overview(self, request: web.Request) -> web.Response:
        """The folders side by side; of one alone, its own page."""
        if len(self._places.folders) == 1 and "all" not in request.query:
            raise web.HTTPFound("/f/0/")
        return _page("overview")

    async def folders(self, _: web.Request) -> web.Response:
        return json_answer([{"number": at, **each.state()} for at, each in enumerate(self._places.folders)])

    async def asset(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if name not in _ASSETS:
            raise web.HTTPNotFound
        return _file(_ASSETS[name], name)

    async def page(self, request: web.Request) -> web.Response:
        self._wanted(request)
        return _page("folder")

    async def report(self, request: web.Request) -> web.Response:
        folder = self._wanted(request)
        folder.report_wanted = True
        if (page := folder.report) is None:
            return _page("waiting", status=202)
        return web.Response(
            body=page, content_type="text/html", charset="utf-8", headers={"Content-Security-Policy": _FRAMED}
        )

    async def state(self, request: web.Request) -> web.Response:
        return json_answer(self._wanted(request).state())

    async def items(self, request: web.Request) -> web.Response:
        """A page of rows, ``total``, and ``beside``: what the same items came to in other folders."""
        folder = self._wanted(request)
        pairs = parse_qsl(request.query_string, keep_blank_values=True)
        choice = item_choice(urlencode([pair for pair in pairs if pair[0] not in _ANSWERED_BY_PAGE]))
        told = dict(pairs)
        first, most = _whole(told, "first", 0, None), _whole(told, "most", 50, _MOST_ROWS)
        mine = self._numbered(request.match_info["number"])
        named = dict.fromkeys(name for name in told.get("beside", "").split(",") if name)
        others = {self._numbered(name) for name in named} - {mine}
        if len(others) > _MOST_BESIDE:
            raise UsageError(f"beside: name {_MOST_BESIDE} folders at most, not {len(others)}")

        def found(browser: ItemBrowser) -> RowPage:
            return browser.rows(choice, first, most)

        page = await _asked(folder, found)
        if page is None:
            return refused(503, "the records are being read; ask again in a moment")
        beside = {}
        for other in sorted(others):
            beside[other] = await _beside(self._places.folders[other], choice, page)
        return json_answer({"rows": page.rows, "total": page.total, "beside": beside})

    async def item(self, request: web.Request) -> web.Response:
        """An item whole; null: there is no such item."""
        item, task = request.query.get("item", ""), request.query.get("task", "")
        return json_answer(await _asked(self._wanted(request), lambda browser: browser.detail(item, task)))

    async def marks(self, request: web.Request) -> web.Response:
        marks = await asyncio.to_thread(self._wanted(request).marks)
        return json_answer(list(marks.values()))

    async def mark(self, request: web.Request) -> web.Response:
        folder = self._wanted(request)
        try:
            given = decode(await request.read(), _MarkGiven)
        except Undecodable as error:
            raise UsageError(f"this is no mark: {error}") from None
        found = await _asked(folder, lambda browser: browser.detail(given.item, given.task))
        if found is None:
            return refused(404, f"there is no item {given.item}")
        mark = MarkedItem(found.item, found.task, given.flag, given.note)
        return json_answer(await asyncio.to_thread(folder.mark, mark))

    def _wanted(self, request: web.Request) -> ViewedFolder:
        """The folder that an address names; from now on it is read."""
        folder = self._places.folders[self._numbered(request.match_info["number"])]
        folder.wanted = True
        return folder

    def _numbered(self, name: str) -> int:
        whole = name.isascii() and name.isdigit() and len(name) < 7
        if not whole or int(name) >= len(self._places.folders):
            raise web.HTTPNotFound(reason=f"there is no folder {name[:20]}")
        return int(name)


async def _asked(folder: ViewedFolder, question: Callable[[ItemBrowser], T]) -> T | None:
    """What the items of a folder answer; None also where they have not been read yet."""

    def ask() -> T | None:
        with folder.browser() as browser:
            return None if browser is None else question(browser)

    return await asyncio.to_thread(ask)


async def _beside(
    folder: ViewedFolder, choice: ItemChoice, page: RowPage
) -> dict[str, dict[str, float | None]]:
    """The scores of the page's items in another folder, by task and item (``task item``)."""
    folder.wanted = True
    same = ItemChoice(
        judges=choice.judges,
        factors=choice.factors,
        items=tuple(row.item for row in page.rows),
        tasks=tuple({row.task for row in page.rows}),
    )
    found = await _asked(folder, lambda browser: browser.rows(same, 0, _MOST_ROWS)) if page.rows else None
    return {f"{row.task} {row.item}": row.scores for row in found.rows} if found is not None else {}


def _whole(told: dict[str, str], name: str, usual: int, most: int | None) -> int:
    text = told.get(name, str(usual))
    if not (text.isascii() and text.isdigit()) or len(text) > 9:
        raise UsageError(f"{name}={text}: write a whole number")
    return int(text) if most is None else min(int(text), most)


def _page(name: str, status: int = 200) -> web.Response:
    return web.Response(text=view_page(name), status=status, content_type="text/html", charset="utf-8")


def _file(package: str, name: str) -> web.Response:
    text = (files(package) / name).read_text(encoding="utf-8")
    return web.Response(text=text, content_type=_TYPES[name.rpartition(".")[2]], charset="utf-8")
