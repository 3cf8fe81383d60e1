"""Data within a page: gzip, then base64, in script elements of a type that no browser runs."""

from __future__ import annotations

import base64
import gzip
from typing import Any, NamedTuple

import msgspec

__all__ = ["DataBlock", "bytes_block", "json_block"]

_LEVEL = 6


class DataBlock(NamedTuple):
    """``text`` is base64 of gzip, so that no data can end its element."""

    name: str
    text: str


def json_block(name: str, value: Any) -> DataBlock:
    return bytes_block(name, msgspec.json.encode(value))


def bytes_block(name: str, data: bytes) -> DataBlock:
    return packed_block(name, gzip.compress(data, _LEVEL, mtime=0))


def packed_block(name: str, packed: bytes) -> DataBlock:
    """Of data that is gzipped already."""
    return DataBlock(name, base64.b64encode(packed).decode())
