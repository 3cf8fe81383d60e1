"""Which attributes each item has: a balanced plan without end, the same whenever it is drawn.

A plan is a pure function of the space, the seed and the names: each item's ties are broken by
draws of its own, so a longer plan begins with the shorter one, and resuming replays it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations, groupby
from math import comb, prod
from typing import Literal, NamedTuple

import msgspec

from coeval.core.text import canonical
from coeval.pipeline.sampling.balance import Balanced, CrossProduct


class ItemSpace(msgspec.Struct, frozen=True, kw_only=True):
    """What a task's items may be, once its attributes are known.

    ``labels`` are target attributes that every item has, beside the lo…hi others of
    ``target_range``. With ``walk_product``, or the range ``all``, an item has every attribute.
    """

    target: dict[str, list[str]]
    nuance: dict[str, list[str]] = {}
    target_range: tuple[int, int] | Literal["all"] = (1, 1)
    nuance_range: tuple[int, int] = (0, 0)
    labels: tuple[str, ...] = ()
    walk_product: bool = False

    @property
    def chosen_range(self) -> tuple[int, int] | None:
        """How many target attributes an item chooses; None where it walks the full cross product."""
        return None if self.walk_product or self.target_range == "all" else self.target_range


class Sample(NamedTuple):
    """The attributes of item ``n`` (from 1), in the order they are declared."""

    n: int
    target: dict[str, str]
    nuance: dict[str, str]


class Samples:
    """The items of one teacher at one task, from n = 1, without end.

    ``recorded`` holds the target attributes of items that exist: they are given as they are and
    count towards the balance of what comes after. Where they are what was planned, nothing else
    changes; where the space has changed since, later items fill what is lacking.
    """

    def __init__(
        self,
        space: ItemSpace,
        *,
        seed: int,
        task: str,
        teacher: str,
        recorded: Mapping[int, Mapping[str, str]] | None = None,
    ) -> None:
        source = _draws_of(seed, task, teacher)
        self._recorded = recorded or {}
        self._targets: CrossProduct | Balanced
        if space.chosen_range is None:
            self._targets = CrossProduct(space.target, f"{source} target")
        else:
            self._targets = Balanced(space.target, space.chosen_range, f"{source} target", space.labels)
        self._nuances = Nuances(space.nuance, space.nuance_range, seed=seed, task=task, teacher=teacher)
        self._next = 1

    def item(self, n: int) -> Sample:
        """The attributes of item ``n``. Ask in order; items between are passed over."""
        if n < self._next:
            raise ValueError(f"item {n} was asked for after item {self._next - 1}")
        between = range(self._next, n)
        for recorded, numbers in groupby(between, self._recorded.__contains__):
            if recorded:
                self._targets.pass_over([self._recorded[number] for number in numbers])
            else:
                for _ in numbers:
                    self._targets.next_item(None)
        self._next = n + 1
        return Sample(n, self._targets.next_item(self._recorded.get(n)), self._nuances.of(n))


class Nuances:
    """The sampled nuance of one teacher's items at one task, in any order.

    What items exist makes no difference to it: it is a function of the attributes, the seed and the names.
    """

    def __init__(
        self,
        attributes: Mapping[str, Sequence[str]],
        sizes: tuple[int, int],
        *,
        seed: int,
        task: str,
        teacher: str,
    ) -> None:
        self._plan = Balanced(attributes, sizes, f"{_draws_of(seed, task, teacher)} nuance")
        self._drawn: list[dict[str, str]] = []
        self._alike: dict[tuple[tuple[str, str], ...], dict[str, str]] = {}

    def of(self, n: int) -> dict[str, str]:
        """The nuance of item ``n`` (from 1)."""
        while len(self._drawn) < n:
            nuance = self._plan.next_item(None)
            self._drawn.append(self._alike.setdefault(tuple(nuance.items()), nuance))
        return self._drawn[n - 1]


def _draws_of(seed: int, task: str, teacher: str) -> str:
    return canonical([seed, task, teacher])


def clipping(asked: tuple[int, int], there: Sequence[str]) -> str:
    """What becomes of a range whose upper end is beyond the attributes that are ``there``."""
    (lo, hi), count = asked, len(there)
    have = f"{lo} to {count}" if lo < count else f"{count}"
    return f"[{lo}, {hi}] is more than there is to sample ({', '.join(there)}); items have {have}"


def coverage_shortfall(space: ItemSpace, total: int) -> list[str]:
    """Sentences on what ``total`` items of one teacher cannot cover of the target attributes."""
    sizes = {name: len(set(values)) for name, values in space.target.items() if values}
    walks = space.chosen_range is None
    chosen = {} if walks else {name: size for name, size in sizes.items() if name not in space.labels}
    lo, hi = (min(end, len(chosen)) for end in space.chosen_range or (0, 0))
    shape = _Shape(
        always=[size for name, size in sizes.items() if name not in chosen],
        chosen=list(chosen.values()),
        counts=range(lo, hi + 1),
    )
    found = []
    if chosen and hi == 0:
        found.append(f"sampling.target [0, 0] samples no value of {', '.join(chosen)}.")
    if len(chosen) > 1 and hi == 1:
        found.append(
            f"sampling.target [{lo}, 1] puts no two of {', '.join(chosen)} into one item, so pairs of "
            "their values are not covered; an upper end of 2 or more covers them."
        )
    for noun, (held, least) in (("values", shape.values()), ("pairs of values", shape.pairs())):
        if total < least:
            found.append(
                f"{total} items cannot hold all {held} {noun} of the target attributes; "
                f"that takes at least {least}."
            )
    if walks and total < (product := prod(sizes.values())):
        found.append(f"{total} items hold {total} of the {product} combinations of the full cross product.")
    return found


class _Shape(NamedTuple):
    """How many values the attributes have that every item has, and those of which it has ``counts``."""

    always: list[int]
    chosen: list[int]
    counts: range

    def values(self) -> tuple[int, int]:
        """How many values can occur at all, and the fewest items that could hold them."""
        chosen = self.chosen if self.counts[-1] else []
        least = max([0, *self.always, *chosen])
        return sum(self.always) + sum(chosen), max(least, _items_for(sum(chosen), self.counts))

    def pairs(self) -> tuple[int, int]:
        """How many pairs of values can occur at all, and the fewest items that could hold them."""
        most = self.counts[-1]
        groups = [
            (
                [a * b for a, b in combinations(self.always, 2)],
                [comb(len(self.always), 2)] * len(self.counts),
            ),
            (
                [a * b for a in self.always for b in self.chosen] if most else [],
                [len(self.always) * k for k in self.counts],
            ),
            (
                [a * b for a, b in combinations(self.chosen, 2)] if most > 1 else [],
                [comb(k, 2) for k in self.counts],
            ),
        ]
        least = (max([_items_for(sum(products), held), *products]) for products, held in groups)
        return sum(sum(products) for products, _ in groups), max(least)


def _items_for(demand: int, held: Sequence[int]) -> int:
    """The fewest items that hold ``demand``, where each of ``held`` occurs once in as many items."""
    if demand == 0:
        return 0
    rounds, rest = divmod(demand - 1, sum(held))
    items, left = rounds * len(held), rest + 1
    for amount in sorted(held, reverse=True):
        if left > 0:
            left -= amount
            items += 1
    return items
