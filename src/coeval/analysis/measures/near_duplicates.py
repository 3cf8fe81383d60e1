"""Prompts that are nearly the same as an earlier one, found in time that grows only with their number.

Items whose prompts are nearly the same get nearly the same answers and scores, and so are no independent
evidence: a group of them is one cluster in every interval and test.
"""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence, Set
from functools import lru_cache
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

# --- Surface similarity of prompts

# The mean of so many similarities is known to 0.002 where they scatter by 0.1, and takes milliseconds.
MOST_PAIRS = 2000
_WORD = re.compile(r"\w+")
# Words of a shingle: three keep phrases and forget single words that a task's prompts share.
_SIZE = 3


class Resemblance(NamedTuple):
    """The mean similarity over ``pairs`` of prompts; None where there are fewer than two prompts."""

    mean: float | None
    pairs: int


def word_shingles(text: str) -> frozenset[tuple[str, ...]]:
    """Return the 3-grams of a text's words, in lower case; a shorter text is one shingle of all its words."""
    words = _WORD.findall(text.lower())
    if len(words) < _SIZE:
        return frozenset([tuple(words)] if words else [])
    return frozenset(zip(words, words[1:], words[2:], strict=False))


def jaccard_similarity(first: Set[Any], second: Set[Any]) -> float:
    """Return the Jaccard similarity (1901): shared shingles / all; 1 where both sets are empty."""
    shared = len(first & second)
    whole = len(first) + len(second) - shared
    return shared / whole if whole else 1.0


def mean_prompt_similarity(prompts: Sequence[str], seed: int = 0) -> Resemblance:
    """Average the Jaccard similarity of two prompts' word 3-grams, over all pairs or `MOST_PAIRS` random
    ones."""
    pairs = _sample_pairs(len(prompts), random.Random(seed))
    if not pairs:
        return Resemblance(None, 0)
    shingles = {at: word_shingles(prompts[at]) for at in {at for pair in pairs for at in pair}}
    return Resemblance(
        sum(jaccard_similarity(shingles[a], shingles[b]) for a, b in pairs) / len(pairs), len(pairs)
    )


def _sample_pairs(prompt_count: int, random_source: random.Random) -> list[tuple[int, int]]:
    if prompt_count * (prompt_count - 1) // 2 <= MOST_PAIRS:
        return list(combinations(range(prompt_count), 2))
    sampled: dict[tuple[int, int], None] = {}
    while len(sampled) < MOST_PAIRS:
        a, b = random_source.sample(range(prompt_count), 2)
        sampled[min(a, b), max(a, b)] = None
    return list(sampled)


# Jaccard similarity of word 3-grams from which on two prompts are near duplicates.
SIMILAR = 0.7
# The most earlier prompts compared per shared phrase: a thousand that repeat one must not cost a million
# comparisons, and a duplicate shares several phrases.
_MOST_PER_SHINGLE = 20
# 3-grams that more than this share of a task's prompts have belong to the task, not to an item.
_COMMON_SHARE = 0.5
# Prompts below which a template cannot be told from duplicates.
_FEWEST_TEMPLATE_PROMPTS = 10
# Prompts, evenly spread, that a template is looked for in.
_MOST_TEMPLATE_PROMPTS = 1_000


class NearDuplicate(NamedTuple):
    """Indices of two prompts, and how similar they are."""

    later: int
    earlier: int
    similarity: float


def find_earlier_duplicates(prompts: Sequence[str]) -> list[NearDuplicate]:
    """Find, for each prompt of one task, the most similar earlier prompt of at least `SIMILAR`, if any.

    Shingles that more than half of ten or more prompts share, such as the instructions around each item,
    do not count. Prompts with no other words (brackets, emoji) are duplicates where they are the same
    text. Of two sets as similar as `SIMILAR`, one lacks so few of the other's shingles that they share one
    of the rarest (the prefix filter of Chaudhuri, Ganti and Kaushik 2006), so those alone name candidates.
    """
    if len(prompts) < 2:
        return []
    best = {at: NearDuplicate(at, first, 1.0) for at, first in _find_repeated_texts(prompts)}
    prompts_by_shingle: defaultdict[int, list[int]] = defaultdict(list)
    ranked = _rank_shingles(prompts, _common_shingles(prompts))

    @lru_cache(4096)
    def shingles_at(index: int) -> frozenset[int]:
        return frozenset(ranked[index].tolist())

    for at, shingles in enumerate(ranked):
        if at in best:
            continue  # what resembles it resembles the first of its text
        rarest = shingles[: int(len(shingles) * (1 - SIMILAR)) + 1].tolist()
        others = {other for shingle in rarest for other in prompts_by_shingle[shingle]}
        twins = [
            NearDuplicate(at, other, jaccard_similarity(shingles_at(at), shingles_at(other)))
            for other in others
        ]
        if alike := [twin for twin in twins if twin.similarity >= SIMILAR]:
            best[at] = min(alike, key=lambda twin: (-twin.similarity, twin.earlier))
        for shingle in rarest:
            if len(prompts_by_shingle[shingle]) < _MOST_PER_SHINGLE:
                prompts_by_shingle[shingle].append(at)
    return [best[at] for at in sorted(best)]


def _rank_shingles(prompts: Sequence[str], template: Set[tuple[str, ...]]) -> list[NDArray[np.int64]]:
    """Return each prompt's shingles as sorted ranks, the rarest first, without those of the template."""
    hashes = [
        np.array([hash(shingle) for shingle in word_shingles(text) - template], np.int64) for text in prompts
    ]
    _, kind, count = np.unique(np.concatenate(hashes), return_inverse=True, return_counts=True)
    rank = np.argsort(np.lexsort((np.arange(len(count)), count)))  # of each kind, the rarest first
    ends = np.cumsum([len(numbers) for numbers in hashes])[:-1]
    return [np.sort(numbers) for numbers in np.split(rank[kind], ends)]


def first_of_duplicate_group(duplicates: Sequence[NearDuplicate], prompt_count: int) -> NDArray[np.int64]:
    """Return the first index of each prompt's group, (prompt_count,): its own where it is alone."""
    first = list(range(prompt_count))
    for twin in duplicates:
        root, other_root = first[twin.later], first[twin.earlier]
        while first[root] != root:
            root = first[root]
        while first[other_root] != other_root:
            other_root = first[other_root]
        first[max(root, other_root)] = min(root, other_root)
    for index in range(prompt_count):
        first[index] = first[first[index]]
    return np.array(first, np.int64)


def _common_shingles(prompts: Sequence[str]) -> Set[tuple[str, ...]]:
    """Return the template around a task's items: shingles that more than `_COMMON_SHARE` of prompts share."""
    if len(prompts) < _FEWEST_TEMPLATE_PROMPTS:
        return frozenset()
    sampled = prompts[:: -(-len(prompts) // _MOST_TEMPLATE_PROMPTS)]
    seen = Counter(shingle for prompt in sampled for shingle in word_shingles(prompt))
    return frozenset(shingle for shingle, count in seen.items() if count > _COMMON_SHARE * len(sampled))


def _find_repeated_texts(prompts: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield each prompt that repeats an earlier one, ignoring blanks, with the first."""
    same: dict[str, int] = {}
    for at, prompt in enumerate(prompts):
        text = " ".join(prompt.split())
        if (first := same.setdefault(prompt if text == prompt else text, at)) != at:
            yield at, first
