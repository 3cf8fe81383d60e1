"""Prompts that are nearly the same as an earlier one, found in time that grows with their number alone.

Items whose prompts are nearly the same get nearly the same answers and scores, and so are no independent
evidence: a group of them is one cluster in every interval and test.
"""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence, Set
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

# --- Surface similarity of prompts

# The mean of so many similarities is known to 0.002 where they scatter by 0.1, and takes milliseconds.
MOST_PAIRS = 2000
_WORD = re.compile(r"\w+")
# Words of a shingle: three keep phrases and forget single words that a task's prompts share.
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


def jaccard_similarity(first: frozenset[tuple[str, ...]], second: frozenset[tuple[str, ...]]) -> float:
    """Shared / all (Jaccard 1901); 1 where both are empty."""
    whole = len(first | second)
    return len(first & second) / whole if whole else 1.0


def mean_prompt_similarity(prompts: Sequence[str], seed: int = 0) -> Resemblance:
    """The mean Jaccard similarity of the word 3-grams of two prompts, over all pairs or a seeded random
    sample of `MOST_PAIRS` of them."""
    pairs = _sample_pairs(len(prompts), random.Random(seed))
    if not pairs:
        return Resemblance(None, 0)
    shingles = {place: word_shingles(prompts[place]) for place in {place for pair in pairs for place in pair}}
    return Resemblance(
        sum(jaccard_similarity(shingles[a], shingles[b]) for a, b in pairs) / len(pairs), len(pairs)
    )


def _sample_pairs(prompts: int, drawn: random.Random) -> list[tuple[int, int]]:
    if prompts * (prompts - 1) // 2 <= MOST_PAIRS:
        return list(combinations(range(prompts), 2))
    found: dict[tuple[int, int], None] = {}
    while len(found) < MOST_PAIRS:
        a, b = drawn.sample(range(prompts), 2)
        found[min(a, b), max(a, b)] = None
    return list(found)


# Jaccard similarity of word 3-grams from which on two prompts are near duplicates.
SIMILAR = 0.7
# Earlier prompts that one is held against for each phrase that they share: a thousand that repeat a phrase
# are no million of comparisons, and a duplicate shares several.
_MOST_PER_SHINGLE = 20
# Of a task's prompts: 3-grams that more of them have say what the task is, not which item it is.
_COMMON_SHARE = 0.5
# Prompts below which a template cannot be told from duplicates.
_FEWEST_TEMPLATE_PROMPTS = 10
# Prompts, evenly spread, that a template is looked for in.
_MOST_TEMPLATE_PROMPTS = 1_000


class NearDuplicate(NamedTuple):
    """Places of two prompts, the later first, and how similar they are."""

    place: int
    of: int
    similarity: float


def find_near_duplicates(prompts: Sequence[str]) -> list[NearDuplicate]:
    """For each prompt that has an earlier one at least `SIMILAR`, the most similar of those that were found.

    ``prompts`` are those of one task. What more than half of ten or more have in common, such as the
    instructions around each item, counts for nothing. Prompts in which no other word is left (brackets,
    emoji) are duplicates where they are the same text.

    Of two sets as similar as `SIMILAR`, one lacks so few of the other's shingles that they share one of the
    rarest (the prefix filter of Chaudhuri, Ganti and Kaushik 2006), so those alone name candidates.
    """
    if len(prompts) < 2:
        return []
    template = _common_shingles(prompts)
    best = {place: NearDuplicate(place, first, 1.0) for place, first in _find_repeated_texts(prompts)}
    held: defaultdict[int, list[int]] = defaultdict(list)
    for place, shingles in enumerate(_rank_shingles(prompts, template)):
        if place in best:
            continue  # what resembles it resembles the first of its text
        rarest = shingles[: int(len(shingles) * (1 - SIMILAR)) + 1].tolist()
        others = {other for shingle in rarest for other in held[shingle]}
        own = word_shingles(prompts[place]) - template if others else frozenset[tuple[str, ...]]()
        found = [
            NearDuplicate(place, other, jaccard_similarity(own, word_shingles(prompts[other]) - template))
            for other in others
        ]
        if alike := [twin for twin in found if twin.similarity >= SIMILAR]:
            best[place] = min(alike, key=lambda twin: (-twin.similarity, twin.of))
        for shingle in rarest:
            if len(held[shingle]) < _MOST_PER_SHINGLE:
                held[shingle].append(place)
    return [best[place] for place in sorted(best)]


def _rank_shingles(prompts: Sequence[str], template: Set[tuple[str, ...]]) -> list[NDArray[np.int64]]:
    """The shingles of each prompt as numbers, those of the template left out."""
    hashes = [np.array([hash(one) for one in word_shingles(text) - template], np.int64) for text in prompts]
    _, kind, count = np.unique(np.concatenate(hashes), return_inverse=True, return_counts=True)
    rank = np.argsort(np.lexsort((np.arange(len(count)), count)))  # of each kind, the rarest first
    ends = np.cumsum([len(each) for each in hashes])[:-1]
    return [np.sort(each) for each in np.split(rank[kind], ends)]


def group_duplicates(found: Sequence[NearDuplicate], count: int) -> NDArray[np.int64]:
    """(count,): the first place of the group that each prompt belongs to, its own where it is alone."""
    first = list(range(count))
    for twin in found:
        one, other = first[twin.place], first[twin.of]
        while first[one] != one:
            one = first[one]
        while first[other] != other:
            other = first[other]
        first[max(one, other)] = min(one, other)
    for place in range(count):
        first[place] = first[first[place]]
    return np.array(first, np.int64)


def _common_shingles(prompts: Sequence[str]) -> Set[tuple[str, ...]]:
    if len(prompts) < _FEWEST_TEMPLATE_PROMPTS:
        return frozenset()
    some = prompts[:: -(-len(prompts) // _MOST_TEMPLATE_PROMPTS)]
    seen = Counter(shingle for prompt in some for shingle in word_shingles(prompt))
    return frozenset(shingle for shingle, count in seen.items() if count > _COMMON_SHARE * len(some))


def _find_repeated_texts(prompts: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Each prompt that an earlier one repeats, blanks aside, with the first."""
    same: dict[str, int] = {}
    for place, prompt in enumerate(prompts):
        text = " ".join(prompt.split())
        if (first := same.setdefault(prompt if text == prompt else text, place)) != place:
            yield place, first
