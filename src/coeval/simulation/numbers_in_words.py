"""Numbers as prompts write them: in figures, or in words up to fifty."""

from __future__ import annotations

_WORDS = {
    "once": 1, "one": 1, "single": 1, "twice": 2, "two": 2, "thrice": 3, "three": 3, "four": 4,
    "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10, "eleven": 11, "twelve": 12,
    "thirteen": 13, "fourteen": 14, "fifteen": 15, "sixteen": 16, "twenty": 20, "thirty": 30, "forty": 40,
    "fifty": 50,
}  # fmt: skip
_ORDINALS = (
    "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth",
)  # fmt: skip

LARGEST = 2000
"""What a simulated answer heeds: a prompt that asks for more gets so much."""

NUMBER = rf"(\d{{1,6}}|\b(?:{'|'.join(sorted(_WORDS, key=len, reverse=True))})\b)"
"""A group of a pattern."""
ORDINAL = rf"(\d{{1,4}}(?:st|nd|rd|th)|{'|'.join(_ORDINALS)}|last)"


def number(text: str) -> int:
    """The value of what `NUMBER` matched."""
    return min(LARGEST, int(text) if text.isdecimal() else _WORDS[text.lower()])


def ordinal(text: str, last: int) -> int:
    """The place that `ORDINAL` names, from 1; ``last`` is what "last" means."""
    word = text.lower()
    if word == "last":
        return last
    return _ORDINALS.index(word) + 1 if word in _ORDINALS else min(LARGEST, int(word[:-2]))
