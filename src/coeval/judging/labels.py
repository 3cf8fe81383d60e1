"""Label scoring without a model: compare an answer with the value its item was made for.

``docs/tasks.md`` explains to users what counts as an answer, in the order of `_said`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from coeval.core.errors import Unparsable
from coeval.core.records import LabelScore
from coeval.core.text import extract_json, fold_name
from coeval.judging.label_values import LabelValues, label_values, normalise

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
