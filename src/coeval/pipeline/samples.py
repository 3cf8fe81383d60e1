"""Which attributes each item has: a balanced plan without end, and the nuance of recorded items."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from heapq import heapify, heappop, heappush
from itertools import combinations, groupby
from math import comb, gcd, lcm, prod
from typing import Literal, NamedTuple

import msgspec

from coeval.core.records import Datapoint, item_id, item_number
from coeval.core.text import canonical_json, digest
from coeval.pipeline.config.schema import TaskConfig
from coeval.pipeline.plan.recipes import base_recipe, item_recipe
from coeval.pipeline.prompts import render_attributes
from coeval.tables.documents import DocumentPassage

# --- Attribute choice: balanced, or the cross product
#
# Both are given the existing item, if there is one, in place of each that they would choose, and are
# otherwise pure functions of their space and of the name of their draws.


class _Draws:
    """Numbers that depend on their names alone: 512 bits of BLAKE2b at a time.

    Per item this costs a microsecond, where seeding a `random.Random` costs ten.
    """

    __slots__ = ("_name", "_refills", "_state")

    def __init__(self, source: str, n: int) -> None:
        self._name = f"{source} {n} "
        self._state = 0
        self._refills = 0

    def below(self, bound: int) -> int:
        """A whole number from 0 to ``bound - 1``."""
        if self._state < bound << 32:
            self._state = int.from_bytes(blake2b(f"{self._name}{self._refills}".encode()).digest(), "big")
            self._refills += 1
        self._state, number = divmod(self._state, bound)
        return number

    def shuffled(self, length: int) -> list[int]:
        order = list(range(length))
        for at in range(length - 1, 0, -1):
            other = self.below(at + 1)
            order[at], order[other] = order[other], order[at]
        return order


class _Attribute:
    """One attribute and its use so far. Its values are known by numbers, ``ids``.

    ``open`` are the values used ``level`` times, which no value is used less than; ``together``
    counts the items shared with each other attribute.
    """

    __slots__ = ("ids", "level", "name", "open", "size", "times", "together", "uses")

    def __init__(self, name: str, values: Sequence[str], first_id: int) -> None:
        self.name = name
        self.size = len(values)
        self.ids = {value: first_id + place for place, value in enumerate(values)}
        self.times = dict.fromkeys(self.ids.values(), 0)
        self.uses = 0
        self.level = 0
        self.open = list(self.times)
        self.together: dict[str, int] = {}

    def use(self, value: int, times: int) -> None:
        self.uses += times
        self.times[value] += times
        if value in self.open:
            self.open.remove(value)
        if not self.open:
            self.level = min(self.times.values())
            self.open = [value for value, times in self.times.items() if times == self.level]


class Balanced:
    """Items of lo…hi attributes: least-used values first, then least-used pairs, then by lot.

    Attributes are chosen so that each value occurs once as early as can be, and thereafter so
    that all pairs of values do: by value counts alone, two small attributes beside a large one
    would never meet. Of a chosen attribute an item always takes a value used least.
    """

    def __init__(
        self,
        space: Mapping[str, Sequence[str]],
        sizes: tuple[int, int],
        source: str,
        labels: Sequence[str] = (),
    ) -> None:
        self._source = source
        self._attributes: dict[str, _Attribute] = {}
        self._words: list[str] = []
        for name, values in space.items():
            if distinct := list(dict.fromkeys(values)):
                self._attributes[name] = _Attribute(name, distinct, len(self._words))
                self._words.extend(distinct)
        self._always = [self._attributes[name] for name in labels if name in self._attributes]
        self._others = [attribute for name, attribute in self._attributes.items() if name not in labels]
        self._lo, self._hi = (min(size, len(self._others)) for size in sizes)
        self._turn = -1
        self._sizes: list[int] = []
        self._pairs: list[dict[int, int]] = [{} for _ in self._words]
        self._n = 0

    def next_item(self, existing: Mapping[str, str] | None) -> dict[str, str]:
        """The next item's attributes; an existing item is only counted, as far as it is of this space."""
        if existing is not None:
            self.pass_over([existing])
            return dict(existing)
        self._n += 1
        if not self._hi and not self._always:
            return {}
        size = self._size(self._n)
        draws = _Draws(self._source, self._n)
        chosen = self._values_of(self._sampled(size, draws), draws)
        self._count(chosen, 1)
        return {name: self._words[chosen[name]] for name in self._attributes if name in chosen}

    def pass_over(self, items: Sequence[Mapping[str, str]]) -> None:
        """Count the next items, which exist; in which order they come makes no difference."""
        self._n += len(items)
        for alike, times in Counter(tuple(item.items()) for item in items).items():
            values = {
                name: self._attributes[name].ids.get(value)
                for name, value in alike
                if name in self._attributes
            }
            self._count({name: value for name, value in values.items() if value is not None}, times)

    def _size(self, n: int) -> int:
        """How many others item ``n`` has: each size from lo to hi once, shuffled, and over again."""
        width = self._hi - self._lo + 1
        turn, place = divmod(n - 1, width)
        if turn != self._turn:
            self._turn = turn
            self._sizes = _Draws(f"{self._source} sizes", turn * width + 1).shuffled(width)
        return self._lo + self._sizes[-1 - place]

    def _sampled(self, size: int, draws: _Draws) -> list[_Attribute]:
        if size == len(self._others):
            return self._always + self._others
        sampled = list(self._always)
        left = [self._others[place] for place in draws.shuffled(len(self._others))]
        for _ in range(size):
            least = min(left, key=lambda attribute: (self._use_of(attribute, sampled), -attribute.size))
            left.remove(least)
            sampled.append(least)
        return sampled

    def _use_of(self, attribute: _Attribute, sampled: Sequence[_Attribute]) -> float:
        """How much the attribute has been used for its size; the least used is sampled next.

        Negative while it has an unused value, then the mean use of its pairs with those already
        ``sampled`` for the item, or of all its pairs, or of its values where items have no pairs.
        """
        if attribute.level == 0:
            return attribute.uses / attribute.size - 1
        if sampled:
            together = attribute.together
            return sum(together.get(one.name, 0) / one.size for one in sampled) / attribute.size
        partners = len(self._words) - attribute.size if self._hi > 1 else 1
        return attribute.uses / (attribute.size * partners)

    def _values_of(self, sampled: list[_Attribute], draws: _Draws) -> dict[str, int]:
        """One least-used value of each, so that the pairs they make are least used too."""
        if len(sampled) < 2:
            return {one.name: one.open[draws.below(len(one.open))] for one in sampled}
        # Those with the least choice first: the others can still make way for them.
        one, two, *rest = sorted(sampled, key=lambda attribute: len(attribute.open))
        chosen = dict(zip((one.name, two.name), self._least_pair(one.open, two.open, draws), strict=True))
        for attribute in rest:
            rows = [self._pairs[value] for value in chosen.values()]
            used = [sum(row.get(value, 0) for row in rows) for value in attribute.open]
            fewest = min(used)
            tied = [value for value, times in zip(attribute.open, used, strict=True) if times == fewest]
            chosen[attribute.name] = tied[draws.below(len(tied))]
        return chosen

    def _least_pair(self, ones: list[int], twos: list[int], draws: _Draws) -> tuple[int, int]:
        """The least-used pair; of several, the one whose values have the fewest others to pair with.

        Left for later, such a value would find only partners that it has met already.
        """
        if len(ones) == len(twos) == 1:
            return ones[0], twos[0]
        grid = [[self._pairs[one].get(two, 0) for two in twos] for one in ones]
        fewest = min(map(min, grid))
        by_row = [row.count(fewest) for row in grid]
        by_column = [column.count(fewest) for column in zip(*grid, strict=True)]
        tied = [
            (by_row[i] + by_column[j], one, two)
            for i, one in enumerate(ones)
            for j, two in enumerate(twos)
            if grid[i][j] == fewest
        ]
        scarcest = min(tied)[0]
        tied = [pair for pair in tied if pair[0] == scarcest]
        _, one, two = tied[draws.below(len(tied))]
        return one, two

    def _count(self, chosen: Mapping[str, int], times: int) -> None:
        for name, value in chosen.items():
            attribute, row = self._attributes[name], self._pairs[value]
            attribute.use(value, times)
            for other_name, other in chosen.items():
                if other != value:
                    attribute.together[other_name] = attribute.together.get(other_name, 0) + times
                    row[other] = row.get(other, 0) + times


class CrossProduct:
    """Items of all attributes: every combination once before any comes again.

    The combinations are walked along diagonals: from item to item every attribute moves to its
    next value, so each is balanced at any length. A diagonal closes after lcm(sizes) items; which
    one follows is a full-period step over all of them, so nothing need be remembered.
    """

    def __init__(self, space: Mapping[str, Sequence[str]], source: str) -> None:
        draws = _Draws(source, 0)
        self._values: dict[str, list[str]] = {}
        self._shifts: list[int] = []
        self._length = 1
        for name, values in space.items():
            if distinct := list(dict.fromkeys(values)):
                self._values[name] = [distinct[place] for place in draws.shuffled(len(distinct))]
                # A larger shift against the attributes so far leads back to one of these diagonals.
                self._shifts.append(gcd(len(distinct), self._length))
                self._length = lcm(self._length, len(distinct))
        self._diagonals = prod(self._shifts)
        self._first = draws.below(self._diagonals)
        self._step = 1 + draws.below(self._diagonals)
        while gcd(self._step, self._diagonals) != 1:
            self._step += 1
        self._at = 0
        self._ahead: set[frozenset[tuple[str, str]]] = set()
        self._next: dict[str, str] | None = None

    def next_item(self, existing: Mapping[str, str] | None) -> dict[str, str]:
        """The next combination, less those that existing items had ahead of the walk."""
        while self._next is None:
            combination = self._combination(self._at)
            self._at += 1
            if frozenset(combination.items()) in self._ahead:
                self._ahead.remove(frozenset(combination.items()))
            else:
                self._next = combination
        if existing is not None and dict(existing) != self._next:
            self._ahead.add(frozenset(existing.items()))
            return dict(existing)
        combination, self._next = self._next, None
        return combination

    def pass_over(self, items: Iterable[Mapping[str, str]]) -> None:
        """Let the next items be these, which exist."""
        for item in items:
            self.next_item(item)

    def _combination(self, at: int) -> dict[str, str]:
        block, along = divmod(at, self._length)
        diagonal = self._first + block * self._step
        combination = {}
        for (name, values), shifts in zip(self._values.items(), self._shifts, strict=True):
            diagonal, shift = divmod(diagonal, shifts)
            combination[name] = values[(along + shift) % len(values)]
        return combination


# --- Sampling plan of a task's items
#
# A plan is a pure function of the space, the seed and the names: each item's ties are broken by draws of its
# own, so a longer plan begins with the shorter one, and resuming replays it.


class ItemSpace(msgspec.Struct, frozen=True, kw_only=True):
    """What a task's items may be, once its attributes are known.

    ``labels`` are target attributes that every item has, beside the lo…hi others of
    ``target_range``. With ``walk_product``, or the range ``all``, an item has every attribute. Where there
    are ``passages`` of documents, an item is about ``per_item`` of them.
    """

    target: dict[str, list[str]]
    nuance: dict[str, list[str]] = {}
    target_range: tuple[int, int] | Literal["all"] = (1, 1)
    nuance_range: tuple[int, int] = (0, 0)
    labels: tuple[str, ...] = ()
    walk_product: bool = False
    passages: tuple[DocumentPassage, ...] = ()
    per_item: int = 1

    @property
    def chosen_range(self) -> tuple[int, int] | None:
        """How many target attributes an item chooses; None where it walks the full cross product."""
        return None if self.walk_product or self.target_range == "all" else self.target_range


class Sample(NamedTuple):
    """The attributes of item ``n`` (from 1), in the order they are declared, and its passages."""

    n: int
    target: dict[str, str]
    nuance: dict[str, str]
    passages: tuple[DocumentPassage, ...] = ()

    @property
    def values(self) -> dict[str, str]:
        """The variables of a teacher's prompt; a passage cannot end the block it is in."""
        texts = (re.sub(r"<(?=\s*/?\s*passage)", "‹", each.text) for each in self.passages)
        return {
            "target_attributes": render_attributes(self.target),
            "nuanced_attributes": render_attributes(self.nuance),
            "passages": "\n\n".join(f"<passage>\n{text}\n</passage>" for text in texts),
        }


class Samples:
    """The items of one teacher at one task, from n = 1, without end.

    ``recorded`` holds the target attributes of items that exist: they are given as they are and
    count towards the balance of what comes after. Where they are what was planned, nothing else
    changes; where the space has changed since, later items fill what is lacking. ``about`` holds the
    `passage_keys` of items that exist.
    """

    def __init__(
        self,
        space: ItemSpace,
        *,
        seed: int,
        task: str,
        teacher: str,
        recorded: Mapping[int, Mapping[str, str]] | None = None,
        about: Mapping[int, str] | None = None,
    ) -> None:
        source = _draws_of(seed, task, teacher)
        self._recorded = recorded or {}
        self._targets: CrossProduct | Balanced
        if space.chosen_range is None:
            self._targets = CrossProduct(space.target, f"{source} target")
        else:
            self._targets = Balanced(space.target, space.chosen_range, f"{source} target", space.labels)
        self._nuances = Nuances(space.nuance, space.nuance_range, seed=seed, task=task, teacher=teacher)
        self._passages = _PassagePlan(space, f"{source} passages", about or {}) if space.passages else None
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
        passages = () if self._passages is None else self._passages.of(n)
        return Sample(n, self._targets.next_item(self._recorded.get(n)), self._nuances.of(n), passages)


def passage_keys(passages: Iterable[DocumentPassage]) -> str:
    """``input_hash`` of an item made from passages."""
    return "+".join(passage.key for passage in passages)


class _PassagePlan:
    """Each item's passages: the least used, ties by a hash of the draws' name, the round and the text.

    So one plan begins another where documents were added, but for what is new. An item that exists and is
    ``about`` other passages than planned leaves its own to the item whose passages it holds.
    """

    def __init__(self, space: ItemSpace, source: str, about: Mapping[int, str]) -> None:
        self._source = source
        self._per_item = space.per_item
        self._heap = [(0, digest(source, "0", each.key), at) for at, each in enumerate(space.passages)]
        heapify(self._heap)
        self._of = space.passages
        self._planned: list[tuple[DocumentPassage, ...]] = []
        self._held = {keys: n for n, keys in about.items() if keys != passage_keys(self._plan(n))}

    def of(self, n: int) -> tuple[DocumentPassage, ...]:
        planned, left = self._plan(n), dict(self._held)
        while (holder := left.pop(passage_keys(planned), None)) is not None:
            planned = self._plan(holder)
        return planned

    def _plan(self, n: int) -> tuple[DocumentPassage, ...]:
        while len(self._planned) < n:
            drawn = [heappop(self._heap) for _ in range(self._per_item)]
            for times, _, at in drawn:
                tie = digest(self._source, str(times + 1), self._of[at].key)
                heappush(self._heap, (times + 1, tie, at))
            self._planned.append(tuple(self._of[at] for _, _, at in drawn))
        return self._planned[n - 1]


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
    return canonical_json([seed, task, teacher])


def clipping(requested: tuple[int, int], there: Sequence[str]) -> str:
    """What becomes of a range whose upper end is beyond the attributes that are ``there``."""
    (lo, hi), count = requested, len(there)
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


class KnownNuance:
    """The nuance of one task's items; ``nuanced`` are the task's attributes, as phase 1 settled them."""

    def __init__(self, task: TaskConfig, nuanced: Mapping[str, Sequence[str]]) -> None:
        self._task = task
        self._nuanced = nuanced
        self._of_teacher: dict[str, Nuances] = {}

    def of(self, item: Datapoint) -> Mapping[str, str]:
        """As the item stores it, else as it was planned, where the item's recipe says that it was made so.

        Empty for items that were ingested, and for those of a plan that the file has changed since.
        """
        if item.sampled_nuanced_attributes is not None:
            return item.sampled_nuanced_attributes
        number = item_number(item.id)
        ours = number is not None and item.id == item_id(item.task_id, item.teacher_model_id, number)
        if number is None or not ours or not item.recipe or not self._nuanced:
            return {}
        planned = self._plan(item.teacher_model_id).of(number)
        made = item_recipe(base_recipe(item.recipe), item.sampled_target_attributes, planned)
        return planned if made == item.recipe else {}

    def _plan(self, teacher: str) -> Nuances:
        plan = self._of_teacher.get(teacher)
        if plan is None:
            sampling = self._task.sampling
            plan = self._of_teacher[teacher] = Nuances(
                self._nuanced, sampling.nuance, seed=sampling.seed, task=self._task.name, teacher=teacher
            )
        return plan
