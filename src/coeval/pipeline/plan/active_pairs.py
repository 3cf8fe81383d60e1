"""Which comparisons `pairs: active` asks for: what follows from the records and the seed, and nothing else.

First some items, all pairs of them. Then, as long as the order of two neighbours is not clear, a further part
of the comparisons of those pairs whose order is least clear, until so many are asked for as the task allows.
A start that goes on finds in the records where it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeAlias

import numpy as np

from coeval.analysis.intervals import ALPHA
from coeval.analysis.pairwise.bradley_terry import PairedSums, bradley_terry
from coeval.core.records import SEPARATOR, pair_name
from coeval.core.text import digest
from coeval.pipeline.plan.judge_form import OrderedPair, PairDesign
from coeval.pipeline.plan.recorded import PairEntry, Recorded
from coeval.pipeline.plan.task_setup import TaskSetup
from coeval.store.record_index import NO_ROW

Unit: TypeAlias = tuple[str, OrderedPair]
"""An item, and two students whose answers to it are compared: in both orders, by all judges."""

# Of all comparisons: enough for a first order of ten students on 100 items (perf/pairs.py), …
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
