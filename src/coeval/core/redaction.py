"""Redaction: keep credentials out of answers and messages.

Answers are measured, so only known secrets are removed from them. Messages are for people, so whatever looks
like a secret goes too. Both happen before a text is cut.
"""

from __future__ import annotations

import html
import json
import re
from base64 import b64encode
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple
from urllib.parse import quote

from coeval.core.shown_url import KEY_SHAPED, hide_url_secrets, is_key_like

# --- Spellings of a secret
#
# A host may repeat a credential as it is, in base64, or escaped for a URL, JSON or HTML; so may a model that
# was shown one. `spellings` are literal texts; `VIEWS` undo escapes character by character. Other disguises
# take intent, and whoever means harm has the credential already.

# Characters: shorter parts of a secret are harmless; as many in a row, left over by a cut, are redacted.
PART = 8

# Placeholders in place of a key ("not-needed") are shorter.
_LONGEST_WORDS = 20
# Shorter numbers are ports, dates and counts, which answers are full of.
_LONGEST_NUMBER = 16
# Random text of `PART` characters nearly always has as many; "xxxxxxxx" and "12341234" have not.
_FEWEST_DISTINCT = 6
_WORDS = re.compile(r"[A-Za-z]?(?:[a-z]+|[A-Z]+)(?:[-_. ][A-Za-z]?(?:[a-z]+|[A-Z]+))*")

_LOWER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}


def ascii_lower(text: str) -> str:
    """Convert ASCII letters to lower case, and no others, so that the length stays."""
    return text.translate(_LOWER)


def is_too_common(text: str) -> bool:
    """Check whether a text is too common to be a secret: words of fewer than 20 letters (``ollama``,
    ``EMPTY``, ``not-needed``), a number of fewer than 16 digits, fewer than 6 distinct characters."""
    return (
        (len(text) < _LONGEST_WORDS and _WORDS.fullmatch(text) is not None)
        or (len(text) < _LONGEST_NUMBER and text.isdecimal())
        or (len(text) >= PART and len(set(text.lower())) < _FEWEST_DISTINCT)
    )


def is_weak(secret: str) -> bool:
    """Check whether a secret is too weak to search answers for: common, or under 8 characters."""
    return len(secret) < PART or is_too_common(secret)


def spellings(secret: str) -> list[str]:
    """List the spellings of a secret in lower case; the secret itself comes first."""
    data = secret.encode()
    texts = [
        secret,
        quote(secret, safe=""),
        json.dumps(secret)[1:-1],
        secret.replace("/", "\\/"),
        html.escape(secret),
    ]
    for standard in _stable_base64(data):
        texts += [standard, standard.replace("+", "-").replace("/", "_")]
    return list(dict.fromkeys(map(ascii_lower, texts)))


def _stable_base64(data: bytes) -> Iterator[str]:
    """Yield the base64 of ``data`` that no neighbouring byte changes, for each of three alignments."""
    for before in range(3):
        coded = b64encode(bytes(before) + data).decode().rstrip("=")
        after = (before + len(data)) % 3
        yield coded[(0, 2, 3)[before] : len(coded) - (1 if after else 0)]


class TextView(NamedTuple):
    """A text in lower case with escapes replaced by the characters they stand for. ``starts`` and ``places``
    give, for each piece, its position in ``text`` and in the original."""

    text: str
    starts: list[int]
    places: list[tuple[int, int]]

    @classmethod
    def of(cls, text: str, pattern: re.Pattern[str]) -> TextView:
        """Replace each match of ``pattern``, one of `VIEWS`, by its meaning."""
        pieces: list[str] = []
        starts: list[int] = []
        places: list[tuple[int, int]] = []
        length = at = 0
        for match in (*pattern.finditer(text), None):
            start, end = match.span() if match else (len(text), len(text))
            meaning = _unescape_match(match) if match else ""
            for piece, original in ((text[at:start], (at, start)), (meaning, (start, end))):
                if piece:
                    pieces.append(piece)
                    starts.append(length)
                    places.append(original)
                    length += len(piece)
            at = end
        return cls(ascii_lower("".join(pieces)), starts, places)

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Map ``text[start:end]`` to its span in the original."""
        return self._original_span_of(start)[0], self._original_span_of(end - 1)[1]

    def _original_span_of(self, at: int) -> tuple[int, int]:
        """Return the original span of one character."""
        index = bisect_right(self.starts, at) - 1
        start, end = self.places[index]
        following = self.starts[index + 1] if index + 1 < len(self.starts) else len(self.text)
        if following - self.starts[index] == end - start:  # character for character
            start += at - self.starts[index]
            end = start + 1
        return start, end


def _unescape_match(match: re.Match[str]) -> str:
    """Return the character that a match of one of `VIEWS` stands for, or ""."""
    digits = match.group(match.lastgroup) if match.lastgroup else ""
    match match.lastgroup:
        case "hex":
            return _printable_character(int(digits, 16))
        case "decimal":
            return _printable_character(int(digits))
        case "named":
            return html.unescape(f"&{digits};")
        case _:
            return ""


def _printable_character(code: int) -> str:
    return chr(code) if 0x20 < code < 0x7F else ""


_ESCAPED = (
    r"(?:%(?:25)*|\\+x|\\+u00|&(?:amp;)*\#x0*)(?P<hex>[0-9a-f]{2})[};]?"
    r"|&(?:amp;)*\#0*(?P<decimal>\d{2,3});?"
    r"|&(?:amp;)*(?P<named>[a-z]{2,8});"
    r"|\\+[nrt]?"
)
VIEWS = (re.compile(r"\s+"), re.compile(rf"\s+|{_ESCAPED}", re.IGNORECASE))
"""What to undo: line breaks and blanks; with them the escapes of URLs, JSON, Python and HTML. Apart, since an
escape may be literal characters of a secret."""


# --- Quick test for texts without secrets

# What honest text consists of, as `_lower_bytes` has it, the more frequent first; -1, what is not in it, is
# taken for the place after the last.
_FREQUENT = " etaoinsrhldcumfpgwybvk\xe2\x80,.-_/'\":;()xjqz0123456789"
# Bytes of a trace.
_LEAST = 4


class Traces:
    """Short texts of which every text that holds one of ``secrets`` contains at least one.

    That is: whole, in any spelling of `spellings` and any case; or its first or last 8 characters, unescaped.
    Each trace begins with a rare character, and is searched for only where that occurs.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        marked: defaultdict[str, list[str]] = defaultdict(list)
        for trace in dict.fromkeys(trace for secret in secrets for trace in _choose_traces(secret)):
            marked[trace[0]].append(trace)
        # Patterns that begin with one sign are searched for fast.
        rests = {mark: "|".join(re.escape(trace[1:]) for trace in traces) for mark, traces in marked.items()}
        self._marked = [
            (mark, re.compile(f"{re.escape(mark)}(?:{rest})").search) for mark, rest in rests.items()
        ]

    def may_be_in(self, text: str) -> bool:
        """Check quickly whether a text may hold one of the secrets."""
        if len(text) < PART:
            return False
        lowered = text.lower() if text.isascii() else _lower_bytes(text)
        for mark, search in self._marked:  # noqa: SIM110  a generator costs as much as the search
            if mark in lowered and search(lowered):
                return True
        return False


def _choose_traces(secret: str) -> Iterator[str]:
    plain, *coded = spellings(secret)
    yield _rarest_trace(plain[:PART], _LEAST)
    yield _rarest_trace(plain[-PART:], _LEAST)
    yield _rarest_trace(plain, PART)
    for spelling in coded:  # they may be broken into lines: each third has a trace
        size = max(PART, -(-len(spelling) // 3))
        for start in range(0, len(spelling), size):
            yield _rarest_trace(spelling[max(0, min(start, len(spelling) - size)) :][:size], PART)
    for first in {secret[0].lower(), secret[0].upper()}:
        code = ord(first)
        yield from (f"%{code:02x}", f"%25{code:02x}", f"\\u{code:04x}", f"\\x{code:02x}")
        yield from (f"#{code};", f"#x{code:x};")


def _lower_bytes(text: str) -> str:
    """Return a text's bytes as characters, Latin letters in lower case; `str.lower` would be slow here."""
    return text.encode("utf-8", "surrogatepass").lower().decode("latin-1")


def _rarest_trace(text: str, length: int) -> str:
    """Cut ``length`` characters or a few more out of a text, from its rarest one in honest text on."""
    lowered = _lower_bytes(text)
    starts = range(max(1, len(lowered) - length + 1))
    start = max(starts, key=lambda at: (_FREQUENT.find(lowered[at]) % (len(_FREQUENT) + 1), -at))
    return lowered[start : start + PART]


REDACTED = "[redacted]"

# Characters in a row that are a part of a secret wherever they stand, if they might be one by themselves.
_LONG_PART = 12
# Characters of a text that holds a secret. What follows goes too: no answer is so long, and to read all that
# a host may send would take half a minute.
_MOST = 1 << 22
# Characters. A secret of no more than these, up to `PART`, is taken out of messages as a word of its own.
_SHORT = 4

# Characters of a model's id; longer ones are looked for in vain.
_LONGEST_NAME = 256
_CUT = ("…", "...", "**", "•")
_QUOTES = " \t\r\n\"'`"
_OPENING, _CLOSING = f"{_QUOTES}([{{<", f"{_QUOTES})]}}>,;:.!?"
# Quotes, brackets and an ellipsis around an excerpt, and no word of text.
_REACH = 16


class _SpellingPart(NamedTuple):
    """Where a spelling has a part: the spelling's number, and how far into it."""

    spelling: int
    offset: int


class Redactor:
    """Redacts ``secrets``. Weak ones (see `is_weak`) stay in answers.

    ``on_redaction`` is called whenever an answer held one. ``names`` are public names of models: a local
    server's key is often its model's name. Such a key is no secret, and a name that is part of a key stays
    where it occurs alone; a name that looks like a key is not public.
    """

    def __init__(
        self,
        secrets: Iterable[str] = (),
        on_redaction: Callable[[], None] = lambda: None,
        names: Iterable[str] = (),
    ) -> None:
        """Compile the searches: strong secrets are searched for by their traces, short ones as words."""
        self._on_redaction = on_redaction
        self._names = _compile_names(names)
        unnamed = [s for s in dict.fromkeys(text.strip() for text in secrets) if not self._names.fullmatch(s)]
        self._strong = [secret for secret in unnamed if not is_weak(secret)]
        # Several words, such as `sk-test-key`, may be honest in an answer; a message can do without them.
        short = [
            s for s in unnamed if len(s) >= _SHORT and is_weak(s) and not (is_too_common(s) and s.isalnum())
        ]
        self._short = re.compile(
            "|".join(rf"(?<!\w){re.escape(secret)}(?!\w)" for secret in short) or r"(?!)"
        )
        self._traces = Traces(self._strong)
        # Whether there is any secret to redact in answers.
        self.knows_any = bool(self._strong)

    def redact_answer(self, text: str) -> str:
        """Redact an answer: secrets in any spelling, and parts of them at a cut. A clean text costs about as
        much as one search."""
        if not self._traces.may_be_in(text):
            return text
        redacted = self._redact_in_views(text, VIEWS, strict=False)
        if redacted != text:
            self._on_redaction()
        return redacted

    def redact_message(self, text: str) -> str:
        """Redact a foreign message: secrets, keys of known hosts, passwords and keys in URLs."""
        return hide_url_secrets(KEY_SHAPED.sub(REDACTED, self.redact_own_message(text)))

    def redact_own_message(self, text: str) -> str:
        """Redact our own message: secrets, and any 8 characters in a row of one."""
        if self._strong:
            views = VIEWS if self._traces.may_be_in(text) else VIEWS[:1]
            text = self._redact_in_views(text, views, strict=True)
        return self._short.sub(REDACTED, text)

    @cached_property
    def _blankless_lower_spellings(self) -> list[str]:
        """Return every spelling of every secret, without blanks, as the views have none."""
        spelled = (spelling for secret in self._strong for spelling in spellings(secret))
        return list(dict.fromkeys("".join(spelling.split()) for spelling in spelled))

    @cached_property
    def _token_heads(self) -> tuple[str, ...]:
        """Return the first parts of JWTs, which say how the tokens are signed and are no secrets."""
        return tuple(secret.partition(".")[0].lower() for secret in self._strong if secret.startswith("eyJ"))

    @cached_property
    def _parts_of_spellings(self) -> dict[str, list[_SpellingPart]]:
        """Map each run of `PART` characters to its places in the spellings."""
        parts: defaultdict[str, list[_SpellingPart]] = defaultdict(list)
        for number, spelling in enumerate(self._blankless_lower_spellings):
            for offset in range(len(spelling) - PART + 1):
                parts[spelling[offset : offset + PART]].append(_SpellingPart(number, offset))
        return dict(parts)

    def _redact_in_views(self, text: str, views: Sequence[re.Pattern[str]], *, strict: bool) -> str:
        """Replace the secrets seen in any of the ``views``; ``strict``: any run of `PART` characters."""
        if len(text) > _MOST:
            return self._redact_in_views(text[:_MOST], views, strict=strict) + REDACTED
        spans = sorted(
            span
            for folded in views
            for span in self._find_secret_spans(text, TextView.of(text, folded), strict)
        )
        kept: list[str] = []
        at = 0
        for start, end in spans:
            if start >= at:
                kept += (text[at:start], REDACTED)
            at = max(at, end)
        return "".join((*kept, text[at:]))

    def _find_secret_spans(self, text: str, view: TextView, strict: bool) -> Iterator[tuple[int, int]]:
        """Yield the spans of ``text`` that hold secrets or parts of them, as ``view`` shows the text."""
        viewed, parts, at = view.text, self._parts_of_spellings, 0
        while at <= len(viewed) - PART:
            candidates = parts.get(viewed[at : at + PART])
            if candidates is None:
                at += 1
                continue
            end, part = max((self._find_match_end(viewed, at, part), part) for part in candidates)
            span = view.span(at, end)
            secret = (
                strict or self._is_secret(part, end - at) or self._is_left_over(part, end - at, text, span)
            )
            if secret and not self._is_part_of_name(text, span):
                yield span
            at = end

    def _find_match_end(self, viewed: str, at: int, part: _SpellingPart) -> int:
        """Return the index up to which ``viewed`` continues as the spelling does."""
        spelling = self._blankless_lower_spellings[part.spelling]
        most = min(len(spelling) - part.offset, len(viewed) - at)
        for length in range(PART, most):
            if viewed[at + length] != spelling[part.offset + length]:
                return at + length
        return at + most

    def _is_part_of_name(self, text: str, span: tuple[int, int]) -> bool:
        """Check whether a span is part of an open name that occurs there."""
        start, end = span
        near = self._names.finditer(text, max(0, start - _LONGEST_NAME), end + _LONGEST_NAME)
        return any(name.start() <= start and end <= name.end() for name in near)

    def _is_secret(self, part: _SpellingPart, length: int) -> bool:
        """Check whether a run gives a secret away wherever it occurs: all of it, or a long part."""
        spelling = self._blankless_lower_spellings[part.spelling]
        if length == len(spelling):
            return True
        public = max((len(head) for head in self._token_heads if spelling.startswith(head)), default=0)
        run = spelling[max(part.offset, public) : part.offset + length]
        return len(run) >= _LONG_PART and not is_weak(run)

    def _is_left_over(self, part: _SpellingPart, length: int, text: str, span: tuple[int, int]) -> bool:
        """Check whether a run is what a cut left of a secret: the text is cut where the run is incomplete."""
        start, end = span
        begins = part.offset == 0 or _begins_at_cut(text, start)
        whole_end = len(self._blankless_lower_spellings[part.spelling]) == part.offset + length
        return begins and (whole_end or _ends_at_cut(text, end))


def _compile_names(names: Iterable[str]) -> re.Pattern[str]:
    """Compile a pattern of the models' names and of the last parts of their ids, longer ones first."""
    parts = {part for name in names for part in (name, name.rpartition("/")[2]) if part}
    short = (name for name in parts if len(name) <= _LONGEST_NAME)
    usable = sorted((name for name in short if not is_key_like(name)), key=lambda name: (-len(name), name))
    return re.compile("|".join(map(re.escape, usable)) or r"(?!)", re.IGNORECASE)


def _begins_at_cut(text: str, start: int) -> bool:
    """Check whether the text begins at ``start``, or shows an omission before it."""
    before = text[max(0, start - _REACH) : start].rstrip(_OPENING)
    return before.endswith(_CUT) or (not before and start <= _REACH)


def _ends_at_cut(text: str, end: int) -> bool:
    after = text[end : end + _REACH].lstrip(_QUOTES)
    return after.startswith(_CUT) or (not after.strip(_CLOSING) and len(text) - end <= _REACH)
