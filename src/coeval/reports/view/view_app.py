"""The server behind `coeval view`: its pages and its JSON interface.

An address names a folder by its number, so that no path ever comes from outside. Files are read in
threads, and pages show what the watching thread read (`ViewedPlaces`).
"""

from __future__ import annotations

import asyncio
import hmac
import re
import secrets
from collections.abc import Callable, Sequence
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
from coeval.reports.items.item_rows import ItemChoice, RowPage, parse_item_filters
from coeval.reports.site.page import encode_choice_json, load_template, read_asset
from coeval.reports.view.viewed_folder import ViewedFolder, ViewedPlaces
from coeval.store.human_labels import VIEWER, HumanLabel

# --- Access: this machine's browsers and programs
#
# Any page that somebody opens can send requests to this machine. One whose name was led here (DNS rebinding)
# shows in ``Host``; one that writes, asks for data or frames a page from elsewhere shows in ``Origin`` and
# ``Sec-Fetch-*``, or cannot say that it sends JSON without asking first, which nobody here allows. Other
# users of this machine can send anything, and lack the token.

_LOCAL_HOST = re.compile(r"(?:127\.0\.0\.1|localhost|\[::1\])(?::\d{1,5})?")
# A reason is a sentence or two, and may quote what was asked.
_LONGEST_REASON = 500
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
_LOCKED = "open the address that coeval view printed: it contains the token (or start with --no-token)"


class ViewToken:
    """A secret that comes with the first address, and as a cookie from then on. Programs send it as
    ``Authorization: Bearer``."""

    def __init__(self) -> None:
        self.text = secrets.token_urlsafe(24)
        self._ticket: str | None = None

    def make_ticket(self) -> str:
        """Make a second secret that admits once, since all users can see a browser's command line."""
        self._ticket = secrets.token_urlsafe(24)
        return self._ticket

    def is_in_request(self, request: web.Request) -> bool:
        """Check whether a request has the token in its header or cookie."""
        scheme, _, sent = request.headers.get("Authorization", "").partition(" ")
        cookie = request.cookies.get(self._cookie_name(request), "")
        return (scheme == "Bearer" and self._is_token(sent)) or self._is_token(cookie)

    def redirect_if_token_in_address(self, request: web.Request) -> web.Response | None:
        """Redirect an address with the token to the same one without, and set the cookie; None: no valid
        token."""
        token_text = request.query.get(_PARAMETER, "")
        if self._ticket is not None and _is_same_secret(token_text, self._ticket):
            self._ticket = None
        elif not self._is_token(token_text):
            return None
        rest = request.rel_url.without_query_params(_PARAMETER)
        location = f"/{str(rest).lstrip('/')}"  # of two slashes the second would begin the name of a host
        response = web.Response(status=303, headers={"Location": location})
        response.set_cookie(self._cookie_name(request), self.text, httponly=True, samesite="Lax")
        return response

    def _is_token(self, candidate: str) -> bool:
        return _is_same_secret(candidate, self.text)

    def _cookie_name(self, request: web.Request) -> str:
        """Name the cookie by port, since cookies are the same for all ports of a host."""
        return f"coeval-view-{request.url.port}"


def _is_same_secret(text: str, secret: str) -> bool:
    return hmac.compare_digest(text.encode("utf-8", "replace"), secret.encode())


def json_response(value: object, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), status=status, content_type=_JSON)


def refuse_request(status: int, reason: str) -> web.Response:
    """Return ``{"error": reason}``; what the reason quotes is escaped and shortened."""
    return json_response({"error": cut_middle(escape_line(reason), _LONGEST_REASON)}, status)


def make_guard(token: ViewToken | None) -> Middleware:
    """Make the middleware that refuses foreign pages and requests without the token, reports errors as JSON,
    and sets security headers."""

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        refusal = _refuse_foreign_or_not_json(request) or _admit(request, token)
        response = refusal or await _call_handler(request, handler)
        for name, value in _HEADERS.items():
            response.headers.setdefault(name, value)
        response.headers.setdefault("Content-Security-Policy", POLICY)
        return response

    return guard


def _admit(request: web.Request, token: ViewToken | None) -> web.Response | None:
    """Return the reply to the token's first address or to a missing token, or None to admit the request."""
    if token is None:
        return None
    if request.method == "GET" and (response := token.redirect_if_token_in_address(request)) is not None:
        return response
    return None if token.is_in_request(request) else refuse_request(403, _LOCKED)


async def _call_handler(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except UsageError as error:
        return refuse_request(400, str(error))
    except StoreError as error:
        return refuse_request(500, str(error))
    except web.HTTPRequestEntityTooLarge:
        return refuse_request(413, "the note is too long")
    except web.HTTPRedirection as way:
        return web.Response(status=way.status, headers={"Location": way.headers["Location"]})
    except web.HTTPException as error:
        return refuse_request(error.status, f"{request.method} {request.path}: {error.reason}")


def _refuse_foreign_or_not_json(request: web.Request) -> web.Response | None:
    """Refuse other hosts, requests of foreign pages, and bodies that are not JSON; else return None."""
    host = request.headers.get("Host", "")
    if _LOCAL_HOST.fullmatch(host) is None:
        return refuse_request(403, f"this is served under 127.0.0.1 and localhost only, not under {host!r}")
    site = request.headers.get("Sec-Fetch-Site", "none")
    if site not in ("same-origin", "none") and not _is_page_visit(request):
        return refuse_request(403, "only pages of this server get an answer")
    if request.method in ("GET", "HEAD"):
        return None
    origin = request.headers.get("Origin")
    if site not in ("same-origin", "none") or origin not in (None, f"http://{host}"):
        return refuse_request(403, "pages from other sites may not write here")
    if request.content_type != _JSON:
        return refuse_request(415, f"send {_JSON}")
    return None


def _is_page_visit(request: web.Request) -> bool:
    """Check whether a page is requested, which a link may do: neither data nor anything in a frame."""
    how = (request.headers.get("Sec-Fetch-Mode"), request.headers.get("Sec-Fetch-Dest"))
    return how == ("navigate", "document") and "/api/" not in request.path


# --- Pages of the server


def render_view_page(name: str) -> str:
    """Render ``overview``, ``folder``, ``label`` or ``waiting``, which hold nothing foreign."""
    return load_template(f"{name}.html", "view").render()


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
_MOST_FOLDERS = 30
_FRAMED = "frame-ancestors 'none'"
# Parts of an address that say which rows of a choice, and beside whose.
_PAGE_PARAMETERS = ("first", "most", "beside")


PageOfFolders: TypeAlias = Callable[[Sequence[Path], Sequence[str | None]], bytes]
"""Compares folders, and writes the page of it; where they share no student, the best of each (None: not known
yet). May raise a `CoevalError`."""


def make_view_app(places: ViewedPlaces, token: ViewToken | None, compare: PageOfFolders) -> web.Application:
    """Make the application. ``token``: required of every request; None: everybody on this machine is
    answered."""
    app = web.Application(middlewares=[make_guard(token)], client_max_size=LARGEST_BODY)
    handlers = _ViewHandlers(places, compare)
    number = r"/f/{number:\d{1,6}}"
    app.add_routes(
        [
            web.get("/", handlers.show_overview),
            web.get("/api/folders", handlers.list_folders),
            web.get("/compare", handlers.show_comparison),
            web.get("/assets/{name}", handlers.send_asset),
            web.get(f"{number}/", handlers.show_folder),
            web.get(f"{number}/report", handlers.show_report),
            web.get(f"{number}/api/state", handlers.send_state),
            web.get(f"{number}/api/figures", handlers.send_choice),
            web.get(f"{number}/api/items", handlers.list_items),
            web.get(f"{number}/api/item", handlers.send_item_or_null),
            web.get(f"{number}/api/marks", handlers.list_marks),
            web.post(f"{number}/api/mark", handlers.record_flag_and_note),
        ]
    )
    return app


class _MarkBody(msgspec.Struct, forbid_unknown_fields=True):
    item: str
    task: str
    flag: bool = False
    note: str = ""


def _mark_body(mark: HumanLabel) -> _MarkBody:
    return _MarkBody(mark.datapoint_id, mark.task_id, mark.flag, mark.note)


class _ViewHandlers:
    """Handlers of the pages and their JSON interface."""

    def __init__(self, places: ViewedPlaces, compare: PageOfFolders) -> None:
        self._places, self._compare = places, compare

    async def show_overview(self, request: web.Request) -> web.Response:
        """Show the list of folders, or the page of a single one."""
        if len(self._places.folders) == 1 and "all" not in request.query:
            raise web.HTTPFound("/f/0/")
        return page_response("overview")

    async def list_folders(self, _: web.Request) -> web.Response:
        folders = self._places.folders
        names = short_paths(folder.path for folder in folders)
        return json_response(
            [
                {"number": number, **folder.list_entry(), "name": names[str(folder.path)]}
                for number, folder in enumerate(folders)
            ]
        )

    async def show_comparison(self, request: web.Request) -> web.Response:
        """Show the comparison of the folders whose numbers ``f`` gives."""
        numbers = dict.fromkeys(self._folder_number(number) for number in request.query.getall("f", []))
        if not 1 < len(numbers) <= _MOST_FOLDERS:
            raise UsageError(f"name from 2 to {_MOST_FOLDERS} folders to compare, as /compare?f=0&f=1")
        chosen = [self._places.folders[at] for at in numbers]
        paths, best = [folder.path for folder in chosen], [folder.best_name for folder in chosen]
        page = await asyncio.to_thread(self._compare, paths, best)
        return _report_response(page)

    async def send_asset(self, request: web.Request) -> web.Response:
        return asset_response(request.match_info["name"])

    async def show_folder(self, request: web.Request) -> web.Response:
        self._find_folder_and_mark_needed(request)
        return page_response("folder")

    async def show_report(self, request: web.Request) -> web.Response:
        folder = self._find_folder_and_mark_needed(request)
        folder.report_needed = True
        if (page := folder.report) is None:
            return page_response("waiting", status=202)
        return _report_response(page)

    async def send_state(self, request: web.Request) -> web.Response:
        return json_response(self._find_folder_and_mark_needed(request).page_state())

    async def send_choice(self, request: web.Request) -> web.Response:
        """Return the report on a choice of scores, given as pairs of a dimension and a name."""
        choices = self._find_folder_and_mark_needed(request).choices
        if choices is None:
            return refuse_request(503, "the report is being written; try again in a moment")
        pairs = parse_qsl(request.query_string, keep_blank_values=True)
        if len(pairs) > _MOST_NAMES:
            raise UsageError(f"choose by {_MOST_NAMES} names at most, not by {len(pairs)}")

        def encode() -> bytes:
            return encode_choice_json(choices.report_choice(pairs), choices.evidence.students)

        return web.Response(body=await asyncio.to_thread(encode), content_type=_JSON)

    async def list_items(self, request: web.Request) -> web.Response:
        """Return a page of rows, ``total``, and ``beside``: the scores of the same items in other folders."""
        folder = self._find_folder_and_mark_needed(request)
        pairs = parse_qsl(request.query_string, keep_blank_values=True)
        choice = parse_item_filters(urlencode([pair for pair in pairs if pair[0] not in _PAGE_PARAMETERS]))
        parameters = dict(pairs)
        first = _parse_count(parameters, "first", 0, None)
        most = _parse_count(parameters, "most", 50, _MOST_ROWS)
        own_number = self._folder_number(request.match_info["number"])
        names = dict.fromkeys(name for name in parameters.get("beside", "").split(",") if name)
        others = {self._folder_number(name) for name in names} - {own_number}
        if len(others) > _MOST_FOLDERS:
            raise UsageError(f"beside: name {_MOST_FOLDERS} folders at most, not {len(others)}")

        def rows_with_openings(browser: ItemBrowser) -> RowPage:
            return browser.add_openings(browser.find_rows(choice, first, most))

        page = await _query_items(folder, rows_with_openings)
        if page is None:
            return refuse_request(503, "the records are being read; try again in a moment")
        beside = {}
        for other in sorted(others):
            beside[other] = await _read_scores_in_other_folder(self._places.folders[other], choice, page)
        return json_response({"rows": page.rows, "total": page.total, "beside": beside})

    async def send_item_or_null(self, request: web.Request) -> web.Response:
        """Return an item whole, or null if there is no such item."""
        folder, item = self._find_folder_and_mark_needed(request), request.query.get("item", "")
        task = request.query.get("task", "")
        return json_response(await _query_items(folder, lambda browser: browser.read_detail(item, task)))

    async def list_marks(self, request: web.Request) -> web.Response:
        marks = await asyncio.to_thread(self._find_folder_and_mark_needed(request).read_marks)
        return json_response([_mark_body(mark) for mark in marks.values()])

    async def record_flag_and_note(self, request: web.Request) -> web.Response:
        folder = self._find_folder_and_mark_needed(request)
        body = await read_body(request, _MarkBody, "this is not a mark")
        detail = await _query_items(folder, lambda browser: browser.read_detail(body.item, body.task))
        if detail is None:
            return refuse_request(404, f"there is no item {body.item}")
        mark = HumanLabel(
            judge_model_id=VIEWER,
            task_id=detail.task,
            datapoint_id=detail.item,
            flag=body.flag,
            note=body.note,
        )
        return json_response(_mark_body(await asyncio.to_thread(folder.record_flag_and_note, mark)))

    def _find_folder_and_mark_needed(self, request: web.Request) -> ViewedFolder:
        """Return the folder that an address names, and have it read from now on."""
        folder = self._places.folders[self._folder_number(request.match_info["number"])]
        folder.needed = True
        return folder

    def _folder_number(self, name: str) -> int:
        whole = name.isascii() and name.isdigit() and len(name) < 7
        if not whole or int(name) >= len(self._places.folders):
            raise web.HTTPNotFound(reason=f"there is no folder {name[:20]}")
        return int(name)


def _report_response(page: bytes) -> web.Response:
    return web.Response(
        body=page, content_type="text/html", charset="utf-8", headers={"Content-Security-Policy": _FRAMED}
    )


async def _query_items(folder: ViewedFolder, query: Callable[[ItemBrowser], T]) -> T | None:
    """Query a folder's items in a thread; None also if they have not been read yet."""

    def ask() -> T | None:
        with folder.hold_browser() as browser:
            return None if browser is None else query(browser)

    return await asyncio.to_thread(ask)


async def _read_scores_in_other_folder(
    folder: ViewedFolder, choice: ItemChoice, page: RowPage
) -> dict[str, dict[str, float | None]]:
    """Return the scores of the page's items in another folder, by ``task item``."""
    folder.needed = True
    same = ItemChoice(
        judges=choice.judges,
        factors=choice.factors,
        items=tuple(row.item for row in page.rows),
        tasks=tuple({row.task for row in page.rows}),
    )
    if not page.rows:
        return {}
    others = await _query_items(folder, lambda browser: browser.find_rows(same, 0, _MOST_ROWS))
    return {} if others is None else {f"{row.task} {row.item}": row.scores for row in others.rows}


def _parse_count(parameters: dict[str, str], name: str, default: int, most: int | None) -> int:
    text = parameters.get(name, str(default))
    if not (text.isascii() and text.isdigit()) or len(text) > 9:
        raise UsageError(f"{name}={text}: write a whole number")
    return int(text) if most is None else min(int(text), most)


async def read_body(request: web.Request, body_type: type[T], refusal: str) -> T:
    """Read a request's body. Raises UsageError: it is no such record; ``refusal`` begins the reason."""
    try:
        return decode(await request.read(), body_type)
    except Undecodable as error:
        raise UsageError(f"{refusal}: {error}") from None


def page_response(name: str, status: int = 200) -> web.Response:
    return web.Response(text=render_view_page(name), status=status, content_type="text/html", charset="utf-8")


def asset_response(name: str) -> web.Response:
    if name not in _ASSETS:
        raise web.HTTPNotFound
    text = read_asset(_ASSETS[name], name)
    return web.Response(text=text, content_type=_TYPES[name.rpartition(".")[2]], charset="utf-8")
