"""An answer to a batch's request, its body into memory or to disk."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import aiohttp

from coeval.core.errors import StoreError
from coeval.models.connections.body import Body
from coeval.models.connections.reply_parser import HttpReply
from coeval.store.jsonl import store_error

__all__ = ["read_reply"]

_LARGEST_DOWNLOAD: Final = 1 << 34
"""Bytes. No provider's results are as large; a host does not fill the disk."""
_CHUNK = 1 << 20


async def read_reply(response: aiohttp.ClientResponse, into: Path | None) -> HttpReply:
    """The answer; of one that goes to disk, without its body."""
    headers: dict[str, str] = {}
    for name, value in response.headers.items():
        headers.setdefault(name.lower(), value)
    body = Body()
    if into is None or not 200 <= response.status < 300:
        async for piece in response.content.iter_any():
            body.take(piece)
        return HttpReply.read(response.status, headers, body)
    await _write(response, into)
    return HttpReply(response.status, headers, b"")


async def _write(response: aiohttp.ClientResponse, into: Path) -> None:
    received = 0
    try:
        file = into.open("wb")
    except OSError as error:
        raise store_error("write to", into, error) from error
    with file:
        async for piece in response.content.iter_chunked(_CHUNK):
            received += len(piece)
            if received > _LARGEST_DOWNLOAD:
                raise StoreError(f"{into}: the host sends more than {_LARGEST_DOWNLOAD >> 30} GiB of results")
            try:
                file.write(piece)
            except OSError as error:
                raise store_error("write to", into, error) from error
