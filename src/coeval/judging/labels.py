"""Label scoring without a model: compare an answer with the value its item was made for.

``docs/tasks.md`` explains to users what counts as an answer, in the order of `_said`.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from functools import lru_cache
from typing import Any, NamedTuple

from coeval.core.errors import Unparsable
from coeval.core.records import LabelScore
from coeval.core.text import extract_json, fold_name

# --- Values of labels
#
# Declared values of a label attribute, and finding them in a text.
#
# Two spellings are one value if they differ in Unicode form (NFKC), case, or the separator of their words
# (blank, ``_``, ``-``); and, as far as the declared values stay distinct, in surrounding punctuation,
# quotes or markup.

# Punctuation to Unicode, but part of a label: ``C#`` is not ``C``.
_MEANT = frozenset("#%&@§†‡")

# Hyphens and the minus sign are one; marks that nobody sees are none.
_SPELLINGS = str.maketrans(
    {"\u2010": "-", "\u2011": "-", "\u2212": "-", "\u00ad": None, "\u200b": None, "\ufeff": None}
)

# What parts the words of a value. A sign does not: ``class -1`` is not ``class 1``, nor ``A-`` an ``A``.
_PARTING = r"(?<=[^\W_]){marks}(?:[\s_]+(?:-+[\s_]+)*|[-_]+){marks}(?=[^\W_])"
_BETWEEN_WORDS = re.compile(_PARTING.format(marks="") + r"|[\s_]+")
_QUOTES_AND_MARKS = "*`\"'"

# Characters on either side of an answer that are looked at one by one; those further out are dropped.
_MOST_AROUND = 16
_BRACKETS = {"(": ")", "[": "]", "{": "}", "“": "”", "‘": "’", "«": "»", "„": "“", "「": "」", "『": "』"}

# Letters of scripts that part no words by blanks (Thai, Lao, Myanmar, Khmer, kana, Han) or let endings grow
# on them (Hangul): beside one, on either side, a word may begin or end.
_UNPARTED = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3005-\u30ff\u3130-\u318f\u31f0-\u31ff"
    r"\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]"
)
_SIGNS = _MEANT | {"+"}

_NEGATED = re.compile(
    r"(?:\b(?:not|no|non|never|neither|nor|cannot|without)|n['’]t)\s+(?:(?:an?|the)\s+)?[*`\"'“‘]*$|[不非未没無无]$"
)
# The longest match of the pattern before a value: "cannot", blanks, "the", marks.
_LONGEST_NEGATION = 24

_WORD_FOLLOWS = re.compile(r"\s+\w")
# Words that no noun begins with: a letter before them is no article.
_NO_ARTICLE_BEFORE = re.compile(
    r"\s+(?:and|are|as|at|be|because|but|by|can|for|from|has|if|in|instead|is|it|nor|not|of|on|or|over|rather"
    r"|since|than|that|the|this|to|versus|vs|was|which|will|with|would)\b"
)
_SENTENCE_ENDS = ".!?:;…"


def normalise(text: str) -> str:
    """Normalise ``text`` for label comparison: NFKC, case folded, words separated by single blanks, trimmed.

    Punctuation, quotes, emphasis and blanks around it are trimmed, but not a number's sign. A text of nothing
    else is kept, so that a label ``?`` can be answered.
    """
    text = _folded(text)
    start, end = _bare_span(text)
    return text[start:end] or text


class LabelValues:
    """Values of one attribute in declared order; of two spellings the first is kept."""

    def __init__(self, values: Sequence[str]) -> None:
        self._folded: dict[str, str] = {}
        for value in values:
            self._folded.setdefault(_folded(value), value)
        bare: dict[str, set[str]] = {}
        for value in self._folded.values():
            bare.setdefault(normalise(value), set()).add(value)
        self._bare = {text: next(iter(those)) for text, those in bare.items() if len(those) == 1}
        self._longest = max(map(len, self._folded), default=0)
        marks = [mark for mark in _QUOTES_AND_MARKS if not any(mark in value for value in self._folded)]
        around = f"[{''.join(marks)}]*" if marks else ""
        self._parting = re.compile(_PARTING.format(marks=around))
        self._sought: dict[str, str] = {}
        for value in self._folded.values():
            if _is_sought(value):
                self._sought.setdefault(_search(value.strip(), self._parting).text, value)
        self._lengths = sorted({len(words) for words in self._sought}, reverse=True)
        firsts = "".join(sorted({re.escape(words[0]) for words in self._sought}))
        self._first = re.compile(f"[{firsts}]") if firsts else None

    def named(self, text: str) -> str | None:
        """Return the declared value that ``text`` as a whole is, else None."""
        text = _folded(text)
        start, end = _bare_span(text)
        if end - start > self._longest:
            return None
        if start == end:
            return self._folded.get(text)
        left = text[max(0, start - _MOST_AROUND) : end + _MOST_AROUND]
        while left:
            if left in self._folded:
                return self._folded[left]
            left = _peeled(left)
        return self._bare.get(text[start:end])

    def within(self, text: str) -> set[str]:
        """Find the declared values in ``text`` as whole words.

        Not counted: a part of a longer value ("true" in "not true"), of a hyphenated word or of a number, and
        a negated value ("not wrong"). A single letter counts unless it may be an article: "A because …",
        "option A fits", but not "A user …".
        """
        if self._first is None:
            return set()
        searched = _search(text, self._parting)
        found: set[str] = set()
        reached = 0
        for first in self._first.finditer(searched.text):
            start = first.start()
            words = self._begins(searched, start)
            if words is None or start + len(words) <= reached:  # none, or a part of the value before
                continue
            reached = start + len(words)
            if not _NEGATED.search(searched.text, max(0, start - _LONGEST_NEGATION), start):
                found.add(self._sought[words])
        return found

    def _begins(self, searched: _Search, start: int) -> str | None:
        """The longest value, as it is sought, that stands at ``start`` by itself."""
        for length in self._lengths:
            words = searched.text[start : start + length]
            if words in self._sought and searched.stands_alone(start, start + len(words)):
                return words
        return None


@lru_cache(maxsize=256)  # a run has few attributes, and compares every answer with them
def label_values(values: tuple[str, ...]) -> LabelValues:
    return LabelValues(values)


class _Search(NamedTuple):
    """A text as values are sought in it: ``text`` is case folded, its words are parted by single blanks.

    ``cased`` is as long, and in the letters' own case. ``glued`` are the blanks that stand for ``-`` or
    ``_`` alone: what they join is one word to a reader.
    """

    text: str
    cased: str
    glued: Set[int]

    def stands_alone(self, start: int, end: int) -> bool:
        """Whether what stands there is no part of a longer word, of a number or of an abbreviation."""
        text = self.text
        if end - start == 1 and text[start].isalpha() and not _UNPARTED.match(text[start]):
            return self._bounded(start, end) and self._letter_stands(start, end)
        return self._bounded(start, end)

    def _bounded(self, start: int, end: int) -> bool:
        text = self.text
        before, after = text[max(0, start - 1) : start], text[end : end + 1]
        if not _UNPARTED.match(text[start]) and (_goes_on(before) or start - 1 in self.glued):
            return False
        if not _UNPARTED.match(text[end - 1]) and (_goes_on(after) or end in self.glued):
            return False
        if text[start].isdigit() and (before == "-" or _parts_number(text[max(0, start - 2) : start][::-1])):
            return False
        return not (text[end - 1].isdigit() and _parts_number(text[end : end + 2]))

    def _letter_stands(self, start: int, end: int) -> bool:
        """Whether a single letter is no article or pronoun, and no piece of "e.g.", "it's" or "A-"."""
        text, cased = self.text, self.cased
        around = text[max(0, start - 2) : start][::-1], text[end : end + 2]
        if any(part[:1] in tuple("'’.") and part[1:].isalnum() for part in around) or around[1][:1] == "-":
            return False
        if not _WORD_FOLLOWS.match(text, end) or _NO_ARTICLE_BEFORE.match(text, end):
            return True
        amid = start > 1 and text[start - 1].isspace() and text[start - 2] not in _SENTENCE_ENDS
        return amid and cased[start].isupper()


def _search(text: str, parting: re.Pattern[str]) -> _Search:
    cased = _plain(text)
    text = cased.casefold()
    if len(text) != len(cased):  # ß is ss
        cased = "".join(character * len(character.casefold()) for character in cased)
    pieces: list[slice] = []
    glued: set[int] = set()
    reached = length = 0
    for joint in parting.finditer(text):
        pieces.append(slice(reached, joint.start()))
        length += joint.start() - reached
        if not any(map(str.isspace, joint.group())):
            glued.add(length)
        length += 1
        reached = joint.end()
    pieces.append(slice(reached, None))
    return _Search(" ".join(text[p] for p in pieces), " ".join(cased[p] for p in pieces), glued)


def _goes_on(beside: str) -> bool:
    """Whether a word goes on in the character beside it (empty at either end of the text)."""
    if not beside or _UNPARTED.match(beside):
        return False
    return beside.isalnum() or beside in _SIGNS or unicodedata.category(beside).startswith("M")


def _parts_number(beside: str) -> bool:
    """Whether a number goes on: what stands beside its digit, nearest first, is ``.5`` or ``/5``."""
    return len(beside) == 2 and beside[0] in ".,:/" and beside[1].isdigit()


def _plain(text: str) -> str:
    return unicodedata.normalize("NFKC", text).translate(_SPELLINGS).replace("\\_", "_")


def _folded(text: str) -> str:
    text = unicodedata.normalize("NFKC", _plain(text).casefold())
    return _BETWEEN_WORDS.sub(" ", text).strip()


def _bare_span(text: str) -> tuple[int, int]:
    """Where ``text`` begins and ends without what stands around it."""
    start, end = 0, len(text)
    while start < end and _is_around(text[start]) and not _is_sign(text, start):
        start += 1
    while end > start and _is_around(text[end - 1]):
        end -= 1
    return start, end


def _peeled(text: str) -> str:
    """``text`` with one thing less around it: a pair of quotes or brackets, else a mark at its end, else
    one at its beginning; empty where there is none. So ``**A-**.`` is ``A-`` before it is ``A``."""
    first, last = text[0], text[-1]
    opens = _is_around(first) and not _is_sign(text, 0)
    if opens and len(text) > 1 and last == _BRACKETS.get(first, first):
        return text[1:-1].strip()
    if _is_around(last):
        return text[:-1].strip()
    return text[1:].strip() if opens else ""


def _is_around(character: str) -> bool:
    if character in _MEANT:
        return False
    return character in " `´" or unicodedata.category(character).startswith("P")


def _is_sign(text: str, at: int) -> bool:
    return text[at] == "-" and text[at + 1 : at + 2].isdigit()


def _is_sought(value: str) -> bool:
    """Whether a value is looked for amid other words: not one of punctuation alone."""
    return not all(map(_is_around, _plain(value).strip()))


# --- Labels

# What an answer to a single label is called when it is not called by the label's name (folded).
_ANSWER_NAMES = frozenset(
    {
        *("label", "final label", "correct label", "predicted label", "prediction"),
        *("answer", "final answer", "correct answer", "my answer", "response", "output"),
        *("the answer is", "the final answer is", "the correct answer is"),
        *("class", "classification", "predicted class", "category", "predicted category"),
        *("result", "verdict", "decision", "conclusion", "choice"),
    }
)

# ``Review sentiment: positive`` is an answer; a sentence that happens to hold a colon is prose.
_MOST_NAME_WORDS = 3
# Three long words and their marks; splitting a page-long line would be for nothing.
_LONGEST_NAME = 80
_EMPHASIS = " \t*_`~"

_BOX = re.compile(r"\\f?boxed\s*\{")
_BRACE = re.compile(r"[{}]")
_TYPEFACE = re.compile(r"\\(?:text|math)[a-z]*\s*\{([^{}]*)\}")
# Answers box a result or a few; each box costs a search for its closing brace.
_MOST_BOXES = 100
_ONLY_JSON = re.compile(r"\s*(?:```\w*\s*)?[\[{].*[\]}]\s*(?:```\s*)?", re.DOTALL)


def score_labels(
    response: str, expected: Mapping[str, str], declared: Mapping[str, Sequence[str]]
) -> dict[str, LabelScore]:
    """Compare ``response`` with the ``expected`` value of each label.

    ``declared`` are the possible values of each label. The prediction is one of them, as declared, or None
    where the answer states none of them, or several.
    """
    answer = _LabelAnswer(response, list(_boxed(response)), _json_pairs(response), _line_pairs(response))
    scores: dict[str, LabelScore] = {}
    for label, value in expected.items():
        known = declared.get(label, ())
        values = label_values(tuple(known) if value in known else (*known, value))
        needed = values.named(value) or value
        predicted = _said(answer, label, values, single=len(expected) == 1)
        scores[label] = LabelScore(expected=needed, predicted=predicted, match=predicted == needed)
    return scores


class _LabelAnswer(NamedTuple):
    """An answer, and what it says in boxes, in JSON and in lines ``name: value``, by folded names."""

    text: str
    boxed: Sequence[str]
    json: Mapping[str, Sequence[str]]
    lines: Mapping[str, Sequence[str]]

    def named(self, label: str) -> Sequence[str]:
        """What is said of a label by its name, or in a box, which needs none."""
        name = fold_name(label)
        return self.boxed or self.json.get(name) or self.lines.get(name, ())

    def unnamed(self) -> Sequence[str]:
        """What may be said of a label, if there is but one, though its name is not there."""
        pairs = self.json or self.lines
        general = [said for name, parts in pairs.items() if name in _ANSWER_NAMES for said in parts]
        if not general and len(pairs) == 1 and (self.json or "\n" not in self.text.strip()):
            ((name, parts),) = pairs.items()
            return parts if len(name.split()) <= _MOST_NAME_WORDS else ()
        return general

    def all(self) -> Sequence[str]:
        """All that is said; of an answer that is JSON and nothing else, its values."""
        if self.json and _ONLY_JSON.fullmatch(self.text):
            return [said for parts in self.json.values() for said in parts]
        return (self.text,)


def _said(answer: _LabelAnswer, label: str, values: LabelValues, *, single: bool) -> str | None:
    """The one value that the answer gives to ``label``; None where it gives none, or several.

    What is said as a whole goes before what is found amid other words: first the whole answer, then
    what it puts in a box or under the label's name, for a single label under a name such as
    ``answer``, then its first line. Words are sought only in what the label's name introduces, where
    there is such a thing: what is said of other things is no answer.
    """
    if (value := values.named(answer.text)) is not None:
        return value
    own = answer.named(label)
    for parts in (own, answer.unnamed() if single else ()):
        if found := {value for part in parts if (value := values.named(part)) is not None}:
            return _only(found)
    first_line = answer.text.strip().partition("\n")[0]
    if (value := values.named(first_line)) is not None:
        return value
    return _only({value for part in own or answer.all() for value in values.within(part)})


def _only(found: Iterable[str]) -> str | None:
    values = list(found)
    return values[0] if len(values) == 1 else None


def _boxed(response: str) -> Iterator[str]:
    """What stands in each ``\\boxed{…}``, without commands that only set a typeface."""
    for number, opening in enumerate(_BOX.finditer(response), 1):
        depth = 1
        for brace in _BRACE.finditer(response, opening.end()):
            depth += 1 if brace.group() == "{" else -1
            if depth == 0:
                yield _TYPEFACE.sub(r"\1", response[opening.end() : brace.start()])
                break
        if number == _MOST_BOXES:
            return


def _json_pairs(response: str) -> dict[str, list[str]]:
    """Folded name → the values of a JSON answer; nothing if there is no JSON."""
    if "{" not in response:
        return {}
    try:
        found = extract_json(response).value
    except Unparsable:
        return {}
    pairs: dict[str, list[str]] = {}
    for part in found if isinstance(found, list) else [found]:
        if isinstance(part, dict):
            for name, value in part.items():
                pairs.setdefault(fold_name(name), []).append(_as_text(value))
    return pairs


def _as_text(value: Any) -> str:
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _line_pairs(response: str) -> dict[str, list[str]]:
    """Folded name → the values of the lines ``name: value``."""
    pairs: dict[str, list[str]] = {}
    for line in response.splitlines():
        name, colon, value = line.partition(":")
        if colon and len(name) <= _LONGEST_NAME and value.strip(_EMPHASIS):
            pairs.setdefault(fold_name(normalise(name)), []).append(value)
    return pairs
