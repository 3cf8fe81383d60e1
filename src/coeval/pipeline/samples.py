"""The sampled attributes of items: a balanced, endless plan, and the nuance of recorded items."""

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
from coeval.pipeline.plan.recipes import hash_item_recipe, strip_item_part
from coeval.pipeline.prompts import render_attributes
from coeval.tables.documents import DocumentPassage

# --- Attribute choice: balanced, or the cross product
#
# Both are given the existing item, if there is one, in place of each that they would choose, and are
# otherwise pure functions of their space and of the name of their draws.


class _Draws:
    """Random numbers that depend only on their name: 512 bits of BLAKE2b, a microsecond per item, where
    seeding a `random.Random` costs ten."""

    __slots__ = ("_name", "_refills", "_state")

    def __init__(self, source: str, n: int) -> None:
        self._name = f"{source} {n} "
        self._state = 0
        self._refills = 0

    def draw_below(self, bound: int) -> int:
        """Return a whole number from 0 to ``bound - 1``."""
        if self._state < bound << 32:
            self._state = int.from_bytes(blake2b(f"{self._name}{self._refills}".encode()).digest(), "big")
            self._refills += 1
        self._state, number = divmod(self._state, bound)
        return number

    def shuffle_indices(self, length: int) -> list[int]:
        order = list(range(length))
        for at in range(length - 1, 0, -1):
            other = self.draw_below(at + 1)
            order[at], order[other] = order[other], order[at]
        return order


class _Attribute:
    """An attribute and its use so far. Its values go by numbers, ``ids``. ``open`` are the values used
    ``level`` times, the minimum; ``together`` counts the items shared with each other attribute."""

    __slots__ = ("ids", "level", "name", "open", "size", "times", "together", "uses")

    def __init__(self, name: str, values: Sequence[str], first_id: int) -> None:
        self.name = name
        self.size = len(values)
        self.ids = {value: first_id + index for index, value in enumerate(values)}
        self.times = dict.fromkeys(self.ids.values(), 0)
        self.uses = 0
        self.level = 0
        self.open = list(self.times)
        self.together: dict[str, int] = {}

    def count_use(self, value: int, times: int) -> None:
        self.uses += times
        self.times[value] += times
        if value in self.open:
            self.open.remove(value)
        if not self.open:
            self.level = min(self.times.values())
            self.open = [value for value, times in self.times.items() if times == self.level]


class BalancedPlan:
    """Plans items of lo…hi attributes: least-used values first, then least-used pairs, ties drawn at random.

    Attributes are chosen so that each value occurs once as early as possible, and afterwards each pair of
    values: by values alone, two small attributes beside a large one would never meet. An item always takes
    a least-used value of a chosen attribute.
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
        """Return the next item's attributes; an existing item is only counted, if it is in this space."""
        if existing is not None:
            self.count_existing([existing])
            return dict(existing)
        self._n += 1
        if not self._hi and not self._always:
            return {}
        size = self._choose_attribute_count(self._n)
        draws = _Draws(self._source, self._n)
        chosen = self._choose_values(self._choose_attributes(size, draws), draws)
        self._count_uses(chosen, 1)
        return {name: self._words[chosen[name]] for name in self._attributes if name in chosen}

    def count_existing(self, items: Sequence[Mapping[str, str]]) -> None:
        """Count the next items, which exist; their order does not matter."""
        self._n += len(items)
        for alike, times in Counter(tuple(item.items()) for item in items).items():
            values = {
                name: self._attributes[name].ids.get(value)
                for name, value in alike
                if name in self._attributes
            }
            self._count_uses({name: value for name, value in values.items() if value is not None}, times)

    def _choose_attribute_count(self, n: int) -> int:
        """Choose how many attributes item ``n`` has beside labels: sizes lo to hi shuffled, and again."""
        width = self._hi - self._lo + 1
        turn, index = divmod(n - 1, width)
        if turn != self._turn:
            self._turn = turn
            self._sizes = _Draws(f"{self._source} sizes", turn * width + 1).shuffle_indices(width)
        return self._lo + self._sizes[-1 - index]

    def _choose_attributes(self, size: int, draws: _Draws) -> list[_Attribute]:
        if size == len(self._others):
            return self._always + self._others
        sampled = list(self._always)
        left = [self._others[index] for index in draws.shuffle_indices(len(self._others))]
        for _ in range(size):
            least = min(left, key=lambda attribute: (self._rate_use(attribute, sampled), -attribute.size))
            left.remove(least)
            sampled.append(least)
        return sampled

    def _rate_use(self, attribute: _Attribute, sampled: Sequence[_Attribute]) -> float:
        """Rate how much the attribute was used for its size; the lowest is chosen next. Negative while some
        value is unused, then the mean use of its pairs with attributes already chosen for the item, of all
        its pairs, or of its values if items have no pairs."""
        if attribute.level == 0:
            return attribute.uses / attribute.size - 1
        if sampled:
            together = attribute.together
            return sum(together.get(other.name, 0) / other.size for other in sampled) / attribute.size
        partners = len(self._words) - attribute.size if self._hi > 1 else 1
        return attribute.uses / (attribute.size * partners)

    def _choose_values(self, sampled: list[_Attribute], draws: _Draws) -> dict[str, int]:
        """Choose a least-used value of each attribute, so that their pairs are least used too."""
        if len(sampled) < 2:
            return {first.name: first.open[draws.draw_below(len(first.open))] for first in sampled}
        # Those with the least choice first: the others can still make way for them.
        first, second, *rest = sorted(sampled, key=lambda attribute: len(attribute.open))
        chosen = dict(
            zip(
                (first.name, second.name),
                self._choose_least_used_pair(first.open, second.open, draws),
                strict=True,
            )
        )
        for attribute in rest:
            rows = [self._pairs[value] for value in chosen.values()]
            used = [sum(row.get(value, 0) for row in rows) for value in attribute.open]
            fewest = min(used)
            tied = [value for value, times in zip(attribute.open, used, strict=True) if times == fewest]
            chosen[attribute.name] = tied[draws.draw_below(len(tied))]
        return chosen

    def _choose_least_used_pair(self, ones: list[int], twos: list[int], draws: _Draws) -> tuple[int, int]:
        """Choose the least-used pair; among several, the one whose values have the fewest other partners.
        Left for later, such a value would only find partners that it has met before."""
        if len(ones) == len(twos) == 1:
            return ones[0], twos[0]
        grid = [[self._pairs[first].get(second, 0) for second in twos] for first in ones]
        fewest = min(map(min, grid))
        by_row = [row.count(fewest) for row in grid]
        by_column = [column.count(fewest) for column in zip(*grid, strict=True)]
        tied = [
            (by_row[i] + by_column[j], first, second)
            for i, first in enumerate(ones)
            for j, second in enumerate(twos)
            if grid[i][j] == fewest
        ]
        scarcest = min(tied)[0]
        tied = [pair for pair in tied if pair[0] == scarcest]
        _, first, second = tied[draws.draw_below(len(tied))]
        return first, second

    def _count_uses(self, chosen: Mapping[str, int], times: int) -> None:
        for name, value in chosen.items():
            attribute, row = self._attributes[name], self._pairs[value]
            attribute.count_use(value, times)
            for other_name, other in chosen.items():
                if other != value:
                    attribute.together[other_name] = attribute.together.get(other_name, 0) + times
                    row[other] = row.get(other, 0) + times


class CrossProductPlan:
    """Plans items of all attributes: every combination once before any repeats. It walks diagonals: from item
    to item every attribute moves to its next value, so each is balanced at any length. A diagonal closes
    after lcm(sizes) items; a full-period step over all diagonals gives the next, so no state is needed."""

    def __init__(self, space: Mapping[str, Sequence[str]], source: str) -> None:
        draws = _Draws(source, 0)
        self._values: dict[str, list[str]] = {}
        self._shifts: list[int] = []
        self._length = 1
        for name, values in space.items():
            if distinct := list(dict.fromkeys(values)):
                self._values[name] = [distinct[index] for index in draws.shuffle_indices(len(distinct))]
                # A larger shift against the attributes so far leads back to one of these diagonals.
                self._shifts.append(gcd(len(distinct), self._length))
                self._length = lcm(self._length, len(distinct))
        self._diagonals = prod(self._shifts)
        self._first = draws.draw_below(self._diagonals)
        self._step = 1 + draws.draw_below(self._diagonals)
        while gcd(self._step, self._diagonals) != 1:
            self._step += 1
        self._at = 0
        self._ahead: set[frozenset[tuple[str, str]]] = set()
        self._next: dict[str, str] | None = None

    def next_item(self, existing: Mapping[str, str] | None) -> dict[str, str]:
        """Return the next combination, without those that existing items had before their turn."""
        while self._next is None:
            combination = self._compute_combination(self._at)
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

    def count_existing(self, items: Iterable[Mapping[str, str]]) -> None:
        for item in items:
            self.next_item(item)

    def _compute_combination(self, combination_index: int) -> dict[str, str]:
        block, along = divmod(combination_index, self._length)
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
    """The space of a task's items, once its attributes are known. ``labels`` are target attributes that every
    item has, beside lo…hi others (``target_range``). With ``walk_product``, or the range ``all``, an item
    has every attribute. With ``passages`` of documents, an item is about ``per_item`` of them."""

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
        """Return how many target attributes an item chooses; None if it walks the full cross product."""
        return None if self.walk_product or self.target_range == "all" else self.target_range


class Sample(NamedTuple):
    """The sampled attributes of item ``n`` (from 1), in declared order, and its passages."""

    n: int
    target: dict[str, str]
    nuance: dict[str, str]
    passages: tuple[DocumentPassage, ...] = ()

    @property
    def prompt_variables(self) -> dict[str, str]:
        """Return the variables of a teacher's prompt; no passage can end the block that it is in."""
        texts = (re.sub(r"<(?=\s*/?\s*passage)", "‹", each.text) for each in self.passages)
        return {
            "target_attributes": render_attributes(self.target),
            "nuanced_attributes": render_attributes(self.nuance),
            "passages": "\n\n".join(f"<passage>\n{text}\n</passage>" for text in texts),
        }


class Samples:
    """The samples of one teacher's items at one task, from n = 1, without end.

    ``recorded`` are the target attributes of existing items: kept as they are, and counted towards the
    balance of later ones. If they are as planned, nothing else changes; if the space has changed, later
    items fill what is missing. ``about`` are the `join_passage_keys` of existing items.
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
        source = _make_seed_text(seed, task, teacher)
        self._recorded = recorded or {}
        self._targets: CrossProductPlan | BalancedPlan
        if space.chosen_range is None:
            self._targets = CrossProductPlan(space.target, f"{source} target")
        else:
            self._targets = BalancedPlan(space.target, space.chosen_range, f"{source} target", space.labels)
        self._nuances = Nuances(space.nuance, space.nuance_range, seed=seed, task=task, teacher=teacher)
        self._passages = _PassagePlan(space, f"{source} passages", about or {}) if space.passages else None
        self._next = 1

    def draw_sample(self, n: int) -> Sample:
        """Return the sample of item ``n``. Numbers must increase; items in between are skipped."""
        if n < self._next:
            raise ValueError(f"item {n} was asked for after item {self._next - 1}")
        between = range(self._next, n)
        for recorded, numbers in groupby(between, self._recorded.__contains__):
            if recorded:
                self._targets.count_existing([self._recorded[number] for number in numbers])
            else:
                for _ in numbers:
                    self._targets.next_item(None)
        self._next = n + 1
        passages = () if self._passages is None else self._passages.passages_for(n)
        return Sample(
            n, self._targets.next_item(self._recorded.get(n)), self._nuances.nuance_for(n), passages
        )


def join_passage_keys(passages: Iterable[DocumentPassage]) -> str:
    """Return the ``input_hash`` of an item made from passages."""
    return "+".join(passage.key for passage in passages)


class _PassagePlan:
    """Plans each item's passages: the least used, ties by a hash of name, round and text. So adding documents
    changes nothing but the new parts. An existing item that is ``about`` other passages than planned swaps
    them with the item that was to have those."""

    def __init__(self, space: ItemSpace, source: str, about: Mapping[int, str]) -> None:
        self._source = source
        self._per_item = space.per_item
        self._heap = [(0, digest(source, "0", passage.key), at) for at, passage in enumerate(space.passages)]
        heapify(self._heap)
        self._of = space.passages
        self._planned: list[tuple[DocumentPassage, ...]] = []
        self._held = {
            keys: n for n, keys in about.items() if keys != join_passage_keys(self._plan_passages(n))
        }

    def passages_for(self, n: int) -> tuple[DocumentPassage, ...]:
        planned, left = self._plan_passages(n), dict(self._held)
        while (holder := left.pop(join_passage_keys(planned), None)) is not None:
            planned = self._plan_passages(holder)
        return planned

    def _plan_passages(self, n: int) -> tuple[DocumentPassage, ...]:
        while len(self._planned) < n:
            drawn = [heappop(self._heap) for _ in range(self._per_item)]
            for times, _, at in drawn:
                tie = digest(self._source, str(times + 1), self._of[at].key)
                heappush(self._heap, (times + 1, tie, at))
            self._planned.append(tuple(self._of[at] for _, _, at in drawn))
        return self._planned[n - 1]


class Nuances:
    """The sampled nuance of one teacher's items at one task, in any order, whatever items exist."""

    def __init__(
        self,
        attributes: Mapping[str, Sequence[str]],
        sizes: tuple[int, int],
        *,
        seed: int,
        task: str,
        teacher: str,
    ) -> None:
        self._plan = BalancedPlan(attributes, sizes, f"{_make_seed_text(seed, task, teacher)} nuance")
        self._drawn: list[dict[str, str]] = []
        self._alike: dict[tuple[tuple[str, str], ...], dict[str, str]] = {}

    def nuance_for(self, n: int) -> dict[str, str]:
        while len(self._drawn) < n:
            nuance = self._plan.next_item(None)
            self._drawn.append(self._alike.setdefault(tuple(nuance.items()), nuance))
        return self._drawn[n - 1]


def _make_seed_text(seed: int, task: str, teacher: str) -> str:
    return canonical_json([seed, task, teacher])


def describe_clipped_range(requested: tuple[int, int], names: Sequence[str]) -> str:
    """Say how a range is clipped that exceeds the number of attributes."""
    (lo, hi), count = requested, len(names)
    have = f"{lo} to {count}" if lo < count else f"{count}"
    return f"[{lo}, {hi}] exceeds what can be sampled ({', '.join(names)}); items have {have}"


def describe_coverage_shortfall(space: ItemSpace, total: int) -> list[str]:
    """Say which values and pairs of the target attributes ``total`` items of one teacher cannot cover."""
    sizes = {name: len(set(values)) for name, values in space.target.items() if values}
    walks = space.chosen_range is None
    chosen = {} if walks else {name: size for name, size in sizes.items() if name not in space.labels}
    lo, hi = (min(end, len(chosen)) for end in space.chosen_range or (0, 0))
    shape = _SpaceShape(
        always=[size for name, size in sizes.items() if name not in chosen],
        chosen=list(chosen.values()),
        counts=range(lo, hi + 1),
    )
    sentences = []
    if chosen and hi == 0:
        sentences.append(f"sampling.target [0, 0] samples no value of {', '.join(chosen)}.")
    if len(chosen) > 1 and hi == 1:
        sentences.append(
            f"sampling.target [{lo}, 1] puts no two of {', '.join(chosen)} into one item, so pairs of "
            "their values are not covered; an upper end of 2 or more covers them."
        )
    for noun, (held, least) in (
        ("values", shape.count_values_and_least_items()),
        ("pairs of values", shape.count_pairs_and_least_items()),
    ):
        if total < least:
            sentences.append(
                f"{total} items cannot hold all {held} {noun} of the target attributes; "
                f"that takes at least {least}."
            )
    if walks and total < (product := prod(sizes.values())):
        sentences.append(
            f"{total} items hold {total} of the {product} combinations of the full cross product."
        )
    return sentences


class _SpaceShape(NamedTuple):
    """Numbers of values of attributes: those that every item has, and those of which it has ``counts``."""

    always: list[int]
    chosen: list[int]
    counts: range

    def count_values_and_least_items(self) -> tuple[int, int]:
        """Return how many values can occur, and the fewest items that hold all of them."""
        chosen = self.chosen if self.counts[-1] else []
        least = max([0, *self.always, *chosen])
        return sum(self.always) + sum(chosen), max(least, _count_items_to_hold(sum(chosen), self.counts))

    def count_pairs_and_least_items(self) -> tuple[int, int]:
        """Return how many pairs of values can occur, and the fewest items that hold all of them."""
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
        least = (max([_count_items_to_hold(sum(products), held), *products]) for products, held in groups)
        return sum(sum(products) for products, _ in groups), max(least)


def _count_items_to_hold(demand: int, held: Sequence[int]) -> int:
    """Return the fewest items that hold ``demand`` if each holds the next of ``held``, best order first."""
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
    """Finds the nuance of a task's recorded items; ``nuanced`` are the attributes that phase 1 settled."""

    def __init__(self, task: TaskConfig, nuanced: Mapping[str, Sequence[str]]) -> None:
        self._task = task
        self._nuanced = nuanced
        self._of_teacher: dict[str, Nuances] = {}

    def find_nuance(self, item: Datapoint) -> Mapping[str, str]:
        """Return the nuance that an item stores, else the planned one if its recipe says so; empty for
        ingested items and plans that have changed."""
        if item.sampled_nuanced_attributes is not None:
            return item.sampled_nuanced_attributes
        number = item_number(item.id)
        ours = number is not None and item.id == item_id(item.task_id, item.teacher_model_id, number)
        if number is None or not ours or not item.recipe or not self._nuanced:
            return {}
        planned = self._plan_nuances(item.teacher_model_id).nuance_for(number)
        made = hash_item_recipe(strip_item_part(item.recipe), item.sampled_target_attributes, planned)
        return planned if made == item.recipe else {}

    def _plan_nuances(self, teacher: str) -> Nuances:
        plan = self._of_teacher.get(teacher)
        if plan is None:
            sampling = self._task.sampling
            plan = self._of_teacher[teacher] = Nuances(
                self._nuanced, sampling.nuance, seed=sampling.seed, task=self._task.name, teacher=teacher
            )
        return plan
