"""Whom the server answers: pages of its own, in browsers of this machine, and programs that are no page.

Any page that somebody opens can send requests to this machine. One whose name was led here (DNS rebinding)
shows in ``Host``; one that writes from elsewhere shows in ``Origin`` and ``Sec-Fetch-Site``, or cannot say
that it sends JSON without asking first, which nobody here allows.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

import msgspec
from aiohttp import web

from coeval.core.errors import StoreError, UsageError
from coeval.core.plain import plain, shortened

__all__ = ["guarded", "json_answer", "refused"]

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

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def json_answer(value: object, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), status=status, content_type=_JSON)


def refused(status: int, reason: str) -> web.Response:
    """``{"error": reason}``; what the reason quotes is escaped and shortened."""
    return json_answer({"error": shortened(plain(reason), _LONGEST_SAID)}, status)


@web.middleware
async def guarded(request: web.Request, handler: _Handler) -> web.StreamResponse:
    """Refuse what comes from elsewhere; say errors as JSON; tell browsers what our pages may do."""
    response = _refusal(request) or await _answer(request, handler)
    for name, value in _HEADERS.items():
        response.headers.setdefault(name, value)
    response.headers.setdefault("Content-Security-Policy", POLICY)
    return response


async def _answer(request: web.Request, handler: _Handler) -> web.StreamResponse:
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
    if site not in ("same-origin", "none") and _asks_for_data(request):
        return refused(403, "this is answered to pages of its own only")
    if request.method in ("GET", "HEAD"):
        return None
    origin = request.headers.get("Origin")
    if site not in ("same-origin", "none") or origin not in (None, f"http://{host}"):
        return refused(403, "pages from elsewhere may not write here")
    if request.content_type != _JSON:
        return refused(415, f"send {_JSON}")
    return None


def _asks_for_data(request: web.Request) -> bool:
    """Whether anything else is asked for than a page to be looked at, to which a link may lead."""
    return request.headers.get("Sec-Fetch-Mode", "navigate") != "navigate"
