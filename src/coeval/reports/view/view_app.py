"""The server behind `coeval view`: its pages, and the questions that they ask.

A folder is named by its number, so that no path ever comes from outside. Reading happens in threads, and
whatever is shown was read by the one that watches (`ViewedPlaces`).
"""

from __future__ import annotations

import asyncio
import hmac
import re
import secrets
from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import TypeAlias, TypeVar
from urllib.parse import parse_qsl, urlencode

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from coeval.core.errors import StoreError, Undecodable, UsageError
from coeval.core.foreign import decode
from coeval.core.plain import cut_middle, escape_line
from coeval.core.shown_names import short_paths
from coeval.reports.items.item_browser import ItemBrowser
from coeval.reports.items.item_rows import ItemChoice, RowPage, item_choice
from coeval.reports.site.page import choice_data, page_template
from coeval.reports.view.viewed_folder import ViewedFolder, ViewedPlaces
from coeval.store.human_labels import VIEWER, HumanLabel

# --- Access: this machine's browsers and programs
#
# Any page that somebody opens can send requests to this machine. One whose name was led here (DNS rebinding)
# shows in ``Host``; one that writes, asks for data or frames a page from elsewhere shows in ``Origin`` and
# ``Sec-Fetch-*``, or cannot say that it sends JSON without asking first, which nobody here allows. Other
# users of this machine can send anything, and lack the token.

_HERE = re.compile(r"(?:127\.0\.0\.1|localhost|\[::1\])(?::\d{1,5})?")
# A reason is a sentence or two, and may quote what was asked.
_LONGEST_SAID = 500
_JSON = "application/json"

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Of our own pages; a report brings its own beside this one's last part."""
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}

_PARAMETER = "token"
_LOCKED = "open the address that coeval view printed: it holds the token (or start with --no-token)"


class ViewToken:
    """A secret that comes with the first address, and as a cookie from then on. Programs send it as
    ``Authorization: Bearer``."""

    def __init__(self) -> None:
        self.text = secrets.token_urlsafe(24)
        self._ticket: str | None = None

    def ticket(self) -> str:
        """Another secret, which admits once: a browser's command line shows it to all users."""
        self._ticket = secrets.token_urlsafe(24)
        return self._ticket

    def is_held(self, request: web.Request) -> bool:
        """Whether a request has it, but for its address."""
        scheme, _, sent = request.headers.get("Authorization", "").partition(" ")
        cookie = request.cookies.get(self._cookie(request), "")
        return (scheme == "Bearer" and self._is(sent)) or self._is(cookie)

    def entry(self, request: web.Request) -> web.Response | None:
        """The way to the same address without the token in it, and the cookie; None: it has none that is
        right."""
        given = request.query.get(_PARAMETER, "")
        if self._ticket is not None and _same(given, self._ticket):
            self._ticket = None
        elif not self._is(given):
            return None
        rest = request.rel_url.without_query_params(_PARAMETER)
        there = f"/{str(rest).lstrip('/')}"  # of two slashes the second would begin the name of a host
        response = web.Response(status=303, headers={"Location": there})
        response.set_cookie(self._cookie(request), self.text, httponly=True, samesite="Lax")
        return response

    def _is(self, given: str) -> bool:
        return _same(given, self.text)

    def _cookie(self, request: web.Request) -> str:
        """Cookies are the same for all ports of a host."""
        return f"coeval-view-{request.url.port}"


def _same(given: str, needed: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), needed.encode())


def json_answer(value: object, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), status=status, content_type=_JSON)


def refused(status: int, reason: str) -> web.Response:
    """``{"error": reason}``; what the reason quotes is escaped and shortened."""
    return json_answer({"error": cut_middle(escape_line(reason), _LONGEST_SAID)}, status)


def guarded(token: ViewToken | None) -> Middleware:
    """Refuse what comes from elsewhere, or lacks the token if there is one; say errors as JSON; tell browsers
    what our pages may do."""

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        response = _refusal(request) or _entry(request, token) or await _answer(request, handler)
        for name, value in _HEADERS.items():
            response.headers.setdefault(name, value)
        response.headers.setdefault("Content-Security-Policy", POLICY)
        return response

    return guard


def _entry(request: web.Request, token: ViewToken | None) -> web.Response | None:
    """What is answered in place of what was asked for; None: nothing stands in the way."""
    if token is None:
        return None
    if request.method == "GET" and (response := token.entry(request)) is not None:
        return response
    return None if token.is_held(request) else refused(403, _LOCKED)


async def _answer(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except UsageError as error:
        return refused(400, str(error))
    except StoreError as error:
        return refused(500, str(error))
    except web.HTTPRequestEntityTooLarge:
        return refused(413, "that is more than a note may be")
    except web.HTTPRedirection as way:
        return web.Response(status=way.status, headers={"Location": way.headers["Location"]})
    except web.HTTPException as error:
        return refused(error.status, f"{request.method} {request.path}: {error.reason}")


def _refusal(request: web.Request) -> web.Response | None:
    host = request.headers.get("Host", "")
    if _HERE.fullmatch(host) is None:
        return refused(403, f"this is served under 127.0.0.1 and localhost only, not under {host!r}")
    site = request.headers.get("Sec-Fetch-Site", "none")
    if site not in ("same-origin", "none") and not _is_visit(request):
        return refused(403, "this is answered to pages of its own only")
    if request.method in ("GET", "HEAD"):
        return None
    origin = request.headers.get("Origin")
    if site not in ("same-origin", "none") or origin not in (None, f"http://{host}"):
        return refused(403, "pages from elsewhere may not write here")
    if request.content_type != _JSON:
        return refused(415, f"send {_JSON}")
    return None


def _is_visit(request: web.Request) -> bool:
    """Whether a page is asked for, to which a link may lead: neither data nor anything in a frame."""
    how = (request.headers.get("Sec-Fetch-Mode"), request.headers.get("Sec-Fetch-Dest"))
    return how == ("navigate", "document") and "/api/" not in request.path


# --- Pages of the server


def view_page(name: str) -> str:
    """``overview``, ``folder``, ``label`` or ``waiting``; there is nothing foreign in them."""
    return page_template(f"{name}.html", "view").render()


T = TypeVar("T")

_ASSETS = {
    name: f"coeval.reports.{folder}"
    for folder, names in (
        ("site", "page.css cells.js edges.js"),
        ("items", "items.css items.js matrix.js answers.js item_sources.js"),
        ("view", "view.css view.js overview.js label.js waiting.js"),
    )
    for name in names.split()
}
_TYPES = {"css": "text/css", "js": "text/javascript"}
# Bytes: choices of a page are a few hundred; nothing is uploaded.
LARGEST_BODY = 1 << 17
# Rows in one answer: the page asks for 50 at a time as it is scrolled.
_MOST_ROWS = 500
# Names in a choice of scores.
_MOST_NAMES = 200
# Folders: the page offers no more.
_MOST_BESIDE = 30
_FRAMED = "frame-ancestors 'none'"
# Parts of an address that say which rows of a choice, and beside whose.
_ANSWERED_BY_PAGE = ("first", "most", "beside")


PageOfFolders: TypeAlias = Callable[[Sequence[Path], Sequence[str | None]], bytes]
"""Compares folders, and writes the page of it; where they share no student, the best of each (None: not known
yet). May raise a `CoevalError`."""


def make_view_app(places: ViewedPlaces, token: ViewToken | None, compare: PageOfFolders) -> web.Application:
    """``token``: without it nobody is answered; None: everybody on this machine is."""
    app = web.Application(middlewares=[guarded(token)], client_max_size=LARGEST_BODY)
    handlers = _ViewHandlers(places, compare)
    number = r"/f/{number:\d{1,6}}"
    app.add_routes(
        [
            web.get("/", handlers.overview),
            web.get("/api/folders", handlers.folders),
            web.get("/compare", handlers.compared),
            web.get("/assets/{name}", handlers.asset),
            web.get(f"{number}/", handlers.page),
            web.get(f"{number}/report", handlers.report),
            web.get(f"{number}/api/state", handlers.state),
            web.get(f"{number}/api/figures", handlers.figures),
            web.get(f"{number}/api/items", handlers.items),
            web.get(f"{number}/api/item", handlers.item),
            web.get(f"{number}/api/marks", handlers.marks),
            web.post(f"{number}/api/mark", handlers.mark),
        ]
    )
    return app


class _MarkGiven(msgspec.Struct, forbid_unknown_fields=True):
    item: str
    task: str
    flag: bool = False
    note: str = ""


def _shown_mark(mark: HumanLabel) -> _MarkGiven:
    return _MarkGiven(mark.datapoint_id, mark.task_id, mark.flag, mark.note)


class _ViewHandlers:
    """Who answers."""

    def __init__(self, places: ViewedPlaces, compare: PageOfFolders) -> None:
        self._places, self._compare = places, compare

    async def overview(self, request: web.Request) -> web.Response:
        """The folders side by side; of one alone, its own page."""
        if len(self._places.folders) == 1 and "all" not in request.query:
            raise web.HTTPFound("/f/0/")
        return page_answer("overview")

    async def folders(self, _: web.Request) -> web.Response:
        folders = self._places.folders
        names = short_paths(each.path for each in folders)
        return json_answer(
            [{"number": at, **each.line(), "name": names[str(each.path)]} for at, each in enumerate(folders)]
        )

    async def compared(self, request: web.Request) -> web.Response:
        """The comparison of the folders whose numbers stand in ``f``."""
        numbers = dict.fromkeys(self._numbered(number) for number in request.query.getall("f", []))
        if not 1 < len(numbers) <= _MOST_BESIDE:
            raise UsageError(f"name from 2 to {_MOST_BESIDE} folders to compare, as /compare?f=0&f=1")
        chosen = [self._places.folders[at] for at in numbers]
        paths, best = [each.path for each in chosen], [each.best for each in chosen]
        page = await asyncio.to_thread(self._compare, paths, best)
        return _report_answer(page)

    async def asset(self, request: web.Request) -> web.Response:
        return asset_answer(request.match_info["name"])

    async def page(self, request: web.Request) -> web.Response:
        self._needed(request)
        return page_answer("folder")

    async def report(self, request: web.Request) -> web.Response:
        folder = self._needed(request)
        folder.report_needed = True
        if (page := folder.report) is None:
            return page_answer("waiting", status=202)
        return _report_answer(page)

    async def state(self, request: web.Request) -> web.Response:
        return json_answer(self._needed(request).state())

    async def figures(self, request: web.Request) -> web.Response:
        """What the report says of a choice of scores: pairs of a dimension and a name."""
        choices = self._needed(request).choices
        if choices is None:
            return refused(503, "the report is being written; ask again in a moment")
        pairs = parse_qsl(request.query_string, keep_blank_values=True)
        if len(pairs) > _MOST_NAMES:
            raise UsageError(f"choose by {_MOST_NAMES} names at most, not by {len(pairs)}")

        def computed() -> bytes:
            return choice_data(choices.report_choice(pairs), choices.evidence.students)

        return web.Response(body=await asyncio.to_thread(computed), content_type=_JSON)

    async def items(self, request: web.Request) -> web.Response:
        """A page of rows, ``total``, and ``beside``: what the same items came to in other folders."""
        folder = self._needed(request)
        pairs = parse_qsl(request.query_string, keep_blank_values=True)
        choice = item_choice(urlencode([pair for pair in pairs if pair[0] not in _ANSWERED_BY_PAGE]))
        reported = dict(pairs)
        first, most = _whole(reported, "first", 0, None), _whole(reported, "most", 50, _MOST_ROWS)
        mine = self._numbered(request.match_info["number"])
        named = dict.fromkeys(name for name in reported.get("beside", "").split(",") if name)
        others = {self._numbered(name) for name in named} - {mine}
        if len(others) > _MOST_BESIDE:
            raise UsageError(f"beside: name {_MOST_BESIDE} folders at most, not {len(others)}")

        def found(browser: ItemBrowser) -> RowPage:
            return browser.with_openings(browser.rows(choice, first, most))

        page = await _requested(folder, found)
        if page is None:
            return refused(503, "the records are being read; ask again in a moment")
        beside = {}
        for other in sorted(others):
            beside[other] = await _beside(self._places.folders[other], choice, page)
        return json_answer({"rows": page.rows, "total": page.total, "beside": beside})

    async def item(self, request: web.Request) -> web.Response:
        """An item whole; null: there is no such item."""
        item, task = request.query.get("item", ""), request.query.get("task", "")
        return json_answer(
            await _requested(self._needed(request), lambda browser: browser.detail(item, task))
        )

    async def marks(self, request: web.Request) -> web.Response:
        marks = await asyncio.to_thread(self._needed(request).marks)
        return json_answer([_shown_mark(mark) for mark in marks.values()])

    async def mark(self, request: web.Request) -> web.Response:
        folder = self._needed(request)
        given = await sent(request, _MarkGiven, "this is no mark")
        found = await _requested(folder, lambda browser: browser.detail(given.item, given.task))
        if found is None:
            return refused(404, f"there is no item {given.item}")
        mark = HumanLabel(
            judge_model_id=VIEWER,
            task_id=found.task,
            datapoint_id=found.item,
            flag=given.flag,
            note=given.note,
        )
        return json_answer(_shown_mark(await asyncio.to_thread(folder.mark, mark)))

    def _needed(self, request: web.Request) -> ViewedFolder:
        """The folder that an address names; from now on it is read."""
        folder = self._places.folders[self._numbered(request.match_info["number"])]
        folder.needed = True
        return folder

    def _numbered(self, name: str) -> int:
        whole = name.isascii() and name.isdigit() and len(name) < 7
        if not whole or int(name) >= len(self._places.folders):
            raise web.HTTPNotFound(reason=f"there is no folder {name[:20]}")
        return int(name)


def _report_answer(page: bytes) -> web.Response:
    return web.Response(
        body=page, content_type="text/html", charset="utf-8", headers={"Content-Security-Policy": _FRAMED}
    )


async def _requested(folder: ViewedFolder, question: Callable[[ItemBrowser], T]) -> T | None:
    """What the items of a folder answer; None also where they have not been read yet."""

    def ask() -> T | None:
        with folder.browser() as browser:
            return None if browser is None else question(browser)

    return await asyncio.to_thread(ask)


async def _beside(
    folder: ViewedFolder, choice: ItemChoice, page: RowPage
) -> dict[str, dict[str, float | None]]:
    """The scores of the page's items in another folder, by task and item (``task item``)."""
    folder.needed = True
    same = ItemChoice(
        judges=choice.judges,
        factors=choice.factors,
        items=tuple(row.item for row in page.rows),
        tasks=tuple({row.task for row in page.rows}),
    )
    found = await _requested(folder, lambda browser: browser.rows(same, 0, _MOST_ROWS)) if page.rows else None
    return {f"{row.task} {row.item}": row.scores for row in found.rows} if found is not None else {}


def _whole(reported: dict[str, str], name: str, usual: int, most: int | None) -> int:
    text = reported.get(name, str(usual))
    if not (text.isascii() and text.isdigit()) or len(text) > 9:
        raise UsageError(f"{name}={text}: write a whole number")
    return int(text) if most is None else min(int(text), most)


async def sent(request: web.Request, kind: type[T], otherwise: str) -> T:
    """Read a request's body; ``otherwise`` begins the reason why it is refused.

    Raises UsageError: it is no such record.
    """
    try:
        return decode(await request.read(), kind)
    except Undecodable as error:
        raise UsageError(f"{otherwise}: {error}") from None


def page_answer(name: str, status: int = 200) -> web.Response:
    return web.Response(text=view_page(name), status=status, content_type="text/html", charset="utf-8")


def asset_answer(name: str) -> web.Response:
    if name not in _ASSETS:
        raise web.HTTPNotFound
    text = (files(_ASSETS[name]) / name).read_text(encoding="utf-8")
    return web.Response(text=text, content_type=_TYPES[name.rpartition(".")[2]], charset="utf-8")
