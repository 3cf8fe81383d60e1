"""Prompts that are nearly the same as an earlier one, found in time that grows with their number alone.

Items whose prompts are nearly the same get nearly the same answers and scores, and so are no independent
evidence: a group of them is one cluster in every interval and test.
"""

from __future__ import annotations

import random
import re
from collections import Counter
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


# Jaccard similarity of word 3-grams from which on two prompts are near duplicates.
SIMILAR = 0.7
# A pair of similarity s is seen with probability ``1 − (1 − s⁴)¹⁶``: 98.8 % at 0.7, 100 % at 1.
_BANDS, _ROWS = 16, 4
# Of a task's prompts: 3-grams that more of them have say what the task is, not which item it is.
_TEMPLATE = 0.5
# Prompts below which a template cannot be told from duplicates.
_FEWEST = 10
# Prompts, evenly spread, that a template is looked for in.
_SOME = 1_000

Hashes = NDArray[np.uint64]


class NearDuplicate(NamedTuple):
    """Places of two prompts, the later first, and how similar they are."""

    place: int
    of: int
    similarity: float


def near_duplicates(prompts: Sequence[str]) -> list[NearDuplicate]:
    """For each prompt that has an earlier one at least `SIMILAR`, the most similar of those that were found.

    ``prompts`` are those of one task. What more than half of ten or more have in common, such as the
    instructions around each item, counts for nothing. Prompts in which no other word is left (brackets,
    emoji) are duplicates where they are the same text.

    MinHash signatures in bands (Broder 1997; Leskovec, Rajaraman and Ullman 2014, ch. 3) name candidates, and
    the similarity of each is computed. In a band, a prompt is held against the first with its hash, so that a
    thousand equal prompts are a thousand comparisons.
    """
    if len(prompts) < 2:
        return []
    template = _template(prompts)
    best = {place: NearDuplicate(place, first, 1.0) for place, first in _same_text(prompts)}
    seen: set[tuple[int, int]] = set()
    for rows in _signatures(*_kept_shingles(prompts, template)):
        for place, first in _same_hash(rows):
            if (place, first) in seen:
                continue
            seen.add((place, first))
            own, other = (word_shingles(prompts[at]) - template for at in (place, first))
            similarity = jaccard(own, other) if own or other else 0.0
            if similarity >= SIMILAR and (place not in best or similarity > best[place].similarity):
                best[place] = NearDuplicate(place, first, similarity)
    return [best[place] for place in sorted(best)]


def groups(found: Sequence[NearDuplicate], count: int) -> NDArray[np.int64]:
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


def _template(prompts: Sequence[str]) -> Set[tuple[str, ...]]:
    if len(prompts) < _FEWEST:
        return frozenset()
    some = prompts[:: -(-len(prompts) // _SOME)]
    seen = Counter(shingle for prompt in some for shingle in word_shingles(prompt))
    return frozenset(shingle for shingle, count in seen.items() if count > _TEMPLATE * len(some))


def _same_text(prompts: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Each prompt that an earlier one repeats, blanks aside, with the first."""
    same: dict[str, int] = {}
    for place, prompt in enumerate(prompts):
        text = " ".join(prompt.split())
        if (first := same.setdefault(prompt if text == prompt else text, place)) != place:
            yield place, first


def _same_hash(rows: Hashes) -> list[tuple[int, int]]:
    """Each prompt whose hashes (rows, prompts) an earlier one has, with the first that has them."""
    whole = np.zeros(rows.shape[1], np.uint64)
    for row in rows:
        whole = _mixed(whole ^ row)
    ordered = np.sort(whole)
    repeated = ordered[1:][ordered[1:] == ordered[:-1]]  # few, so that only those are told apart
    places = np.flatnonzero(np.isin(whole, repeated)) if len(repeated) else np.empty(0, np.int64)
    _, first, which = np.unique(whole[places], return_index=True, return_inverse=True)
    origin = places[first[which]]
    later = places != origin
    return list(zip(places[later].tolist(), origin[later].tolist(), strict=True))


def _kept_shingles(
    prompts: Sequence[str], template: Set[tuple[str, ...]]
) -> tuple[Hashes, NDArray[np.bool_], NDArray[np.int64]]:
    """The shingles of all prompts, hashed; which are the template's; where those of each prompt begin."""
    numbers: dict[str, int] = {}
    words: list[int] = []
    starts: list[int] = []
    for prompt in prompts:
        starts.append(len(words))
        found = [numbers.setdefault(word, len(numbers) + 1) for word in _WORD.findall(prompt.lower())]
        words += found + [0] * max(_SIZE - len(found), 0)
    ids = np.array(words, np.uint64)
    ends = np.array([*starts[1:], len(words)])
    shingles = _hashed([np.concatenate([ids[at:], np.zeros(at, np.uint64)]) for at in range(_SIZE)])
    inside = np.ones(len(ids), bool)
    for back in range(1, _SIZE):
        inside[ends - back] = False  # a shingle that would reach into the next prompt
    kept, counts = shingles[inside], ends - np.array(starts) - (_SIZE - 1)
    begins = np.concatenate([[0], np.cumsum(counts)[:-1]])
    padded = [[numbers[word] for word in shingle] + [0] * (_SIZE - len(shingle)) for shingle in template]
    left_out = np.isin(kept, _hashed(list(np.array(padded or [[0] * _SIZE], np.uint64).T)))
    return kept, left_out, begins


def _signatures(kept: Hashes, left_out: NDArray[np.bool_], begins: NDArray[np.int64]) -> Iterator[Hashes]:
    """(rows, prompts), band by band: of each hash function the least value over a prompt's shingles, those of
    the template left out."""

    counts = np.add.reduceat(~left_out, begins, dtype=np.int64)
    own, some = kept[~left_out], counts > 0
    starts = (np.cumsum(counts) - counts)[some]

    def least(row: int) -> Hashes:
        found = np.full(len(begins), _LAST)
        if len(own):
            found[some] = np.minimum.reduceat(_mixed(own ^ _SEEDS[row]), starts)
        return found

    for band in range(_BANDS):
        yield np.stack([least(band * _ROWS + row) for row in range(_ROWS)])


def _hashed(words: Sequence[Hashes]) -> Hashes:
    """Of shingles, given as the numbers of their first words, of their second, and so on."""
    shingles = np.zeros(len(words[0]), np.uint64)
    for each in words:
        shingles = _mixed(shingles ^ each)
    return shingles


_LAST = np.uint64(2**64 - 1)


def _mixed(values: Hashes) -> Hashes:
    """Every bit of a number spread over all (Vigna's splitmix64)."""
    z = values + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


_SEEDS = np.random.default_rng(0).integers(0, 2**63, _BANDS * _ROWS, dtype=np.uint64)
