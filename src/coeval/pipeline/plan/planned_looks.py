"""What a task asks for by now, with `stop` or `pairs: active`: what follows from the records and the seed.

With `stop`, items are asked for in a seeded order, 20 at a time. After each such look, a pair of students is
settled where the test that holds at any look says so; a student of whom all pairs are settled is out, and
asked no more. A start that goes on finds in the records where it was; ``sampling.total`` is never passed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations, pairwise
from typing import NamedTuple, TypeAlias

import numpy as np
from scipy.special import ndtr

from coeval.analysis.anytime import Looks, bounds_at_any_look, p_at_any_look
from coeval.analysis.comparison.paired_difference import PairedScores, paired_difference
from coeval.analysis.intervals import ALPHA, Bounds
from coeval.analysis.pairwise.bradley_terry import PairedSums, bradley_terry
from coeval.core.records import CHECK, EXACT_MATCH, LEVEL_VALUE, SEPARATOR, Evaluation, pair_name
from coeval.core.text import digest
from coeval.pipeline.config.items_section import Stop
from coeval.pipeline.plan.judge_form import OrderedPair, PairDesign
from coeval.pipeline.plan.recorded import PairEntry, Recorded
from coeval.pipeline.plan.task_setup import TaskSetup
from coeval.store.record_index import NO_ROW

EACH = 20
"""Items of a look: fewer decide hardly anything earlier, and each look waits for its last judgment."""

# What is taken for the usual difference where nothing is known, in standard deviations of an item's: midway
# between small and medium of Cohen (1988); and that standard deviation of judged scores from 0 to 1.
_USUAL_EFFECT, _USUAL_SD = 0.35, 0.25

Pair: TypeAlias = tuple[str, str]


class Asked(NamedTuple):
    """``look``: of each planned item, the look that it belongs to; ``last``: of each student, the last look
    that it is asked in."""

    look: Mapping[str, int]
    last: Mapping[str, int]

    def has(self, item: str) -> bool:
        """Whether anybody is asked for it."""
        return self.look.get(item, 0) <= max(self.last.values(), default=0)

    def of(self, student: str, item: str) -> bool:
        return self.look.get(item, 0) <= self.last.get(student, 0)


def asked_by_now(
    items: Sequence[str], recorded: Recorded, setup: TaskSetup, *, furthest: bool
) -> Asked | None:
    """Return what is asked for by now, ``furthest``: the most that may ever be; None where all is.

    ``items``: all that are planned.
    """
    stop = setup.task.stop
    students = [student.name for student in setup.students]
    if stop is None:
        return None
    ordered = sorted(items, key=lambda item: (digest(f"{setup.task.sampling.seed}", item), item))
    first = max(EACH, stop.min_items)
    look = {item: 1 if at < first else 2 + (at - first) // EACH for at, item in enumerate(ordered)}
    last = dict.fromkeys(students, 1)
    records, open_pairs = _SeenScores(recorded, setup), set(combinations(sorted(students), 2))
    every = len(open_pairs)
    looks = max(look.values(), default=1)
    for n in range(1, looks):
        begin, end = (0 if n == 1 else first + EACH * (n - 2)), first + EACH * (n - 1)
        active = {name for pair in open_pairs for name in pair}
        if not active or any(records.waits(item, active) for item in ordered[begin:end]):
            break
        seen, share = ordered[:end], end / len(ordered)
        open_pairs -= {
            pair for pair in open_pairs if records.settled(pair, seen, stop, Looks(2, share), every)
        }
        last |= dict.fromkeys({name for pair in open_pairs for name in pair}, n + 1)
    if furthest:
        last |= dict.fromkeys({name for pair in open_pairs for name in pair}, looks)
    return Asked(look, last)


def expected_share(stop: Stop, students: int, total: int) -> float:
    """Return the share of ``total`` items that the looks take for students who differ by 0.35 standard
    deviations of an item's difference, as half of all runs do; of scores whose differences have one of 0.25
    of the scale."""
    pairs = max(students * (students - 1) // 2, 1)
    n = min(max(EACH, stop.min_items), total)
    while n < total:
        looks = Looks(2, n / total)
        error = _USUAL_SD / float(np.sqrt(n))
        p = 2 * float(ndtr(-_USUAL_EFFECT * np.sqrt(n)))
        arm = bounds_at_any_look(0.0, Bounds(-1.96 * error, 1.96 * error), n - 1, looks).high
        if _meets(stop, p_at_any_look(p, looks), arm, pairs):
            break
        n = min(n + EACH, total)
    return n / total if total else 1.0


def _meets(stop: Stop, p: float, arm: float, pairs: int) -> bool:
    if stop.half_width is not None:
        return arm <= stop.half_width / 100
    return p * pairs < ALPHA


class _SeenScores:
    """What is recorded of the items of a task."""

    def __init__(self, recorded: Recorded, setup: TaskSetup) -> None:
        self._recorded, self._setup = recorded, setup
        self._item = recorded.items.entry_getter("")
        computed = [CHECK] * bool(setup.checks) + [EXACT_MATCH] * bool(setup.task.label_attributes)
        self._makers = [*(judge.name for judge in setup.judges), *computed]
        self._answers, self._judgments = {}, {}
        for student in setup.students:
            suffix = SEPARATOR + student.name
            self._answers[student.name] = recorded.responses.entry_getter(suffix)
            self._judgments[student.name] = [
                recorded.evaluations.entry_getter(suffix + SEPARATOR + maker) for maker in self._makers
            ]
        self._scores: dict[tuple[str, str], float | None] = {}

    def waits(self, item: str, students: set[str]) -> bool:
        """Whether anything of the item is still to come: what failed is not waited for."""
        row = self._recorded.rows.get(item, NO_ROW)
        entry = self._item(row)
        if entry is None or not entry.good:
            return entry is None
        for name in students:
            answer = self._answers[name](row)
            if answer is None and name not in self._setup.given:
                return True
            if answer is not None and answer.good and any(get(row) is None for get in self._judgments[name]):
                return True
        return False

    def settled(self, pair: Pair, items: Sequence[str], stop: Stop, looks: Looks, pairs: int) -> bool:
        scores = [(self._score(item, pair[0]), self._score(item, pair[1])) for item in items]
        both = [(a, b) for a, b in scores if a is not None and b is not None]
        if len(both) < max(2, stop.min_items):
            return False
        a, b = np.array(both).T
        found = paired_difference([PairedScores(a, b, np.ones(len(a)))])
        bounds = bounds_at_any_look(found.difference, Bounds(found.low, found.high), found.degrees, looks)
        p = 1.0 if found.p is None else p_at_any_look(found.p, looks)
        return _meets(stop, p, (bounds.high - bounds.low) / 2, pairs)

    def _score(self, item: str, student: str) -> float | None:
        """An answer's mean over factors by their weights, each over its judges, or over its labels; None
        where a factor lacks."""
        if (item, student) not in self._scores:
            by_factor: dict[str, list[float]] = {}
            labels: list[float] = []
            for record in self._evaluations(item, student):
                for factor, level in record.scores.items():
                    by_factor.setdefault(factor, []).append(LEVEL_VALUE[level])
                for factor, value in (record.values or {}).items():
                    by_factor.setdefault(factor, []).append(value)
                labels += [float(one.match) for one in (record.label_scores or {}).values()]
            factors = {*self._setup.criteria, *self._setup.checks}
            self._scores[item, student] = self._mean(by_factor, factors, labels)
        return self._scores[item, student]

    def _mean(self, found: dict[str, list[float]], factors: set[str], labels: list[float]) -> float | None:
        if not factors:
            return float(np.mean(labels)) if labels else None
        if not factors <= found.keys():
            return None
        ordered = sorted(factors)
        weights = [self._setup.task.weights.get(factor, 1.0) for factor in ordered]
        return float(np.average([np.mean(found[factor]) for factor in ordered], weights=weights))

    def _evaluations(self, item: str, student: str) -> Iterator[Evaluation]:
        row = self._recorded.rows.get(item, NO_ROW)
        for maker, get in zip(self._makers, self._judgments[student], strict=True):
            entry = get(row)
            if entry is not None and entry.good:
                key = SEPARATOR.join((item, student, maker))
                yield self._recorded.evaluations.load(key, Evaluation)


# --- Which comparisons `pairs: active` asks for
#
# First some items, all pairs of them. Then, as long as the order of two neighbours is not clear, a further
# part of the comparisons of those pairs whose order is least clear, until so many are asked for as the task
# allows. A start that goes on finds in the records where it was.

Unit: TypeAlias = tuple[str, OrderedPair]
"""An item, and two students whose answers to it are compared: in both orders, by all judges."""

# Of all comparisons: enough for a first order of ten students on 100 items (evidence/pairs.py), …
FIRST = 0.12
# … and how many more are asked for before the order is looked at again.
NEXT = 0.04
# Resamples; p-values decide here what is asked next, not what is reported.
_RESAMPLES = 200
_WON = {"first": 1.0, "tie": 0.5, "second": 0.0}


class Seen(NamedTuple):
    """Comparisons that came to something: places of items, of the students shown first and second; ``won``: 1
    where the first won, ½ for a tie."""

    item: Sequence[int]
    who: Sequence[tuple[int, int]]
    won: Sequence[float]


def unclear_pairs(students: Sequence[str], seen: Seen, seed: int) -> dict[OrderedPair, float]:
    """How unclear the order of every two students is, as a p-value, those that are clear left out; none
    where every two neighbours are clear."""
    _, cluster = np.unique(np.array(seen.item), return_inverse=True)
    shape = (int(cluster.max()) + 1, len(students))
    sums = PairedSums.of(shape, cluster, np.array(seen.who), np.array(seen.won))
    fitted = bradley_terry(sums, seed=seed, resamples=_RESAMPLES)
    order = np.argsort(-fitted.expected()[0], kind="stable").tolist()
    if all(fitted.p_value(one, other) < ALPHA for one, other in pairwise(order)):
        return {}
    found = {
        OrderedPair(students[one], students[other]).either: fitted.p_value(one, other)
        for at, one in enumerate(order)
        for other in order[at + 1 :]
    }
    return {pair: p for pair, p in found.items() if p >= ALPHA}


def share_out(
    count: int, unclear: Mapping[OrderedPair, float], left: Mapping[OrderedPair, int]
) -> dict[OrderedPair, int]:
    """How many of ``count`` further units each pair gets: in proportion to its p-value, as far as it has any
    ``left``."""
    given = dict.fromkeys(unclear, 0)
    while count > 0:
        open_pairs = {pair: p for pair, p in unclear.items() if given[pair] < left.get(pair, 0)}
        if not open_pairs:
            break
        whole, now = sum(open_pairs.values()), count
        for pair, p in sorted(open_pairs.items(), key=lambda each: (-each[1], each[0])):
            more = min(max(1, round(now * p / whole)), left[pair] - given[pair], count)
            given[pair] += more
            count -= more
    return given


class _Records:
    """What is recorded of the units of a task."""

    def __init__(self, recorded: Recorded, setup: TaskSetup, design: PairDesign) -> None:
        self._recorded = recorded
        self.students = [student.name for student in setup.students]
        self._place = {name: at for at, name in enumerate(self.students)}
        self._getters = {
            of: [
                recorded.pairs.entry_getter(f"{SEPARATOR}{pair_name(*of)}{SEPARATOR}{judge.name}")
                for judge in setup.judges
            ]
            for of in design.orders
        }
        self._answers = {name: recorded.responses.entry_getter(SEPARATOR + name) for name in self.students}

    def of(self, unit: Unit) -> list[tuple[OrderedPair, PairEntry | None]]:
        """Each comparison of a unit, by the order of its answers."""
        row = self._recorded.rows.get(unit[0], NO_ROW)
        orders = (of for of in (unit[1], OrderedPair(*reversed(unit[1]))))
        return [(of, get(row)) for of in orders for get in self._getters[of]]

    def answered(self, unit: Unit) -> bool:
        """Whether both answers are there."""
        row = self._recorded.rows.get(unit[0], NO_ROW)
        found = (self._answers[name](row) for name in unit[1])
        return all(entry is not None and entry.good for entry in found)

    def seen(self, units: Iterable[Unit]) -> Seen:
        items: dict[str, int] = {}
        seen = Seen([], [], [])
        for unit in units:
            for of, entry in self.of(unit):
                if entry is not None and entry.good:
                    seen.item.append(items.setdefault(unit[0], len(items)))  # type: ignore[attr-defined]
                    seen.who.append((self._place[of.first], self._place[of.second]))  # type: ignore[attr-defined]
                    seen.won.append(_WON[entry.winner])  # type: ignore[attr-defined]
        return seen


def wanted_units(
    items: Iterable[str], recorded: Recorded, setup: TaskSetup, *, furthest: bool
) -> frozenset[Unit] | None:
    """The units that are asked for by now; ``furthest``: the most that may ever be, where others may take the
    place of some. None where all are."""
    design, seed = setup.pairs, setup.task.sampling.seed
    if design is None or design.share is None:
        return None
    ordered = sorted(items, key=lambda item: (digest(f"{seed}", item), item))
    pairs = sorted({of.either for of in design.orders})
    records = _Records(recorded, setup, design)
    units: list[Unit] = [(item, pair) for item in ordered for pair in pairs]
    most = int(design.share * len(units))
    first = -(-int(min(FIRST, design.share) * len(units)) // len(pairs)) * len(pairs)
    began = {unit for unit in units if any(entry is not None for _, entry in records.of(unit))}
    wanted = began | set(units[: min(first, most)])
    further = [unit for unit in units if unit not in wanted]
    room = max(0, most - len(wanted))
    waiting = any(
        records.answered(unit) and any(entry is None for _, entry in records.of(unit)) for unit in wanted
    )
    seen = records.seen(unit for unit in units if unit in began)
    if not waiting and seen.won:
        step = min(room, max(1, int(NEXT * len(units))))
        unclear = unclear_pairs(records.students, seen, seed) if step else {}
        chosen = _chosen([unit for unit in further if records.answered(unit)], unclear, step)
        wanted |= chosen
        if not chosen:
            return frozenset(wanted)  # every order is clear, or nothing is left that could make it so
    if furthest:
        more = [unit for unit in further if unit not in wanted]
        wanted |= set(more[: max(0, most - len(wanted))])
    return frozenset(wanted)


def _chosen(further: Sequence[Unit], unclear: Mapping[OrderedPair, float], step: int) -> set[Unit]:
    """So many units of the unclear pairs, items in order."""
    of_pair: dict[OrderedPair, list[Unit]] = {pair: [] for pair in unclear}
    for unit in further:
        if unit[1] in of_pair:
            of_pair[unit[1]].append(unit)
    given = share_out(step, unclear, {pair: len(of) for pair, of in of_pair.items()})
    return {unit for pair, count in given.items() for unit in of_pair[pair][:count]}
