"""Packed bodies: the same bytes each time, and some that fill a memory."""

from __future__ import annotations

import gzip
import zlib


def packed(body: bytes) -> bytes:
    return gzip.compress(body, mtime=0)


def bomb(mebibytes: int) -> bytes:
    """A gzip body that unpacks to so many zeros: a thousandth of its size."""
    packer = zlib.compressobj(9, wbits=31)
    first = packer.compress(bytes(1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
    again = packer.compress(bytes(1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)  # the same each time
    return first + again * (mebibytes - 1)
