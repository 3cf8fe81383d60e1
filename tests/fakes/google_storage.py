"""Cloud Storage's JSON API, as far as batches use it: resumable uploads, lists by prefix, downloads.

After Google's reference; there is no official client among the tests' packages. Served by a host of Google's
beside its own paths: the tokens are the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from urllib.parse import unquote

from aiohttp import web

__all__ = ["GoogleStorage"]

_PAGE = 2
_PIECE = 256 << 10


@dataclass
class GoogleStorage:
    """``buckets`` are those that there are; ``objects`` by bucket and name. Of an upload, the first ``torn``
    bytes arrive when it is next sent, and the connection breaks. Lists come in pages of two."""

    knows: Callable[[web.Request], bool]
    url: Callable[[], str]
    buckets: set[str] = field(default_factory=lambda: {"results-4711"})
    objects: dict[tuple[str, str], bytes] = field(default_factory=dict)
    sessions: dict[str, tuple[str, str, bytes]] = field(default_factory=dict)
    torn: int | None = None
    most_bytes: int = 5 << 40
    numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post("/upload/storage/v1/b/{bucket}/o", self.start),
            web.put("/upload/storage/v1/b/{bucket}/o", self.send),
            web.get("/storage/v1/b/{bucket}/o", self.list),
            web.get("/storage/v1/b/{bucket}/o/{name:.+}", self.get),
        ]

    async def start(self, request: web.Request) -> web.Response:
        if (refusal := self._refusal(request)) is not None:
            return refusal
        if request.query.get("uploadType") != "resumable" or not request.query.get("name"):
            return _error(400, "Bad Request: uploadType and name are required")
        if int(request.headers.get("X-Upload-Content-Length", 0)) > self.most_bytes:
            return _error(413, "Your client issued a request that was too large.")
        bucket, name = request.match_info["bucket"], request.query["name"]
        session = f"s{next(self.numbers)}"
        self.sessions[session] = bucket, name, b""
        address = f"{self.url()}/upload/storage/v1/b/{bucket}/o?uploadType=resumable&upload_id={session}"
        return web.Response(headers={"Location": address})

    async def send(self, request: web.Request) -> web.Response:
        """All that is left of an object, or a piece of it. What is there already is passed over."""
        session = request.query.get("upload_id", "")
        if session not in self.sessions:
            return _error(404, "No such upload.")
        bucket, name, held = self.sessions[session]
        if self.torn is not None:
            torn, self.torn = self.torn, None
            self.sessions[session] = bucket, name, await request.content.readexactly(torn)
            assert request.transport is not None
            request.transport.close()
            return web.Response()
        content = await request.read()
        said = request.headers.get("Content-Range", f"bytes 0-{len(content) - 1}/{len(content)}")
        found = re.fullmatch(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)", said)
        if found is None:
            return _error(400, "Invalid Content-Range.")
        if found[1] is not None:
            first = int(found[1])
            if first > len(held) or int(found[2]) - first + 1 != len(content):
                return _error(400, "The range does not follow what is there.")
            held = held[:first] + content
        if found[3] == "*" or len(held) < int(found[3]):
            if len(held) % _PIECE:
                return _error(400, "A piece that is not the last is a multiple of 256 KiB.")
            self.sessions[session] = bucket, name, held
            return web.Response(status=308, headers={"Range": f"bytes=0-{len(held) - 1}"} if held else {})
        self.objects[bucket, name] = held
        del self.sessions[session]
        return web.json_response({"kind": "storage#object", "name": name, "size": str(len(held))})

    async def list(self, request: web.Request) -> web.Response:
        if (refusal := self._refusal(request)) is not None:
            return refusal
        bucket, prefix = request.match_info["bucket"], request.query.get("prefix", "")
        names = sorted(name for place, name in self.objects if place == bucket and name.startswith(prefix))
        start = int(request.query.get("pageToken", 0))
        page: dict[str, object] = {"kind": "storage#objects"}
        if names:
            page["items"] = [
                {"name": name, "size": str(len(self.objects[bucket, name]))}
                for name in names[start : start + _PAGE]
            ]
        if start + _PAGE < len(names):
            page["nextPageToken"] = str(start + _PAGE)
        return web.json_response(page)

    async def get(self, request: web.Request) -> web.Response:
        if (refusal := self._refusal(request)) is not None:
            return refusal
        raw = re.search(r"/o/([^/?]+)(\?|$)", request.raw_path)
        found = self.objects.get((request.match_info["bucket"], unquote(raw[1]))) if raw else None
        if found is None:
            return _error(404, "No such object.")
        if request.query.get("alt") != "media":
            return web.json_response({"size": str(len(found))})
        return web.Response(body=found, content_type="application/octet-stream")

    def _refusal(self, request: web.Request) -> web.Response | None:
        if not self.knows(request):
            return _error(401, "Invalid Credentials")
        if request.match_info["bucket"] not in self.buckets:
            return _error(404, "The specified bucket does not exist.")
        return None


def _error(status: int, message: str) -> web.Response:
    error = {"code": status, "message": message, "errors": [{"message": message, "domain": "global"}]}
    return web.json_response({"error": error}, status=status)
