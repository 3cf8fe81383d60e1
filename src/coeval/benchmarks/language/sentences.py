"""Sentence splitting with the decisions of Punkt (Kiss and Strunk 2006), with or without NLTK's model data.

For every ``.``, ``?`` and ``!`` that could end a sentence the algorithm looks at the word before and the
token after it. A model decides by word lists learned from newspapers; `plain_break` by a short list of
abbreviations. Both are linear in the text. Splits equal those of NLTK 3.10 (tested).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

_CLOSERS = "‘’“”«»"
_NON_WORD = r"[)\";}\]*:@'({\[?!" + _CLOSERS + "]"
_DASHES_OR_DOTS = r"--|\.\.|\.\s\.\s\."
_WORD_END = rf"{_NON_WORD}|{_DASHES_OR_DOTS}|,(?=$|\s|{_NON_WORD}|{_DASHES_OR_DOTS})"

_TOKEN = re.compile(
    rf"-{{2,}}|\.{{2,}}|(?:\.\s){{2,}}\.|[^\s(\"`{{\[:;&#*@)}}\]\-,](?:(?!{_WORD_END})\S)*|\S"
)
_CANDIDATE = re.compile(rf"[.?!](?={_NON_WORD}|\s+(\S+))")
_BLANKS = str.maketrans("\t\n\r\x0b\x0c", "     ")
_REALIGNED = re.compile(rf"[\"')\]}}{_CLOSERS}]+?(?:\s+|(?=--)|$)", re.MULTILINE)

_NUMBER = re.compile(r"-?[.,]?\d[\d,.\-]*\.?")
_ELLIPSIS = re.compile(r"\.{2,}")

# NLTK's own bits (`nltk.tokenize.punkt`): its trained models hold sums of them.
_BEGIN_UPPER, _MIDDLE_UPPER, _UNKNOWN_UPPER = 2, 4, 8
# The same for words that stand in lower case.
_BEGIN_LOWER, _MIDDLE_LOWER, _UNKNOWN_LOWER = 16, 32, 64
_ANY_UPPER = _BEGIN_UPPER | _MIDDLE_UPPER | _UNKNOWN_UPPER
_ANY_LOWER = _BEGIN_LOWER | _MIDDLE_LOWER | _UNKNOWN_LOWER


class PunktModel(msgspec.Struct, frozen=True):
    """Punkt's learned data: ``contexts`` maps a word to the bit set of positions and cases seen."""

    abbreviations: frozenset[str]
    collocations: frozenset[tuple[str, str]]
    starters: frozenset[str]
    contexts: dict[str, int]


def read_punkt_model(folder: Path) -> PunktModel:
    """Read the English model from the four files of NLTK's ``punkt_tab``; raises OSError where one is
    missing."""

    def lines(name: str) -> list[str]:
        return [line for line in (folder / name).read_text(encoding="utf-8").split("\n") if line]

    pairs = [line.split("\t", 1) for line in lines("collocations.tab")]
    contexts = [line.split("\t", 1) for line in lines("ortho_context.tab")]
    return PunktModel(
        frozenset(lines("abbrev_types.txt")),
        frozenset((first, second) for first, second in pairs),
        frozenset(lines("sent_starters.txt")),
        {word: int(bits) for word, bits in contexts},
    )


class _Piece(NamedTuple):
    text: str
    kind: str
    ends_sentence: bool
    is_abbreviation: bool


class PunktSplitter:
    """Split texts into sentences by a model."""

    def __init__(self, model: PunktModel) -> None:
        self._model = model

    def sentences(self, text: str) -> list[str]:
        return split_sentences(text, self._breaks)

    def _breaks(self, context: str) -> bool:
        tokens = [
            self._token(found)
            for line in context.split("\n")
            if line.strip()
            for found in _TOKEN.findall(line)
        ]
        return any(self._ends(tokens[i], tokens[i + 1]) for i in range(len(tokens) - 1))

    def _token(self, text: str) -> _Piece:
        lower = text.lower()
        kind = "##number##" if _NUMBER.fullmatch(lower) else lower
        if text in {".", "?", "!"}:
            return _Piece(text, kind, ends_sentence=True, is_abbreviation=False)
        if not text.endswith(".") or text.endswith(".."):
            return _Piece(text, kind, ends_sentence=False, is_abbreviation=False)
        stem = lower[:-1]
        known = self._model.abbreviations
        short = stem in known or stem.rsplit("-", 1)[-1] in known
        return _Piece(text, kind, ends_sentence=not short, is_abbreviation=short)

    def _ends(self, token: _Piece, following: _Piece) -> bool:
        """Whether a sentence ends between the two (the second pass, section 4 of the paper)."""
        if not token.text.endswith("."):
            return token.ends_sentence
        kind = _without_period(token.kind)
        next_kind = _without_period(following.kind) if following.ends_sentence else following.kind
        if (kind, next_kind) in self._model.collocations:
            return False
        initial = _is_initial(token.text)
        next_upper = following.text[0].isupper()
        starts = self._starts_sentence(following, next_kind)
        if (token.is_abbreviation or _ELLIPSIS.fullmatch(token.text)) and not initial:
            if starts:
                return True
            if next_upper and next_kind in self._model.starters:
                return True
        if initial or kind == "##number##":
            if starts is False:
                return False
            never_lower = not self._model.contexts.get(next_kind, 0) & _ANY_LOWER
            if starts is None and initial and next_upper and never_lower:
                return False
        return token.ends_sentence

    def _starts_sentence(self, token: _Piece, kind: str) -> bool | None:
        """The orthographic heuristic: True, False, or None where it does not know."""
        if token.text in {";", ":", ",", ".", "!", "?"}:
            return False
        context = self._model.contexts.get(kind, 0)
        first = token.text[0]
        if first.isupper() and context & _ANY_LOWER and not context & _MIDDLE_UPPER:
            return True
        if first.islower() and (context & _ANY_UPPER or not context & _BEGIN_LOWER):
            return False
        return None


def split_sentences(text: str, breaks: Callable[[str], bool]) -> list[str]:
    """Split ``text`` where ``breaks`` is true of a context: the word with its end mark, and what follows.

    Closing quotes and brackets go with the sentence they close; trailing whitespace is dropped.
    """
    known: dict[str, bool] = {}
    spans: list[tuple[int, int]] = []
    start = 0
    for mark, resume, context in _candidates(text):
        ends = known.get(context)
        if ends is None:
            ends = known[context] = breaks(context)
        if ends:
            spans.append((start, mark + 1))
            start = resume
    spans.append((start, len(text.rstrip())))
    return [text[a:b] for a, b in _realigned(text, spans) if b > a]


def _candidates(text: str) -> Iterator[tuple[int, int, str]]:
    """(index of the end mark, where the next sentence would begin, context) for each possible end.

    Marks inside one word are one candidate, the last of them; a mark that begins a word is one too.
    """
    blanks = text.translate(_BLANKS)
    word_start = mark = 0
    pending: tuple[int, int] | None = None
    for match in _CANDIDATE.finditer(text):
        start = match.start()
        blank = blanks.rfind(" ", mark, start)
        if blank > mark:
            word_start, before = blank + 1, word_start
        else:
            before = word_start
        if pending is not None and mark <= word_start:
            yield mark, pending[0], text[before : pending[1]]
        resume = match.start(1)
        pending = (resume, match.end(1)) if resume >= 0 else (start + 1, start + 2)
        mark = start
    if pending is not None:
        yield mark, pending[0], text[word_start : pending[1]]


def _realigned(text: str, spans: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The spans with closing punctuation moved from the head of one to the tail of the one before."""
    moved = 0
    for (start, end), following in zip(spans, [*spans[1:], None], strict=True):
        start += moved
        closers = _REALIGNED.match(text, *following) if following else None
        if closers is None:
            moved = 0
            yield start, end
        else:
            moved = len(closers.group())
            yield start, closers.start() + len(closers.group().rstrip())


def _without_period(kind: str) -> str:
    return kind[:-1] if len(kind) > 1 and kind.endswith(".") else kind


def _is_initial(text: str) -> bool:
    return len(text) == 2 and text[1] == "." and (text[0].isalpha() or text[0] == "_")


_OPENERS = "([{\"'“‘*_"
_ABBREVIATIONS = (
    "mr mrs ms dr prof rev capt lt sgt maj sen rep gov hon st jr sr ph.d m.d b.a m.a e.g i.e etc vs cf "
    "approx dept vol pp inc ltd co corp bros ave blvd rd mt ft a.m p.m u.s u.k u.n u.s.a d.c "
    "jan feb apr jun jul aug sept sep oct nov dec mon tue tues wed thu thurs fri"
)
_STARTERS = (
    "a after all also although an and as at both but by during each for from he her here his how "
    "however i if in it its many moreover most my no not of on one our she since so some such that "
    "the their then there these they this those though thus to we what when where which while who "
    "why with yet you your"
)


_ABBREVIATION_SET = frozenset(_ABBREVIATIONS.split())
_STARTER_SET = frozenset(_STARTERS.split())


def plain_break(context: str) -> bool:
    """Decide without a model whether a mark ends a sentence.

    It does, except the period of an initial, of an abbreviation whose next word is no usual beginning, and of
    a number before a lower-case letter.
    """
    words = context.split()
    if len(words) < 2 or not words[0].endswith("."):
        return True
    word, following = words[0].lstrip(_OPENERS), words[1]
    if _is_initial(word):
        return not word.isascii()
    if word[:-1].lower() in _ABBREVIATION_SET or _ELLIPSIS.search(word):
        return following[0].isupper() and following.rstrip(",").lower() in _STARTER_SET
    return not (_NUMBER.fullmatch(word) and following[0].islower())


def plain_sentences(text: str) -> list[str]:
    """Split into sentences by `plain_break`: no data needed, and fast for any length."""
    return split_sentences(text, plain_break)
