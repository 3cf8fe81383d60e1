"""How much prompts resemble each other on the surface."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

__all__ = ["Resemblance", "jaccard", "surface_bias", "word_shingles"]

MOST_PAIRS = 2000
_WORD = re.compile(r"\w+")
_SIZE = 3


class Resemblance(NamedTuple):
    """The mean over ``pairs`` of prompts; None where there are fewer than two prompts."""

    mean: float | None
    pairs: int


def word_shingles(text: str) -> frozenset[tuple[str, ...]]:
    """The 3-grams of its words, in lower case; of a shorter text all its words as one."""
    words = _WORD.findall(text.lower())
    if len(words) < _SIZE:
        return frozenset([tuple(words)] if words else [])
    return frozenset(zip(words, words[1:], words[2:], strict=False))


def jaccard(first: frozenset[tuple[str, ...]], second: frozenset[tuple[str, ...]]) -> float:
    """Shared / all (Jaccard 1901); 1 where both are empty."""
    whole = len(first | second)
    return len(first & second) / whole if whole else 1.0


def surface_bias(prompts: Sequence[str], seed: int = 0) -> Resemblance:
    """The mean Jaccard similarity of the word 3-grams of two prompts, over all pairs or a seeded random
    sample of `MOST_PAIRS` of them."""
    pairs = _sample(len(prompts), random.Random(seed))
    if not pairs:
        return Resemblance(None, 0)
    shingles = {place: word_shingles(prompts[place]) for place in {place for pair in pairs for place in pair}}
    return Resemblance(sum(jaccard(shingles[a], shingles[b]) for a, b in pairs) / len(pairs), len(pairs))


def _sample(prompts: int, drawn: random.Random) -> list[tuple[int, int]]:
    if prompts * (prompts - 1) // 2 <= MOST_PAIRS:
        return list(combinations(range(prompts), 2))
    found: dict[tuple[int, int], None] = {}
    while len(found) < MOST_PAIRS:
        a, b = drawn.sample(range(prompts), 2)
        found[min(a, b), max(a, b)] = None
    return list(found)
