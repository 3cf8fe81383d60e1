"""The forms that a secret takes: as it is, encoded, escaped, spaced out.

A host may repeat a credential in any of them, and so may a model that was shown one. `spellings` are
literal texts; `VIEWS` undo what is done to a text character by character.
"""

from __future__ import annotations

import codecs
import html
import json
import re
import unicodedata
from base64 import b32encode, b64encode
from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import quote

__all__ = ["PART", "VIEWS", "TextView", "ascii_lower", "is_common", "is_weak", "spellings"]

PART = 8
"""Characters. Fewer of a secret are no secret; so many in a row are one, where it was cut."""

_LONGEST_WORDS = 20
_LONGEST_NUMBER = 16
_FEWEST_DISTINCT = 6
_WORDS = re.compile(r"[A-Za-z]?(?:[a-z]+|[A-Z]+)(?:[-_. ][A-Za-z]?(?:[a-z]+|[A-Z]+))*")

_LOWER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}


def ascii_lower(text: str) -> str:
    """In lower case, of the same length as before."""
    return text.translate(_LOWER)


def is_common(text: str) -> bool:
    """Whether honest text may well hold it: words of fewer than 20 letters (``ollama``, ``EMPTY``,
    ``not-needed``), a number of fewer than 16 digits, fewer than 6 different signs."""
    return (
        (len(text) < _LONGEST_WORDS and _WORDS.fullmatch(text) is not None)
        or (len(text) < _LONGEST_NUMBER and text.isdecimal())
        or (len(text) >= PART and len(set(text.lower())) < _FEWEST_DISTINCT)
    )


def is_weak(secret: str) -> bool:
    """Whether it is no credential worth the name, and so is not looked for in answers: it `is_common`, or has
    fewer than 8 characters."""
    return len(secret) < PART or is_common(secret)


def spellings(secret: str) -> list[str]:
    """The texts that stand for a secret, in lower case; the first is the secret itself."""
    data = secret.encode()
    texts = [
        secret,
        quote(secret, safe=""),
        json.dumps(secret)[1:-1],
        secret.replace("/", "\\/"),
        html.escape(secret),
        secret[::-1],
        codecs.encode(secret, "rot13"),
        data.hex(),
        b32encode(data).decode().rstrip("="),
    ]
    for standard in _base64(data):
        texts += [standard, standard.replace("+", "-").replace("/", "_")]
    return list(dict.fromkeys(map(ascii_lower, texts)))


def _base64(data: bytes) -> Iterator[str]:
    """What of the base64 of a text depends on ``data`` alone, for each place that it may begin at."""
    for before in range(3):
        coded = b64encode(bytes(before) + data).decode().rstrip("=")
        after = (before + len(data)) % 3
        yield coded[(0, 2, 3)[before] : len(coded) - (1 if after else 0)]


class TextView(NamedTuple):
    """A text in lower case, with what stands for a character replaced by that character.

    ``starts`` and ``places`` say of each piece where it begins in ``text``, and where it stood before.
    """

    text: str
    starts: list[int]
    places: list[tuple[int, int]]

    @classmethod
    def of(cls, text: str, folded: re.Pattern[str]) -> TextView:
        """``text`` with each match of ``folded``, one of `VIEWS`, replaced by what it means."""
        said: list[str] = []
        starts: list[int] = []
        places: list[tuple[int, int]] = []
        length = at = 0
        for match in (*folded.finditer(text), None):
            start, end = match.span() if match else (len(text), len(text))
            meaning = _meaning(match) if match else ""
            for piece, place in ((text[at:start], (at, start)), (meaning, (start, end))):
                if piece:
                    said.append(piece)
                    starts.append(length)
                    places.append(place)
                    length += len(piece)
            at = end
        return cls(ascii_lower("".join(said)), starts, places)

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Where ``text[start:end]`` stood before."""
        return self._place(start)[0], self._place(end - 1)[1]

    def _place(self, at: int) -> tuple[int, int]:
        """Where one character stood."""
        index = bisect_right(self.starts, at) - 1
        start, end = self.places[index]
        following = self.starts[index + 1] if index + 1 < len(self.starts) else len(self.text)
        if following - self.starts[index] == end - start:  # character for character
            start += at - self.starts[index]
            end = start + 1
        return start, end


def _meaning(match: re.Match[str]) -> str:
    """The character that a match of one of `VIEWS` stands for, by its group; "" for what means nothing."""
    found = match.group(match.lastgroup) if match.lastgroup else ""
    match match.lastgroup:
        case "hex":
            return _character(int(found, 16))
        case "decimal":
            return _character(int(found))
        case "named":
            return html.unescape(f"&{found};")
        case "wide":
            return unicodedata.normalize("NFKC", found)
        case _:
            return ""


def _character(code: int) -> str:
    return chr(code) if 0x20 < code < 0x7F else ""


_NOTHING = r"[\s\u00ad\u200b-\u200f\u2060\ufeff]+"
_ESCAPED = (
    r"(?:%(?:25)*|\\+x|\\+u00|&(?:amp;)*\#x0*)(?P<hex>[0-9a-f]{2})[};]?"
    r"|&(?:amp;)*\#0*(?P<decimal>\d{2,3});?"
    r"|&(?:amp;)*(?P<named>[a-z]{2,8});"
    r"|\\+[nrt]?"
)
VIEWS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"{_NOTHING}|(?P<wide>[\uff01-\uff5e\U0001d400-\U0001d7ff])",
        rf"{_NOTHING}|{_ESCAPED}",
        r"[\W_]+",
    )
)
"""What is undone: blanks within, and wide letters; the escapes of URLs, JSON, Python and HTML; whatever is
no letter or digit. They are apart because each may also eat what is meant as it stands."""
