"""Label scoring without a model: compare an answer with the value its item was made for.

``docs/tasks.md`` explains to users what counts as an answer, in the order of `_LabelAnswer.value_of`.
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
            if not all(map(_is_around, _plain(value).strip())):  # punctuation alone is not looked for
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
        return {value for value, _ in self._occurrences(text)}

    def stated(self, text: str) -> set[str]:
        """Return the declared value that ``text`` says, if any: as a whole, as its first clause, or as the
        only one of that clause, which it begins or ends."""
        text = text.strip()
        clause = text[: end.start()] if (end := _CLAUSE_END.search(text)) else text
        if value := self.named(text) or self.named(clause):
            return {value}
        occurrences = set(self._occurrences(clause))
        values = {value for value, _ in occurrences}
        return values if len(values) == 1 and any(at_end for _, at_end in occurrences) else set()

    def _occurrences(self, text: str) -> Iterator[tuple[str, bool]]:
        """Yield the values within ``text``, each with whether no word is before it, or none behind it."""
        if self._first is None:
            return
        searched = _search(text, self._parting)
        words_begin = next((n for n, mark in enumerate(searched.text) if mark.isalnum()), 0)
        words_end = next((n for n in range(len(searched.text), 0, -1) if searched.text[n - 1].isalnum()), 0)
        reached = 0
        for first in self._first.finditer(searched.text):
            start = first.start()
            words = self._begins(searched, start)
            if words is None or start + len(words) <= reached:  # none, or a part of the value before
                continue
            reached = start + len(words)
            if not _NEGATED.search(searched.text, max(0, start - _LONGEST_NEGATION), start):
                yield self._sought[words], start <= words_begin or reached >= words_end

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
    ``_`` alone: what they join is one word to a reader. ``dashes`` are those that stand for a dash amid
    blanks.
    """

    text: str
    cased: str
    glued: Set[int]
    dashes: Set[int]

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
        if any(part[:1] in tuple("'.") and part[1:].isalnum() for part in around) or around[1][:1] == "-":
            return False
        if end in self.dashes or not _WORD_FOLLOWS.match(text, end) or _NO_ARTICLE_BEFORE.match(text, end):
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
    return _Search(" ".join(text[p] for p in pieces), " ".join(cased[p] for p in pieces), glued, dashes)


def _goes_on(beside: str) -> bool:
    """Whether a word goes on in the character beside it (empty at either end of the text)."""
    if not beside or _UNPARTED.match(beside):
        return False
    return beside.isalnum() or beside in _SIGNS or unicodedata.category(beside).startswith("M")


def _parts_number(beside: str) -> bool:
    """Whether a number goes on: what stands beside its digit, nearest first, is ``.5`` or ``/5``."""
    return len(beside) == 2 and beside[0] in ".,:/" and beside[1].isdigit()


def _plain(text: str) -> str:
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    text = text.translate(_SPELLINGS)
    text = text.replace("\\_", "_").replace(_DOTTED_I, "i")
    return _BLANK_BEFORE_PERCENT.sub("", text) if "%" in text or "‰" in text else text


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
    return character == " " or unicodedata.category(character).startswith("P")


def _is_sign(text: str, at: int) -> bool:
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
    """Compare ``response`` with the ``expected`` value of each label.

    ``declared`` are the possible values of each label. The prediction is one of them, as declared, or None
    where the answer states none of them, or several.
    """
    answer = _LabelAnswer(response, tuple(map(_name, expected)))
    scores: dict[str, LabelScore] = {}
    for label, value in expected.items():
        known = declared.get(label, ())
        values = label_values(tuple(known) if value in known else (*known, value))
        needed = values.named(value) or value
        predicted = answer.value_of(_name(label), values, single=len(expected) == 1)
        scores[label] = LabelScore(expected=needed, predicted=predicted, match=predicted == needed)
    return scores


class _Statement(NamedTuple):
    """What an answer says on one of its lines, and the name that it says it under (`_subject`)."""

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
        return _statements(self.text, self._labels)

    def value_of(self, label: str, values: LabelValues, *, single: bool) -> str | None:
        """Return the one value that the answer gives to ``label``; None where it gives none, or several.

        The whole answer goes first, then the last line that states a value: under the label's name, in a box,
        for a single label under another name of an answer; then the first line. Words are sought last, and
        only in what the label's name introduces, where there is such a thing.
        """
        if (value := values.named(self.text)) is not None:
            return value
        own = self._under(label, _BOX_NAME) if single else self._under(label) or self._under(_BOX_NAME)
        general = self._under(_ANSWER) if single else []
        if single and not own and not general:
            general = self._under(_RESULT) or self._only_pair()
        if stated := _last_values([*own, *general], label, values.stated):
            return _only(stated)
        if (value := values.named(self.text.strip().partition("\n")[0])) is not None:
            return value
        if (within := _last_values(own or general, label, values.within)) or own:
            return _only(within)
        # Of an answer that is JSON and nothing else, its values are all that is said.
        said = [statement.text for statement in self.statements if statement.in_json]
        texts = said if said and _ONLY_JSON.fullmatch(self.text) else [self.text]
        return _only({value for text in texts for value in values.within(text)})

    def _under(self, *names: str) -> list[_Statement]:
        return [statement for statement in self.statements if statement.name in names]

    def _only_pair(self) -> list[_Statement]:
        """The one pair of an answer that says nothing else."""
        pairs = [statement for statement in self.statements if statement.in_json] or self.statements
        if len(pairs) != 1 or len(pairs[0].name.split()) > _MOST_NAME_WORDS:
            return []
        return list(pairs) if pairs[0].in_json or "\n" not in self.text.strip() else []


def _last_values(statements: Iterable[_Statement], label: str, read: Callable[[str], Set[str]]) -> Set[str]:
    """Return what the last line that gives values gives; on one line, the label's own name goes first."""

    def order(statement: _Statement) -> tuple[int, bool]:
        return -statement.line, statement.name != label

    for _, same in groupby(sorted(statements, key=order), key=order):
        if values := {value for statement in same for value in read(statement.text)}:
            return values
    return frozenset()


def _only(found: Iterable[str]) -> str | None:
    values = list(found)
    return values[0] if len(values) == 1 else None


def _name(text: str) -> str:
    """Fold a label's name, or what precedes a colon."""
    return normalize_name(normalise(text))


def _subject(name: str, labels: Sequence[str]) -> str:
    """Return the label that a folded name means, `_ANSWER` or `_RESULT` for such a name, else the name."""
    if name in labels:
        return name
    noun = _NAME_PARTS.split(name)[-1]
    while noun not in labels and noun not in _ANSWER_NOUNS:
        if (before := _BEFORE_NOUN.match(noun)) is None:
            return name
        noun = noun[before.end() :]
    return noun if noun in labels else _ANSWER_NOUNS[noun]


def _statements(response: str, labels: tuple[str, ...]) -> list[_Statement]:
    """Find what ``response`` states in boxes, tags, JSON and lines. Where JSON does, lines before its end do
    not count."""
    known = {*labels, _ANSWER, _RESULT}
    in_json = list(_json_statements(response, labels))
    text = _plain(response)
    lines = text.split("\n")
    first = 0
    if any(statement.name in known for statement in in_json):
        first = text.count("\n", 0, max(text.rfind("}"), text.rfind("]"))) + 1
    found = [*in_json, *_boxes(text), *_tags(text, labels)]
    following = ""
    for number in range(len(lines) - 1, first - 1, -1):
        for name, said in _line_statements(lines[number], labels):
            if name in known and not said.strip(_EMPHASIS):
                said = following  # a name is a heading there
            if said.strip(_EMPHASIS):
                found.append(_Statement(number, name, said))
        following = lines[number] if lines[number].strip() else following
    return found


def _line_statements(line: str, labels: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield what a line says, with its name: ``name: value``, "the correct answer is …"."""
    marks: list[tuple[str, int, int]] = []
    name, colon, _ = line.partition(":")
    if colon and len(name) <= _LONGEST_NAME:
        marks.append((_subject(_name(name), labels), 0, len(name) + 1))
    begin = len(name) + 1 if marks and marks[0][0] in {*labels, _ANSWER, _RESULT} else 0
    marks += [
        (_name(phrase["label"] or _ANSWER), phrase.start(), phrase.end())
        for phrase in _phrases(labels).finditer(line, begin)
    ]
    for (name, _, start), (_, end, _) in pairwise([*marks, ("", len(line), 0)]):
        yield name, line[start:end]


@lru_cache(maxsize=256)  # as `label_values`
def _phrases(labels: tuple[str, ...]) -> re.Pattern[str]:
    names = (r"[\s_-]+".join(map(re.escape, label.split())) for label in labels)
    return re.compile(_PHRASE.format(labels="|".join(names)), re.IGNORECASE)


def _boxes(text: str) -> Iterator[_Statement]:
    """What is in each ``\\boxed{…}``, without commands that only set a typeface."""
    for opening in islice(_BOX.finditer(text), _MOST_BOXES):
        depth = 1
        for brace in _BRACE.finditer(text, opening.end()):
            depth += 1 if brace.group() == "{" else -1
            if depth == 0:
                said = _TYPEFACE.sub(r"\1", text[opening.end() : brace.start()])
                yield _Statement(text.count("\n", 0, opening.start()), _BOX_NAME, said)
                break


def _tags(text: str, labels: tuple[str, ...]) -> Iterator[_Statement]:
    """What is in each ``<answer>…</answer>``, or behind the tag on its line where nothing closes it."""
    lowered = text.lower()
    for opening in islice(_TAG.finditer(text), _MOST_BOXES):
        name = _subject(_name(opening[1]), labels)
        if name in {*labels, _ANSWER, _RESULT}:
            end = lowered.find(f"</{opening[1].lower()}", opening.end())
            said = text[opening.end() : end] if end >= 0 else text[opening.end() :].partition("\n")[0]
            yield _Statement(text.count("\n", 0, opening.start()), name, said)


def _json_statements(response: str, labels: tuple[str, ...]) -> Iterator[_Statement]:
    """What the objects of a JSON answer hold; nothing if there is no JSON."""
    if "{" not in response:
        return
    reached = line = 0
    for at, value in _json_values(response):
        line += response.count("\n", reached, at)
        reached = at
        for part in [value] if isinstance(value, Pairs) else value:
            if isinstance(part, Pairs):
                for name, said in part:
                    yield _Statement(line, _subject(_name(name), labels), _as_text(said), in_json=True)


def _json_values(response: str) -> list[tuple[int, Any]]:
    """Every valid object or array with where it begins, else the one that can be repaired."""
    if values := list(every_json(response)):
        return values
    try:
        value = extract_json(response).value
    except Unparsable:
        return []
    return [(0, Pairs(value.items()) if isinstance(value, dict) else value)]


def _as_text(value: Any) -> str:
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
