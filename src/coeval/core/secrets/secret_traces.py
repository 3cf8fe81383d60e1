"""Whether a text can hold a secret at all: asked of every answer, so it costs what searching it once does."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

from coeval.core.secrets.secret_forms import PART, spellings

__all__ = ["Traces"]

_FREQUENT = " etaoinsrhldcumfpgwybvk\xe2\x80,.-_/'\":;()xjqz0123456789"
"""What honest text consists of, as `_as_bytes` has it, the more frequent first."""
_LEAST = 4
"""Bytes of a trace."""


class Traces:
    """Short texts of which at least one stands in every text that holds one of ``secrets``.

    That is: whole, in any of the forms that `secret_forms` knows and in any case; or, as it is, at least
    its first or its last 8 characters. Each trace begins with a sign that is rare, and is only looked for
    where that is found.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        marked: defaultdict[str, list[str]] = defaultdict(list)
        for trace in dict.fromkeys(trace for secret in secrets for trace in _traces(secret)):
            marked[trace[0]].append(trace)
        self._marked = [(mark, _any_of(mark, traces)) for mark, traces in marked.items()]

    def may_be_in(self, text: str) -> bool:
        if len(text) < PART:
            return False
        said = text.lower() if text.isascii() else _as_bytes(text)
        for mark, search in self._marked:  # noqa: SIM110  a generator costs as much as the search
            if mark in said and search(said):
                return True
        return False


def _traces(secret: str) -> Iterator[str]:
    plain, *coded = spellings(secret)
    yield _rarest(plain[:PART], _LEAST)
    yield _rarest(plain[-PART:], _LEAST)
    yield _rarest(plain, PART)
    for spelling in coded:  # they may be broken into lines
        yield from (_rarest(third, PART) for third in _thirds(spelling))
    for first in {secret[0].lower(), secret[0].upper()}:
        code = ord(first)
        yield from (f"%{code:02x}", f"%25{code:02x}", f"\\u{code:04x}", f"\\x{code:02x}")
        yield from (f"#{code};", f"#x{code:x};", _as_bytes(_wide(first)))
    yield _rarest(" ".join(f"{byte:02x}" for byte in secret.encode()[:3]), _LEAST)
    for between in (" ", "\n", "\u200b"):
        yield _rarest(between.join(plain[:7]), PART)


def _thirds(text: str) -> list[str]:
    size = max(PART, -(-len(text) // 3))
    return [text[max(0, min(start, len(text) - size)) :][:size] for start in range(0, len(text), size)]


def _any_of(mark: str, traces: list[str]) -> Callable[[str], object]:
    """Search for traces that begin with ``mark``; patterns that begin with one sign are searched for fast."""
    rest = "|".join(re.escape(trace[1:]) for trace in traces)
    return re.compile(f"{re.escape(mark)}(?:{rest})").search


def _as_bytes(text: str) -> str:
    """The bytes of a text as characters, its Latin letters in lower case; `str.lower` would be slow here."""
    return text.encode("utf-8", "surrogatepass").lower().decode("latin-1")


def _rarest(text: str, length: int) -> str:
    """``length`` characters of a text or a few more, from one on that honest text seldom has."""
    said = _as_bytes(text)
    starts = range(max(1, len(said) - length + 1))
    start = max(starts, key=lambda at: (_rarity(said[at]), -at))
    return said[start : start + PART]


def _rarity(sign: str) -> int:
    found = _FREQUENT.find(sign)
    return found if found >= 0 else len(_FREQUENT)


def _wide(sign: str) -> str:
    return chr(ord(sign) + 0xFEE0) if "!" <= sign <= "~" else sign
