"""Keeping credentials out of what hosts say: the one place that knows how.

Answers are what is measured, so only what is known to be secret is taken out of them. Messages are for
people, so whatever looks like a secret goes too. Both happen to a text before anything is cut off it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from coeval.core.secrets.key_shapes import KEY_SHAPED, is_key_like
from coeval.core.secrets.secret_forms import PART, VIEWS, TextView, is_common, is_weak, spellings
from coeval.core.secrets.secret_traces import Traces
from coeval.core.secrets.shown_url import without_url_secrets

__all__ = ["REDACTED", "Redactor"]

REDACTED = "[redacted]"

_LONG_PART = 12
"""Characters in a row that are a part of a secret wherever they stand, if they might be one by themselves."""
_MOST = 1 << 22
"""Characters of a text that holds a secret. What follows goes too: no answer is so long, and to read all that
a host may send would take half a minute."""
_SHORT = 4
"""Characters. A secret of no more than these, up to `PART`, is taken out of messages as a word of its own."""

_LONGEST_NAME = 256
"""Characters of a model's id; longer ones are looked for in vain."""
_CUT = ("…", "...", "**", "•")
_QUOTES = " \t\r\n\"'`"
_OPENING, _CLOSING = f"{_QUOTES}([{{<", f"{_QUOTES})]}}>,;:.!?"
_REACH = 16


class _Place(NamedTuple):
    """Where a spelling has a part: the spelling's number, and how far into it."""

    spelling: int
    offset: int


class Redactor:
    """Takes ``secrets`` out of text. What is no credential worth the name (see `is_weak`) stays in answers.

    ``found`` is called whenever an answer held one. ``names`` are those that models bear openly: a local
    server's key is often its model's name. Such a key is no secret, and a name that is a part of a key stays
    where it stands by itself; a name that looks like a key is no name.
    """

    def __init__(
        self,
        secrets: Iterable[str] = (),
        found: Callable[[], None] = lambda: None,
        names: Iterable[str] = (),
    ) -> None:
        self._found = found
        self._names = _open_names(names)
        known = [s for s in dict.fromkeys(each.strip() for each in secrets) if not self._names.fullmatch(s)]
        self._strong = [secret for secret in known if not is_weak(secret)]
        # Several words, such as `sk-test-key`, may be honest in an answer; a message can do without them.
        short = [s for s in known if len(s) >= _SHORT and is_weak(s) and not (is_common(s) and s.isalnum())]
        self._short = re.compile(
            "|".join(rf"(?<!\w){re.escape(secret)}(?!\w)" for secret in short) or r"(?!)"
        )
        self._traces = Traces(self._strong)

    @property
    def knows_any(self) -> bool:
        """Whether there is anything that an answer may not hold."""
        return bool(self._strong)

    def answer(self, text: str) -> str:
        """An answer without the secrets, in any spelling, and without parts of them at a cut.

        Text that holds none costs about as much as searching it once.
        """
        if not self._traces.may_be_in(text):
            return text
        redacted = self._without(text, VIEWS, strict=False)
        if redacted != text:
            self._found()
        return redacted

    def message(self, text: str) -> str:
        """What somebody else says in a message, without the secrets and without what looks like one: keys of
        known hosts, and passwords and keys in URLs."""
        return without_url_secrets(KEY_SHAPED.sub(REDACTED, self.known(text)))

    def known(self, text: str) -> str:
        """A message of our own without the secrets, nor 8 characters in a row of one."""
        if self._strong:
            views = VIEWS if self._traces.may_be_in(text) else VIEWS[:1]
            text = self._without(text, views, strict=True)
        return self._short.sub(REDACTED, text)

    @cached_property
    def _spellings(self) -> list[str]:
        """Every spelling of every secret, and each without what is neither letter nor digit."""
        spelled = (spelling for secret in self._strong for spelling in spellings(secret))
        found = ["".join(spelling.split()) for spelling in spelled]  # as the views have no blanks
        return list(dict.fromkeys((*found, *(text for text in map(_bare, found) if len(text) >= PART))))

    @cached_property
    def _heads(self) -> tuple[str, ...]:
        """How tokens of three parts begin: the first says how they are signed, and is no secret."""
        tokens = (secret.partition(".")[0].lower() for secret in self._strong if secret.startswith("eyJ"))
        return tuple(spelling for token in tokens for spelling in (token, _bare(token)))

    @cached_property
    def _parts(self) -> dict[str, list[_Place]]:
        """`PART` characters in a row → where they stand."""
        parts: defaultdict[str, list[_Place]] = defaultdict(list)
        for number, spelling in enumerate(self._spellings):
            for offset in range(len(spelling) - PART + 1):
                parts[spelling[offset : offset + PART]].append(_Place(number, offset))
        return dict(parts)

    def _without(self, text: str, views: Sequence[re.Pattern[str]], *, strict: bool) -> str:
        if len(text) > _MOST:
            return self._without(text[:_MOST], views, strict=strict) + REDACTED
        spans = sorted(
            span for folded in views for span in self._spans(text, TextView.of(text, folded), strict)
        )
        kept: list[str] = []
        at = 0
        for start, end in spans:
            if start >= at:
                kept += (text[at:start], REDACTED)
            at = max(at, end)
        return "".join((*kept, text[at:]))

    def _spans(self, text: str, view: TextView, strict: bool) -> Iterator[tuple[int, int]]:
        said, parts, at = view.text, self._parts, 0
        while at <= len(said) - PART:
            places = parts.get(said[at : at + PART])
            if places is None:
                at += 1
                continue
            end, place = max((self._end(said, at, place), place) for place in places)
            span = view.span(at, end)
            secret = (
                strict or self._is_secret(place, end - at) or self._is_left_over(place, end - at, text, span)
            )
            if secret and not self._is_name(text, span):
                yield span
            at = end

    def _end(self, said: str, at: int, place: _Place) -> int:
        """How far ``said`` goes on as the spelling does."""
        spelling = self._spellings[place.spelling]
        most = min(len(spelling) - place.offset, len(said) - at)
        for length in range(PART, most):
            if said[at + length] != spelling[place.offset + length]:
                return at + length
        return at + most

    def _is_name(self, text: str, span: tuple[int, int]) -> bool:
        """Whether a run is a part of a name that stands there."""
        start, end = span
        near = self._names.finditer(text, max(0, start - _LONGEST_NAME), end + _LONGEST_NAME)
        return any(name.start() <= start and end <= name.end() for name in near)

    def _is_secret(self, place: _Place, length: int) -> bool:
        """Whether a run gives something away wherever it stands: the whole secret, or a long part of it."""
        spelling = self._spellings[place.spelling]
        if length == len(spelling):
            return True
        public = max((len(head) for head in self._heads if spelling.startswith(head)), default=0)
        part = spelling[max(place.offset, public) : place.offset + length]
        return len(part) >= _LONG_PART and not is_weak(part)

    def _is_left_over(self, place: _Place, length: int, text: str, span: tuple[int, int]) -> bool:
        """Whether a run is what a cut left of the secret: where it lacks something, the text is cut."""
        start, end = span
        begins = place.offset == 0 or _begins_at_cut(text, start)
        whole_end = len(self._spellings[place.spelling]) == place.offset + length
        return begins and (whole_end or _ends_at_cut(text, end))


def _open_names(names: Iterable[str]) -> re.Pattern[str]:
    """What matches a model's name, or what stands behind the last slash of its id; longer ones first."""
    found = {part for name in names for part in (name, name.rpartition("/")[2]) if part}
    usable = sorted((name for name in found if not is_key_like(name)), key=lambda name: (-len(name), name))
    return re.compile("|".join(map(re.escape, usable)) or r"(?!)", re.IGNORECASE)


def _bare(text: str) -> str:
    return "".join(filter(str.isalnum, text))


def _begins_at_cut(text: str, start: int) -> bool:
    """Whether the text begins there, or says that something is left out before."""
    before = text[max(0, start - _REACH) : start].rstrip(_OPENING)
    return before.endswith(_CUT) or (not before and start <= _REACH)


def _ends_at_cut(text: str, end: int) -> bool:
    after = text[end : end + _REACH].lstrip(_QUOTES)
    return after.startswith(_CUT) or (not after.strip(_CLOSING) and len(text) - end <= _REACH)
