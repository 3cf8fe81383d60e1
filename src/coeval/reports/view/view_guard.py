"""Whom the server answers: browsers and programs of whoever started it.

Any page that somebody opens can send requests to this machine. One whose name was led here (DNS rebinding)
shows in ``Host``; one that writes, asks for data or frames a page from elsewhere shows in ``Origin`` and
``Sec-Fetch-*``, or cannot say that it sends JSON without asking first, which nobody here allows. Other users
of this machine can send anything, and lack the token.
"""

from __future__ import annotations

import hmac
import re
import secrets

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from coeval.core.errors import StoreError, UsageError
from coeval.core.plain import plain, shortened

__all__ = ["ViewToken", "guarded", "json_answer", "refused"]

_HERE = re.compile(r"(?:127\.0\.0\.1|localhost|\[::1\])(?::\d{1,5})?")
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


def _same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), wanted.encode())


def json_answer(value: object, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), status=status, content_type=_JSON)


def refused(status: int, reason: str) -> web.Response:
    """``{"error": reason}``; what the reason quotes is escaped and shortened."""
    return json_answer({"error": shortened(plain(reason), _LONGEST_SAID)}, status)


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
