"""Decode JSON from hosts, models and files that may be damaged; one error where it cannot be read.

The bytes may not be UTF-8, lists may nest beyond the stack, numbers may overflow; msgspec and the standard
library raise different exceptions for these, all of which are caught here.
"""

from __future__ import annotations

import json
import re
from codecs import BOM_UTF8
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar, overload

import msgspec

from coeval.core.errors import Misshapen, Undecodable

T = TypeVar("T")

# What decoding raises; ``str`` may hold a lone surrogate, and no integer has more than 4,300 digits.
_RAISED = (msgspec.MsgspecError, UnicodeError, RecursionError, ValueError)

# Characters: msgspec repeats tags and fields of what it reads.
_LONGEST_REASON = 300


@overload
def decode(data: bytes | str | msgspec.Raw) -> Any: ...
@overload
def decode(data: bytes | str | msgspec.Raw, kind: type[T]) -> T: ...
def decode(data: bytes | str | msgspec.Raw, kind: Any = Any) -> Any:
    """Decode JSON into the type ``kind``.

    Strings of fields that ``kind`` does not name are skipped unread, so they may hold bad UTF-8: see
    `decode_utf8`. A string becomes a ``Path`` where ``kind`` names one.

    Raises Undecodable: it is no JSON, or none that can be held: not UTF-8, nested too deep, numbers too
    large; Misshapen: it is JSON of another shape.
    """
    try:
        return msgspec.json.decode(data, type=kind, dec_hook=_decode_path)
    except _RAISED as error:
        if (rest := _data_after_byte_order_mark(data)) is not None:
            return decode(rest, kind)
        raise _map_decoding_error(error) from error


def decode_python(data: bytes, kind: type[T]) -> T:
    """Decode what Python's own encoder writes: JSON, but for the numbers NaN, Infinity and -Infinity. A
    number beyond every float is infinite too.

    Raises as `decode` does.
    """
    with suppress(Undecodable):
        return decode(data, kind)
    try:
        return convert(json.loads(data), kind)
    except _RAISED as error:
        raise _map_decoding_error(error) from error


# An escape in JSON: of two surrogates that make a character, of one alone, any other.
_ESCAPE = re.compile(r"\\(?:u[dD][89abAB]\w\w\\u[dD][c-fC-F]\w\w|(u[dD][89a-fA-F]\w\w)|.)")


def decode_replacing_surrogates(data: bytes) -> tuple[Any, bool]:
    """Decode JSON as some hosts write it; return whether characters were replaced as well. Surrogates that
    make no character become U+FFFD; NaN and Infinity null. Raises Undecodable: it is not JSON."""
    try:
        written = data.decode("utf-8", "surrogatepass")
        text = written.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        text = _ESCAPE.sub(lambda escape: r"\ufffd" if escape[1] else escape[0], text)
        value = json.loads(text, parse_int=parse_integer, parse_constant=lambda _: None)
        msgspec.json.encode(value)  # what does not nest too deep for this can be taken apart
    except _RAISED as error:
        raise _map_decoding_error(error) from error
    return value, text != written


def make_decoder(kind: type[T], fractions: Callable[[str], Any] | None = None) -> Callable[[bytes | str], T]:
    """Make a decoder for one type, faster for many lines. ``fractions``: see `make_lines_decoder`."""
    read = msgspec.json.Decoder(kind, dec_hook=_decode_path, float_hook=fractions).decode

    def decode_one(data: bytes | str) -> T:
        try:
            return read(data)
        except _RAISED as error:
            if (rest := _data_after_byte_order_mark(data)) is not None:
                return decode_one(rest)
            raise _map_decoding_error(error) from error

    return decode_one


def make_lines_decoder(
    kind: type[T], *, fractions: Callable[[str], Any] | None = None
) -> Callable[[list[bytes]], list[T | Undecodable]]:
    """Make a decoder for many lines at once, faster still: each line's value, or its error. ``fractions``
    makes a value of each number with a point or an exponent, as it is written."""
    read, read_one = msgspec.json.Decoder(kind, float_hook=fractions).decode, make_decoder(kind, fractions)

    def value_or_reason(line: bytes) -> T | Undecodable:
        try:
            return read_one(line)
        except Undecodable as error:
            return error

    def decode_lines(lines: list[bytes]) -> list[T | Undecodable]:
        try:
            return list(map(read, lines))
        except _RAISED:
            return list(map(value_or_reason, lines))

    return decode_lines


def _decode_path(kind: type, value: Any) -> Any:
    """Decode types that JSON lacks, for msgspec: a string as a ``Path``."""
    if kind is Path and isinstance(value, str):
        return Path(value)
    raise NotImplementedError(f"{kind.__name__} cannot be read")


def _data_after_byte_order_mark(data: bytes | str | msgspec.Raw) -> bytes | str | None:
    """Return the data after a byte order mark, which some editors write first; None without one."""
    if isinstance(data, str):
        return data[1:] if data.startswith("\ufeff") else None
    text = bytes(data)
    return text[len(BOM_UTF8) :] if text.startswith(BOM_UTF8) else None


def parse_integer(digits: str) -> int | float:
    """Parse digits as an integer; beyond 4,300 digits, which Python refuses, as infinity."""
    return int(digits) if len(digits) <= 4300 else float(digits)


def convert(value: Any, kind: type[T]) -> T:
    """Convert decoded data to ``kind``; raises Misshapen where it has another shape."""
    try:
        return msgspec.convert(value, kind, dec_hook=_decode_path)
    except _RAISED as error:
        raise _map_decoding_error(error) from error


def decode_utf8(data: bytes) -> str:
    """Decode UTF-8; raises Undecodable with the position of a bad byte."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise Undecodable(f"byte {error.start + 1} is not UTF-8") from error


def _map_decoding_error(error: Exception) -> Undecodable:
    match error:
        case RecursionError():
            return Undecodable("it is nested too deep")
        case UnicodeError():
            return Undecodable("a string in it is not UTF-8")
        case msgspec.ValidationError():
            return Misshapen(f"{error}"[:_LONGEST_REASON])
        case _:
            return Undecodable(f"{error}"[:_LONGEST_REASON])
