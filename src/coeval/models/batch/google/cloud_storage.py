"""Objects in Google's Cloud Storage, by its JSON API: what Vertex AI's batches read and write."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final
from urllib.parse import quote

import msgspec

from coeval.core.errors import Unreadable, UsageError
from coeval.models.batch.batch_answers import read_answer
from coeval.models.batch.batch_http import BatchHttp
from coeval.models.transport.network import redirected_by

__all__ = ["EMULATOR", "CloudStorage"]

EMULATOR: Final = "STORAGE_EMULATOR_HOST"
"""The variable by which Google's own clients are led to another address."""
_URL = "https://storage.googleapis.com"
_BUCKET = re.compile(r"(?:gs://)?([a-z0-9][a-z0-9._-]{1,220}[a-z0-9])((?:/[\w.-]+)*)/?", re.ASCII)
_MOST_PAGES = 10_000


class _StoredObject(msgspec.Struct, frozen=True):
    name: str


class _ObjectPage(msgspec.Struct, rename="camel", frozen=True):
    items: list[_StoredObject] = []
    next_page_token: str | None = None


class CloudStorage:
    """One bucket, or a folder in it: ``place`` is ``bucket``, ``bucket/folder`` or ``gs://bucket/folder``.

    It is asked as whoever asks at ``http``. Names of objects are those below the folder.

    Raises
    ------
    UsageError
        that is no bucket, or the address in the environment is none.
    """

    def __init__(self, http: BatchHttp, place: str) -> None:
        found = _BUCKET.fullmatch(place.strip())
        if found is None:
            raise UsageError(
                f"batch_gcs_bucket: `{place}` is no bucket of Cloud Storage; it reads like my-bucket, or "
                "my-bucket/folder."
            )
        self._bucket = found[1]
        self._above = found[2].removeprefix("/") + "/" if found[2] else ""
        self._http = http.at(redirected_by(EMULATOR, scheme="http") or _URL, http.signer)

    def uri(self, name: str) -> str:
        return f"gs://{self._bucket}/{self._above}{name}"

    async def put(self, name: str, file: Path, size: int) -> None:
        """Store a file of ``size`` bytes: an address for it is asked for, and the file sent there. What has
        arrived there is passed over if it is sent again."""
        path = f"/upload/storage/v1/b/{self._bucket}/o?uploadType=resumable&name={self._quoted(name)}"
        headers = {"X-Upload-Content-Length": str(size), "X-Upload-Content-Type": "application/jsonl"}
        started = await self._http.exchange("POST", path, b"{}", headers=headers, repeatable=True)
        session = started.headers.get("location")
        if not session:
            raise Unreadable("Cloud Storage takes an object, and names no address for it")
        await self._http.upload("PUT", session, file)

    async def uris(self, uri: str) -> list[str]:
        """The objects whose URI begins so."""
        prefix, token, found = self._name(uri), "", list[str]()
        for _ in range(_MOST_PAGES):
            query = f"?prefix={quote(prefix, safe='')}{token}"
            body = await self._http.call("GET", f"/storage/v1/b/{self._bucket}/o{query}")
            page = read_answer(body, _ObjectPage, "a list of objects")
            found += [f"gs://{self._bucket}/{each.name}" for each in page.items]
            if not page.next_page_token:
                break
            token = f"&pageToken={quote(page.next_page_token, safe='')}"
        return found

    async def get(self, uri: str, into: Path) -> None:
        path = f"/storage/v1/b/{self._bucket}/o/{quote(self._name(uri), safe='')}?alt=media"
        await self._http.download(path, into)

    def _name(self, uri: str) -> str:
        """The name of an object of this bucket."""
        before = f"gs://{self._bucket}/"
        if not uri.startswith(before):
            raise Unreadable(f"the results are said to be at {uri[:200]}, which is not in {self._bucket}")
        return uri.removeprefix(before)

    def _quoted(self, name: str) -> str:
        return quote(self._above + name, safe="")
