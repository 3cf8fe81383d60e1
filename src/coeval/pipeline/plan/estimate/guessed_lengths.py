"""How long texts will be that no model has written yet: rules of thumb, each a guess to be corrected.

Characters of what large models write when they are asked like this. A task's words on its output say most:
"one sentence", "an essay", "300 words"; where they say nothing, a paragraph is expected.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from coeval.pipeline.config.schema import TaskConfig

__all__ = [
    "FACTOR_LINE",
    "PROPOSAL",
    "item_characters",
    "label_characters",
    "text_characters",
    "verdict_characters",
]

_USUAL = 700
"""An answer, where nothing is said about its length."""
_ITEM = 900
"""An item's prompt: the input of a task, with the particulars that it needs."""
_CHARACTERS = {
    "word": 6,
    "sentence": 150,
    "line": 60,
    "bullet": 90,
    "step": 120,
    "paragraph": 450,
    "page": 2500,
}
_NUMBERS = {
    "a": 1, "an": 1, "one": 1, "single": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7,
    "eight": 8, "nine": 9, "ten": 10, "few": 3, "several": 4, "couple": 2,
}  # fmt: skip
_NUMBER = rf"(?:\d[\d,]*|{'|'.join(_NUMBERS)})"
_AMOUNT = re.compile(
    rf"\b({_NUMBER})(?:\s*(?:to|or|-|–)\s*({_NUMBER}))?[\s-]+(?:[a-z]+\s+)?({'|'.join(_CHARACTERS)})s?\b",
    re.IGNORECASE,
)
_FORMS = {
    r"\b(label|category|class|yes or no|true or false|number|letter|rating)\b": 20,
    r"\b(title|headline|name|phrase|keyword|url)s?\b": 50,
    r"\b(essay|article|report|story|chapter|proposal)\b": 2400,
    r"\b(function|program|script|code|sql)\b": 700,
    r"\b(email|e-mail|letter|memo)\b": 1000,
    r"\b(poem|dialogue|plan|guide|review|table|list)\b": 800,
    r"\b(summary|abstract|explanation|paragraph)\b": 750,
    r"\b(short|brief|concise)\b": 300,
}

PROPOSAL: Mapping[str, int] = {"target": 420, "nuanced": 380, "rubric": 620}
"""What a teacher answers in phases 1 and 2, by kind."""
FACTOR_LINE = 95
"""A line of a rubric: a factor and its criterion."""


def text_characters(description: str) -> float:
    """How long a text is that is described so."""
    amounts = [_amount(*found.groups()) for found in _AMOUNT.finditer(description)]
    if amounts:
        return max(amounts)
    for pattern, characters in _FORMS.items():
        if re.search(pattern, description, re.IGNORECASE):
            return characters
    return _USUAL


def _amount(first: str, last: str | None, unit: str) -> float:
    numbers = [_number(text) for text in (first, last) if text is not None]
    return max(4.0, sum(numbers) / len(numbers) * _CHARACTERS[unit.lower()])


def _number(text: str) -> float:
    return float(_NUMBERS.get(text.lower()) or text.replace(",", ""))


def item_characters(task: TaskConfig) -> float:
    """How long an item's prompt is: a task that works on a text has one in it."""
    said = f"{task.description} {task.output_description}"
    works_on = re.search(
        r"\b(summari|passage|document|article|translate|rewrite|extract|review of)", said, re.IGNORECASE
    )
    return _ITEM * (2.0 if works_on else 1.0)


def label_characters(labels: Mapping[str, Sequence[str]]) -> float:
    """How long an answer is that is a label, or one of each attribute."""
    longest = [max((len(value) for value in values), default=10) for values in labels.values()]
    return 12.0 + sum(longest) + 16.0 * (len(longest) - 1)


def verdict_characters(factors: Iterable[str]) -> float:
    """How long a judge's JSON is that gives each factor a level."""
    return 4.0 + sum(len(factor) + 14 for factor in factors)
