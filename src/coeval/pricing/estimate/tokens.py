"""About how many tokens a text takes, where no tokenizer is there to count them.

By what the tokenizers of large models make of prose: some four characters of Latin script to a token, two of
Cyrillic, Greek, Arabic and the like, one of Chinese, Japanese and Korean.
"""

from __future__ import annotations

import re
from typing import NamedTuple

__all__ = ["LATIN_PER_TOKEN", "TextSize", "size_of"]

LATIN_PER_TOKEN = 4.2
"""Characters of Latin script to a token."""
_OTHER, _IDEOGRAPH = 2.2, 1.2
_IDEOGRAPHS = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\U00020000-\U0003ffff]")
_NOT_LATIN = re.compile(r"[^\x00-\u024f\u2000-\u206f]")


class TextSize(NamedTuple):
    """A text, or the mean of several, in characters and tokens."""

    characters: float
    tokens: float

    def __add__(self, other: object) -> TextSize:
        if not isinstance(other, TextSize):
            return NotImplemented
        return TextSize(self.characters + other.characters, self.tokens + other.tokens)


def size_of(text: str) -> TextSize:
    """A text's length, and about how many tokens it takes."""
    ideographs = len(_IDEOGRAPHS.findall(text))
    others = len(_NOT_LATIN.findall(text)) - ideographs
    latin = len(text) - ideographs - others
    return TextSize(len(text), latin / LATIN_PER_TOKEN + others / _OTHER + ideographs / _IDEOGRAPH)
