"""Objects in Amazon S3, by its REST API and signed requests: what Bedrock's batches read and write."""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from html import unescape
from pathlib import Path
from typing import Final
from urllib.parse import quote

from coeval.core.errors import ModelError, ServerFault, StoreError, Unreadable, UsageError
from coeval.core.plain_file import open_file
from coeval.models.batch.batch_http import BatchHttp
from coeval.models.hosts.signers import Signer
from coeval.models.transport.faults import excerpt
from coeval.store.jsonl import store_error

__all__ = ["S3Bucket", "bucket_and_folder"]

PART_BYTES: Final = 16 << 20
"""A larger object is sent in parts of this size, each signed and repeated by itself. S3 takes 10,000 parts,
of 5 MiB at least."""
_BUCKET = re.compile(r"(?:s3://)?([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])((?:/[\w.-]+)*)/?", re.ASCII)
_MOST_PAGES = 10_000


def bucket_and_folder(place: str) -> tuple[str, str]:
    """``bucket``, ``bucket/folder`` or ``s3://bucket/folder``, as a bucket and a prefix of keys.

    Raises
    ------
    UsageError
        it is none of them.
    """
    found = _BUCKET.fullmatch(place.strip())
    if found is None:
        raise UsageError(
            f"batch_s3_bucket: `{place}` is no bucket of Amazon S3; it reads like my-bucket, or "
            "my-bucket/folder."
        )
    return found[1], f"{found[2].removeprefix('/')}/" if found[2] else ""


class S3Bucket:
    """One bucket, asked through ``http`` as ``signer`` says; at AWS in ``region``, or at another ``address``,
    where S3 is asked by path."""

    def __init__(self, http: BatchHttp, bucket: str, region: str, signer: Signer, address: str = "") -> None:
        below = f"/{bucket}"
        if not address and "." not in bucket:  # a certificate holds for one label
            address, below = f"https://{bucket}.s3.{region}.amazonaws.com", ""
        self.name = bucket
        self._http = http.at((address or f"https://s3.{region}.amazonaws.com") + below, signer)

    async def put(self, key: str, file: Path, size: int) -> None:
        """Store a file of ``size`` bytes, in parts where it is large."""
        if size <= PART_BYTES:
            await self._http.call("PUT", _path(key), await asyncio.to_thread(_piece, file, 0))
            return
        started = (await self._http.call("POST", f"{_path(key)}?uploads=", b"", repeatable=True)).decode()
        upload = _text(started, "UploadId")
        if upload is None:
            raise Unreadable(f"S3 begins an upload without its id: {self._excerpt(started)}")
        path = f"{_path(key)}?uploadId={quote(upload, safe='')}"
        try:
            await self._put_parts(path, file, size)
        except (ModelError, StoreError):
            with suppress(ModelError):  # what went wrong first is told
                await self._http.call("DELETE", path)  # parts that nobody completes are paid for
            raise

    async def _put_parts(self, path: str, file: Path, size: int) -> None:
        parts = ""
        for number, offset in enumerate(range(0, size, PART_BYTES), 1):
            piece = await asyncio.to_thread(_piece, file, offset)
            reply = await self._http.exchange("PUT", f"{path}&partNumber={number}", piece)
            etag = reply.headers.get("etag", "")
            parts += f"<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>"
        wanted = f"<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>".encode()
        headers = {"Content-Type": "application/xml"}
        told = (await self._http.call("POST", path, wanted, headers=headers)).decode(errors="replace")
        if "<Error>" in told:  # S3 begins to answer before it is done
            raise ServerFault(f"S3 did not put an upload together: {self._excerpt(told)}")

    async def keys(self, prefix: str) -> list[str]:
        """The objects whose key begins so."""
        token, found = "", list[str]()
        for _ in range(_MOST_PAGES):
            query = f"list-type=2&prefix={quote(prefix, safe='')}{token}"
            page = (await self._http.call("GET", f"/?{query}")).decode(errors="replace")
            found += [unescape(key) for key in re.findall(r"<Key>([^<]*)</Key>", page)]
            following = _text(page, "NextContinuationToken")
            if following is None:
                break
            token = f"&continuation-token={quote(following, safe='')}"
        return found

    async def get(self, key: str, into: Path) -> None:
        await self._http.download(_path(key), into)

    def _excerpt(self, told: str) -> str:
        return excerpt(told, self._http.redactor)


def _path(key: str) -> str:
    return f"/{quote(key)}"


def _text(page: str, name: str) -> str | None:
    """The text of the first element of that name in S3's XML, which is flat where it is read here."""
    found = re.search(rf"<{name}>([^<]+)</{name}>", page)
    return unescape(found[1]) if found else None


def _piece(file: Path, offset: int) -> bytes:
    try:
        with open_file(file) as opened:
            opened.seek(offset)
            return opened.read(PART_BYTES)
    except OSError as error:
        raise store_error("read", file, error) from error
