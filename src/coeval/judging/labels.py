"""Label scoring without a model: compare an answer with the value its item was made for.

``docs/tasks.md`` explains to users what counts as an answer, in the order of `_LabelAnswer.find_value`.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from functools import cached_property, lru_cache
from itertools import groupby, islice, pairwise
from typing import Any, NamedTuple

from coeval.core.errors import Unparsable
from coeval.core.records import LabelScore
from coeval.core.text import Pairs, every_json, extract_json, normalize_name

# --- Values of labels
#
# Declared values of a label attribute, and finding them in a text.
#
# Two spellings are one value if they differ in Unicode form (NFKC), case, or the separator of their words
# (blank, ``_``, ``-``); and, as far as the declared values stay distinct, in surrounding punctuation,
# quotes or markup.

# Punctuation to Unicode, but part of a label: ``C#`` is not ``C``.
_MEANT = frozenset("#%&@§†‡")

# What a typewriter lacks, as the character that stands for it; marks that nobody sees are none.
_SPELLINGS = str.maketrans(
    dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-")
    | dict.fromkeys("‘’‛ʼ`", "'")
    | dict.fromkeys("“”‟", '"')
    | dict.fromkeys("\u00ad\u200b\ufeff")
    | {"İ": "i"}
)
_DOTTED_I = "i\u0307"  # what lower case makes of İ
_BLANK_BEFORE_PERCENT = re.compile(r"(?<=\d)\s+(?=[%‰])")

# What parts the words of a value. A sign does not: ``class -1`` is not ``class 1``, nor ``A-`` an ``A``.
_PARTING = r"(?<=[^\W_]){marks}(?:[\s_]+(?:-+[\s_]+)*|[-_]+){marks}(?=[^\W_])"
_BETWEEN_WORDS = re.compile(_PARTING.format(marks="") + r"|[\s_]+")
_QUOTES_AND_MARKS = "*\"'"

# Characters on either side of an answer that are looked at one by one; those further out are dropped.
_MOST_AROUND = 16
_BRACKETS = {"(": ")", "[": "]", "{": "}", "«": "»", "„": '"', "「": "」", "『": "』"}

# Letters of scripts that part no words by blanks (Thai, Lao, Myanmar, Khmer, kana, Han) or let endings grow
# on them (Hangul): beside one, on either side, a word may begin or end.
_UNPARTED = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3005-\u30ff\u3130-\u318f\u31f0-\u31ff"
    r"\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]"
)
_SIGNS = _MEANT | {"+"}

_NEGATED = re.compile(
    r"(?:\b(?:not|no|non|never|neither|nor|cannot|without)|n't)\s+(?:(?:an?|the)\s+)?[*\"']*$|[不非未没無无]$"
)
# The longest match of the pattern before a value: "cannot", blanks, "the", marks.
_LONGEST_NEGATION = 24

# Where the clause that states a value ends: a sentence, or what the value is compared with.
_CLAUSE_END = re.compile(
    r"[.!?;](?=[\s*\"')\]]|$)|\n|\s-+\s"
    r"|[\s,](?:because|since|than|unlike|whereas|while|(?:al)?though|instead\s+of|as\s+opposed\s+to|over)\b"
)

_WORD_FOLLOWS = re.compile(r"\s+\w")
# Words that no noun begins with: a letter before them is no article.
_NO_ARTICLE_BEFORE = re.compile(
    r"\s+(?:and|are|as|at|be|because|but|by|can|for|from|has|if|in|instead|is|it|nor|not|of|on|or|over|rather"
    r"|since|than|that|the|this|to|versus|vs|was|which|will|with|would)\b"
)
_SENTENCE_ENDS = ".!?:;…"


def normalise_label(text: str) -> str:
    """Normalise ``text`` for label comparison: NFKC, case folded, words separated by single blanks, trimmed.
    Punctuation, quotes, emphasis and blanks around it are trimmed, but not a number's sign. A text of nothing
    else is kept, so that a label ``?`` can be answered."""
    text = _fold(text)
    start, end = _span_without_marks(text)
    return text[start:end] or text


class LabelValues:
    """The declared values of one label attribute; of two spellings the first is kept."""

    def __init__(self, values: Sequence[str]) -> None:
        self._fold: dict[str, str] = {}
        for value in values:
            self._fold.setdefault(_fold(value), value)
        bare: dict[str, set[str]] = {}
        for value in self._fold.values():
            bare.setdefault(normalise_label(value), set()).add(value)
        self._bare = {text: next(iter(those)) for text, those in bare.items() if len(those) == 1}
        self._longest = max(map(len, self._fold), default=0)
        marks = [mark for mark in _QUOTES_AND_MARKS if not any(mark in value for value in self._fold)]
        around = f"[{''.join(marks)}]*" if marks else ""
        self._parting = re.compile(_PARTING.format(marks=around))
        self._sought: dict[str, str] = {}
        for value in self._fold.values():
            # Punctuation alone is not looked for.
            if not all(map(_is_surrounding_mark, _unify_spelling(value).strip())):
                self._sought.setdefault(_prepare_search(value.strip(), self._parting).text, value)
        self._lengths = sorted({len(words) for words in self._sought}, reverse=True)
        firsts = "".join(sorted({re.escape(words[0]) for words in self._sought}))
        self._first = re.compile(f"[{firsts}]") if firsts else None

    def match_whole(self, text: str) -> str | None:
        """Return the declared value that ``text`` as a whole is, else None."""
        text = _fold(text)
        start, end = _span_without_marks(text)
        if end - start > self._longest:
            return None
        if start == end:
            return self._fold.get(text)
        left = text[max(0, start - _MOST_AROUND) : end + _MOST_AROUND]
        while left:
            if left in self._fold:
                return self._fold[left]
            left = _peel_one_mark(left)
        return self._bare.get(text[start:end])

    def find_within(self, text: str) -> set[str]:
        """Find the declared values in ``text`` as whole words. Not counted: a part of a longer value ("true"
        in "not true"), of a hyphenated word or of a number, and a negated value ("not wrong"). A single
        letter counts unless it may be an article: "A because …", "option A fits", but not "A user …"."""
        return {value for value, _ in self._find_values_and_edge_flags(text)}

    def find_only_stated(self, text: str) -> set[str]:
        """Return the declared value that ``text`` states, if any: as a whole, as its first clause, or as the
        only value in that clause, which it begins or ends."""
        text = text.strip()
        clause = text[: end.start()] if (end := _CLAUSE_END.search(text)) else text
        if value := self.match_whole(text) or self.match_whole(clause):
            return {value}
        occurrences = set(self._find_values_and_edge_flags(clause))
        values = {value for value, _ in occurrences}
        return values if len(values) == 1 and any(at_edge for _, at_edge in occurrences) else set()

    def _find_values_and_edge_flags(self, text: str) -> Iterator[tuple[str, bool]]:
        """Yield the values within ``text``, and whether each is its first or last word."""
        if self._first is None:
            return
        searched = _prepare_search(text, self._parting)
        words_begin = next((n for n, mark in enumerate(searched.text) if mark.isalnum()), 0)
        words_end = next((n for n in range(len(searched.text), 0, -1) if searched.text[n - 1].isalnum()), 0)
        reached = 0
        for first in self._first.finditer(searched.text):
            start = first.start()
            words = self._longest_value_at(searched, start)
            if words is None or start + len(words) <= reached:  # none, or a part of the value before
                continue
            reached = start + len(words)
            if not _NEGATED.search(searched.text, max(0, start - _LONGEST_NEGATION), start):
                yield self._sought[words], start <= words_begin or reached >= words_end

    def _longest_value_at(self, searched: _SearchText, start: int) -> str | None:
        """Return the longest value, in its searched form, that is a whole word at ``start``."""
        for length in self._lengths:
            words = searched.text[start : start + length]
            if words in self._sought and searched.is_whole_word(start, start + len(words)):
                return words
        return None


# A run has few attributes, and compares every answer with them.
cached_label_values = lru_cache(maxsize=256)(LabelValues)


class _SearchText(NamedTuple):
    """A text prepared for searching values: ``text`` is case folded, its words separated by single blanks.

    ``cased`` is as long, in the original case. ``glued``: positions of blanks that replace ``-`` or ``_``
    alone, which join one word to a reader. ``dashes``: positions of blanks that replace a dash amid blanks.
    """

    text: str
    cased: str
    glued: Set[int]
    dashes: Set[int]

    def is_whole_word(self, start: int, end: int) -> bool:
        """Check whether the span is no part of a longer word, of a number or of an abbreviation."""
        text = self.text
        if end - start == 1 and text[start].isalpha() and not _UNPARTED.match(text[start]):
            return self._has_word_boundaries(start, end) and self._is_single_letter_label(start, end)
        return self._has_word_boundaries(start, end)

    def _has_word_boundaries(self, start: int, end: int) -> bool:
        text = self.text
        before, after = text[max(0, start - 1) : start], text[end : end + 1]
        if not _UNPARTED.match(text[start]) and (_continues_word(before) or start - 1 in self.glued):
            return False
        if not _UNPARTED.match(text[end - 1]) and (_continues_word(after) or end in self.glued):
            return False
        if text[start].isdigit() and (
            before == "-" or _continues_number(text[max(0, start - 2) : start][::-1])
        ):
            return False
        return not (text[end - 1].isdigit() and _continues_number(text[end : end + 2]))

    def _is_single_letter_label(self, start: int, end: int) -> bool:
        """Check whether a single letter is no article or pronoun, and no piece of "e.g.", "it's" or "A-"."""
        text, cased = self.text, self.cased
        around = text[max(0, start - 2) : start][::-1], text[end : end + 2]
        if any(part[:1] in tuple("'.") and part[1:].isalnum() for part in around) or around[1][:1] == "-":
            return False
        if end in self.dashes or not _WORD_FOLLOWS.match(text, end) or _NO_ARTICLE_BEFORE.match(text, end):
            return True
        amid = start > 1 and text[start - 1].isspace() and text[start - 2] not in _SENTENCE_ENDS
        return amid and cased[start].isupper()


def _prepare_search(text: str, parting: re.Pattern[str]) -> _SearchText:
    """Fold a text's case and join its words by single blanks, noting which blanks replace marks."""
    cased = _unify_spelling(text)
    text = cased.casefold()
    if len(text) != len(cased):  # ß is ss
        cased = "".join(character * len(character.casefold()) for character in cased)
    pieces: list[slice] = []
    glued: set[int] = set()
    dashes: set[int] = set()
    reached = length = 0
    for joint in parting.finditer(text):
        pieces.append(slice(reached, joint.start()))
        length += joint.start() - reached
        if not any(map(str.isspace, joint.group())):
            glued.add(length)
        elif "-" in joint.group():
            dashes.add(length)
        length += 1
        reached = joint.end()
    pieces.append(slice(reached, None))
    return _SearchText(" ".join(text[p] for p in pieces), " ".join(cased[p] for p in pieces), glued, dashes)


def _continues_word(beside: str) -> bool:
    """Check whether a word continues in the adjacent character (empty at either end of the text)."""
    if not beside or _UNPARTED.match(beside):
        return False
    return beside.isalnum() or beside in _SIGNS or unicodedata.category(beside).startswith("M")


def _continues_number(beside: str) -> bool:
    """Check whether a number continues in the two adjacent characters, nearest first: ``.5`` or ``/5``."""
    return len(beside) == 2 and beside[0] in ".,:/" and beside[1].isdigit()


def _unify_spelling(text: str) -> str:
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    text = text.translate(_SPELLINGS)
    text = text.replace("\\_", "_").replace(_DOTTED_I, "i")
    return _BLANK_BEFORE_PERCENT.sub("", text) if "%" in text or "‰" in text else text


def _fold(text: str) -> str:
    text = unicodedata.normalize("NFKC", _unify_spelling(text).casefold())
    return _BETWEEN_WORDS.sub(" ", text).strip()


def _span_without_marks(text: str) -> tuple[int, int]:
    """Return where ``text`` begins and ends without the marks around it."""
    start, end = 0, len(text)
    while start < end and _is_surrounding_mark(text[start]) and not _is_minus_sign(text, start):
        start += 1
    while end > start and _is_surrounding_mark(text[end - 1]):
        end -= 1
    return start, end


def _peel_one_mark(text: str) -> str:
    """Remove one thing around ``text``: a pair of quotes or brackets, else a mark at its end, else one at its
    beginning; return '' if there is none. So ``**A-**.`` is ``A-`` before it is ``A``."""
    first, last = text[0], text[-1]
    opens = _is_surrounding_mark(first) and not _is_minus_sign(text, 0)
    if opens and len(text) > 1 and last == _BRACKETS.get(first, first):
        return text[1:-1].strip()
    if _is_surrounding_mark(last):
        return text[:-1].strip()
    return text[1:].strip() if opens else ""


def _is_surrounding_mark(character: str) -> bool:
    if character in _MEANT:
        return False
    return character == " " or unicodedata.category(character).startswith("P")


def _is_minus_sign(text: str, at: int) -> bool:
    return text[at] == "-" and text[at + 1 : at + 2].isdigit()


# --- Labels

# Other names of an answer than its label's; a result is often of something else ("Result: no action").
_ANSWER, _RESULT = "answer", "result"
_ANSWER_NOUNS = {
    **dict.fromkeys(("answer", "answer is", "label", "prediction", "class", "classification"), _ANSWER),
    **dict.fromkeys(("category", "choice", "option", "verdict", "decision", "correction"), _ANSWER),
    **dict.fromkeys(("result", "response", "output", "conclusion"), _RESULT),
}
_BEFORE_NOUN = re.compile(
    r"(?:the|my|so|then|thus|hence|therefore|actually|wait|no|sorry|ok|okay|final|correct|corrected|right|best"
    r"|revised|updated|new|overall|predicted) "
)
_NAME_PARTS = re.compile(r"[,.;!?] ")
_BOX_NAME = "\\boxed"  # which is no name when it is folded

# ``Review sentiment: positive`` is an answer; a sentence that happens to hold a colon is prose.
_MOST_NAME_WORDS = 3
# Three long words and their marks; splitting a page-long line would be for nothing.
_LONGEST_NAME = 80
_EMPHASIS = " \t*_`~'"

# "The correct answer is …", "my final answer would then be …"; nouns of other meanings need their adjective.
_PHRASE = (
    r"\b(?:(?:answer|(?:correct|right|best|final|predicted)\s+(?:option|choice|label|category|class))"
    r"\b[^.!?:=]{{0,40}}?|(?P<label>{labels})[*\"']*\s*)(?::|=|→|⇒|\s-+>?\s|\b(?:is|be|was|remains|becomes)\b)"
)
_BOX = re.compile(r"\\f?boxed\s*\{")
_BRACE = re.compile(r"[{}]")
_TYPEFACE = re.compile(r"\\(?:text|math)[a-z]*\s*\{([^{}]*)\}")
_TAG = re.compile(r"<\s*(\w[\w -]{0,60})>")
# Answers box or tag a result or a few; each costs a search for its end.
_MOST_BOXES = 100
_ONLY_JSON = re.compile(r"\s*(?:```\w*\s*)?[\[{].*[\]}]\s*(?:```\s*)?", re.DOTALL)


def score_labels(
    response: str, expected: Mapping[str, str], declared: Mapping[str, Sequence[str]]
) -> dict[str, LabelScore]:
    """Compare ``response`` with the ``expected`` value of each label. ``declared``: the possible values of
    each label. The prediction is one of them, as declared, or None if the answer states none, or several."""
    answer = _LabelAnswer(response, tuple(map(_fold_name, expected)))
    scores: dict[str, LabelScore] = {}
    for label, value in expected.items():
        declared_values = declared.get(label, ())
        values = cached_label_values(
            tuple(declared_values) if value in declared_values else (*declared_values, value)
        )
        expected_value = values.match_whole(value) or value
        predicted = answer.find_value(_fold_name(label), values, single=len(expected) == 1)
        scores[label] = LabelScore(
            expected=expected_value, predicted=predicted, match=predicted == expected_value
        )
    return scores


class _Statement(NamedTuple):
    """What an answer states on a line, under a name that `_resolve_name` returned."""

    line: int
    name: str
    text: str
    in_json: bool = False


class _LabelAnswer:
    """An answer, and what it states of ``labels``."""

    def __init__(self, text: str, labels: tuple[str, ...]) -> None:
        self.text = text
        self._labels = labels

    @cached_property
    def statements(self) -> Sequence[_Statement]:
        return _find_statements(self.text, self._labels)

    def find_value(self, label: str, values: LabelValues, *, single: bool) -> str | None:
        """Return the one value that the answer gives to ``label``; None if it gives none, or several. The
        whole answer goes first, then the last line that states a value: under the label's name, in a box, for
        a single label under another name of an answer; then the first line. Words are searched last, and only
        in what the label's name introduces, if it introduces anything."""
        if (value := values.match_whole(self.text)) is not None:
            return value
        own = (
            self._statements_named(label, _BOX_NAME)
            if single
            else self._statements_named(label) or self._statements_named(_BOX_NAME)
        )
        general = self._statements_named(_ANSWER) if single else []
        if single and not own and not general:
            general = self._statements_named(_RESULT) or self._find_only_pair()
        if stated := _read_last_values([*own, *general], label, values.find_only_stated):
            return _single_value(stated)
        if (value := values.match_whole(self.text.strip().partition("\n")[0])) is not None:
            return value
        if (within := _read_last_values(own or general, label, values.find_within)) or own:
            return _single_value(within)
        # Of an answer that is JSON and nothing else, its values are all that is said.
        json_texts = [statement.text for statement in self.statements if statement.in_json]
        texts = json_texts if json_texts and _ONLY_JSON.fullmatch(self.text) else [self.text]
        return _single_value({value for text in texts for value in values.find_within(text)})

    def _statements_named(self, *names: str) -> list[_Statement]:
        return [statement for statement in self.statements if statement.name in names]

    def _find_only_pair(self) -> list[_Statement]:
        """Return the one pair of an answer that says nothing else."""
        pairs = [statement for statement in self.statements if statement.in_json] or self.statements
        if len(pairs) != 1 or len(pairs[0].name.split()) > _MOST_NAME_WORDS:
            return []
        return list(pairs) if pairs[0].in_json or "\n" not in self.text.strip() else []


def _read_last_values(
    statements: Iterable[_Statement], label: str, read: Callable[[str], Set[str]]
) -> Set[str]:
    """Return the values on the last line that gives any; on one line, the label's own name goes first."""

    def order(statement: _Statement) -> tuple[int, bool]:
        return -statement.line, statement.name != label

    for _, same in groupby(sorted(statements, key=order), key=order):
        if values := {value for statement in same for value in read(statement.text)}:
            return values
    return frozenset()


def _single_value(values: Set[str]) -> str | None:
    return next(iter(values)) if len(values) == 1 else None


def _fold_name(text: str) -> str:
    """Fold a label's name, or what precedes a colon."""
    return normalize_name(normalise_label(text))


def _resolve_name(name: str, labels: Sequence[str]) -> str:
    """Return the label that a folded name means, `_ANSWER` or `_RESULT` for such a name, else the name."""
    if name in labels:
        return name
    noun = _NAME_PARTS.split(name)[-1]
    while noun not in labels and noun not in _ANSWER_NOUNS:
        if (before := _BEFORE_NOUN.match(noun)) is None:
            return name
        noun = noun[before.end() :]
    return noun if noun in labels else _ANSWER_NOUNS[noun]


def _find_statements(response: str, labels: tuple[str, ...]) -> list[_Statement]:
    """Find what ``response`` states in boxes, tags, JSON, and lines (behind JSON that states a label)."""
    known_names = {*labels, _ANSWER, _RESULT}
    in_json = list(_find_json_statements(response, labels))
    text = _unify_spelling(response)
    lines = text.split("\n")
    first = 0
    if any(statement.name in known_names for statement in in_json):
        first = text.count("\n", 0, max(text.rfind("}"), text.rfind("]"))) + 1
    statements = [*in_json, *_find_boxed(text), *_find_tagged(text, labels)]
    following = ""
    for number in range(len(lines) - 1, first - 1, -1):
        for name, content in _find_line_statements(lines[number], labels):
            if name in known_names and not content.strip(_EMPHASIS):
                content = following  # a name is a heading there
            if content.strip(_EMPHASIS):
                statements.append(_Statement(number, name, content))
        following = lines[number] if lines[number].strip() else following
    return statements


def _find_line_statements(line: str, labels: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield what a line says, with its name: ``name: value``, "the correct answer is …"."""
    marks: list[tuple[str, int, int]] = []
    name, colon, _ = line.partition(":")
    if colon and len(name) <= _LONGEST_NAME:
        marks.append((_resolve_name(_fold_name(name), labels), 0, len(name) + 1))
    begin = len(name) + 1 if marks and marks[0][0] in {*labels, _ANSWER, _RESULT} else 0
    marks += [
        (_fold_name(phrase["label"] or _ANSWER), phrase.start(), phrase.end())
        for phrase in _phrase_pattern(labels).finditer(line, begin)
    ]
    for (name, _, start), (_, end, _) in pairwise([*marks, ("", len(line), 0)]):
        yield name, line[start:end]


@lru_cache(maxsize=256)  # as `cached_label_values`
def _phrase_pattern(labels: tuple[str, ...]) -> re.Pattern[str]:
    names = (r"[\s_-]+".join(map(re.escape, label.split())) for label in labels)
    return re.compile(_PHRASE.format(labels="|".join(names)), re.IGNORECASE)


def _find_boxed(text: str) -> Iterator[_Statement]:
    r"""Yield the content of each ``\\boxed{…}``, without commands that only set a typeface."""
    for opening in islice(_BOX.finditer(text), _MOST_BOXES):
        depth = 1
        for brace in _BRACE.finditer(text, opening.end()):
            depth += 1 if brace.group() == "{" else -1
            if depth == 0:
                content = _TYPEFACE.sub(r"\1", text[opening.end() : brace.start()])
                yield _Statement(text.count("\n", 0, opening.start()), _BOX_NAME, content)
                break


def _find_tagged(text: str, labels: tuple[str, ...]) -> Iterator[_Statement]:
    """Yield the content of each ``<answer>…</answer>``, or the rest of the line if nothing closes the tag."""
    lowered = text.lower()
    for opening in islice(_TAG.finditer(text), _MOST_BOXES):
        name = _resolve_name(_fold_name(opening[1]), labels)
        if name in {*labels, _ANSWER, _RESULT}:
            end = lowered.find(f"</{opening[1].lower()}", opening.end())
            content = text[opening.end() : end] if end >= 0 else text[opening.end() :].partition("\n")[0]
            yield _Statement(text.count("\n", 0, opening.start()), name, content)


def _find_json_statements(response: str, labels: tuple[str, ...]) -> Iterator[_Statement]:
    """Yield the names and values in the objects of a JSON answer; nothing if there is no JSON."""
    if "{" not in response:
        return
    reached = line = 0
    for at, value in _read_json_values(response):
        line += response.count("\n", reached, at)
        reached = at
        for part in [value] if isinstance(value, Pairs) else value:
            if isinstance(part, Pairs):
                for name, content in part:
                    meaning = _resolve_name(_fold_name(name), labels)
                    yield _Statement(line, meaning, _json_value_text(content), in_json=True)


def _read_json_values(response: str) -> list[tuple[int, Any]]:
    """Return every valid object or array and where it begins, else the one that can be repaired."""
    if values := list(every_json(response)):
        return values
    try:
        value = extract_json(response).value
    except Unparsable:
        return []
    return [(0, Pairs(value.items()) if isinstance(value, dict) else value)]


def _json_value_text(value: Any) -> str:
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
