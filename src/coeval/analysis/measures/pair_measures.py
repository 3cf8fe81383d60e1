"""Measures of pairwise judging: strengths of students, win rates, and judges' position bias."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Annotated, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from coeval.analysis.comparison.family import lead_verdict, rank_range
from coeval.analysis.comparison.paired_difference import holm_adjust_by_name
from coeval.analysis.intervals import ALPHA, Floats, clustered_mean
from coeval.analysis.measures.measure_tree import FILES, Entity, Measured, Record, ShownAs
from coeval.analysis.pairwise.rates import fit_bradley_terry, share_bounds, sum_wins_by_cluster
from coeval.analysis.readers.run_reader import RunReader
from coeval.core.figures import format_points, score_text
from coeval.core.records import is_good
from coeval.core.text import join_names, pluralize
from coeval.store.record_index import Index, PreferencePart
from coeval.store.rundir import PAIRS


class PairStudent(Entity, frozen=True):
    """A student by the comparisons of its answers with those of others."""

    strength: Annotated[
        Measured,
        ShownAs(
            "Probability of beating a random opponent among the students that comparisons link it to "
            "(Bradley–Terry; a tie is half a win). The interval is over items",
            "Strength",
            "strength",
        ),
    ]
    ranks: Annotated[
        tuple[int, int],
        ShownAs(
            "Plausible best and worst rank among the students that comparisons link it to, by all "
            "differences and Holm's adjustment",
            "Ranks",
            "rank",
            "text",
        ),
    ]
    win_rate: Annotated[
        Measured, ShownAs("Its wins in all its comparisons, ties half", "Win rate", "win rate")
    ]
    ties: Annotated[int, ShownAs("Comparisons that no answer won", "Ties", "ties", "count")]
    comparisons: Annotated[int, ShownAs("Comparisons of its answers", "Comparisons", "comparisons", "count")]
    by_task: Annotated[Mapping[str, Measured], ShownAs("Its strength in each task", elsewhere=FILES)] = {}


class PairRate(Entity, frozen=True):
    """How often the first of two students wins against the second."""

    wins: Annotated[Measured, ShownAs("Share of comparisons won, ties half", "Win rate", "wins")]
    p: Annotated[
        float,
        ShownAs("Of equal strengths, adjusted for the number of pairs", "p (Holm)", "p", "probability"),
    ]
    comparisons: Annotated[int, ShownAs("In both orders, by all judges", "Comparisons", kind="count")]


class PairJudge(Entity, frozen=True):
    """A judge by its comparisons."""

    first_place: Annotated[
        Measured,
        ShownAs(
            "How often the answer shown first wins (ties half); 0.5 means no position bias",
            "The first wins",
            "first wins",
        ),
    ]
    consistency: Annotated[
        Measured, ShownAs("How often both orders have the same winner", "Same in both orders", "consistent")
    ]
    agreement: Annotated[
        Measured, ShownAs("How often another judge names the same winner", "Same as others", "agreement")
    ]
    ties: Annotated[Measured, ShownAs("Share of ties", "Share of ties", "ties")]
    comparisons: Annotated[int, ShownAs("That it made", "Comparisons", "comparisons", "count")]


class PairMeasures(Record, frozen=True):
    """Measures of all comparisons that count."""

    groups: Annotated[
        tuple[tuple[str, ...], ...],
        ShownAs("Students linked by a chain of comparisons, strongest first", elsewhere=FILES),
    ]
    students: Annotated[dict[str, PairStudent], ShownAs("By student", elsewhere="strengths")]
    rates: Annotated[dict[tuple[str, str], PairRate], ShownAs("Students pairwise", elsewhere="win-rates")]
    judges: Annotated[dict[str, PairJudge], ShownAs("Of each judge", elsewhere="pair-judges")]
    items: Annotated[int, ShownAs("On which answers were compared", elsewhere=FILES)]
    failed: Annotated[int, ShownAs("Comparisons that failed", elsewhere=FILES)]


def unlinked_group_sentences(measures: PairMeasures) -> Iterator[str]:
    """Name the groups of students that no comparison links; yield nothing where all are linked."""
    if len(measures.groups) > 1:
        named = "; ".join(join_names(group) for group in measures.groups)
        yield f"No chain of comparisons links these groups, so each is ranked separately: {named}."


def strength_and_bias_sentences(measures: PairMeasures) -> Iterator[str]:
    """Say who is strongest, and which judges favour a position."""
    yield from unlinked_group_sentences(measures)
    for group in measures.groups:
        yield _strongest_student_sentence(measures, group)
    for name, judge in measures.judges.items():
        share = judge.first_place
        if share.value is None or share.low is None or share.high is None or share.low <= 0.5 <= share.high:
            continue
        position = "first" if share.value > 0.5 else "second"
        lead = f"by {format_points(abs(share.value - 0.5))} points"
        yield f"{name} favours the answer shown {position}, {lead}; judging both orders cancels it."


def _strongest_student_sentence(measures: PairMeasures, group: Sequence[str]) -> str:
    """Say who leads a group of compared students: over items, by the judges that compared them."""
    first, *others = group
    lead = measures.students[first]
    scope = f" of {join_names(group)}" if len(measures.groups) > 1 else ""
    share, low, high, items, _ = lead.strength
    wins, items_text = score_text(share, low, high) or "–", pluralize(items or 0, "item")
    tied = [name for name in others if measures.students[name].ranks[0] == 1]
    if tied or lead.ranks != (1, 1):
        tied = tied or [others[0]]
        verb = "is" if len(tied) == 1 else "are"
        return f"{first} wins {wins} of 100{scope} ({items_text}); {join_names(tied)} {verb} tied with it."
    verdict = lead_verdict(0.0, None, len(measures.judges))
    return f"{first} {verdict}{scope}: it wins {wins} of 100 ({items_text})."


class Comparisons(NamedTuple):
    """Good comparisons as columns: codes of names; ``item``, ``cluster`` and ``who``, (n, 2), the students
    shown first and second. ``won``: 1 where the first won, ½ for a tie. ``failed``: how many more failed."""

    tasks: list[str]
    students: list[str]
    judges: list[str]
    items: list[str]
    task: NDArray[np.int64]
    item: NDArray[np.int64]
    cluster: NDArray[np.int64]
    who: NDArray[np.int64]
    judge: NDArray[np.int64]
    won: Floats
    failed: int

    def select(self, rows: NDArray[np.bool_] | NDArray[np.int64]) -> Comparisons:
        """Select some of the comparisons; names stay."""
        names = ("task", "item", "cluster", "who", "judge", "won")
        return self._replace(**{name: getattr(self, name)[rows] for name in names})


class CountedPair(msgspec.Struct, frozen=True):
    """A planned comparison, and whether it succeeded."""

    good: bool
    part: PreferencePart

    def win_share_unless_failed(self, student: str) -> float | None:
        """Return 1 if the student won, ½ for a tie, None if the comparison failed."""
        if not self.good:
            return None
        first = _WIN_SHARE[self.part.winner or "tie"]
        return first if student == self.part.first_model_id else 1 - first


_WIN_SHARE = {"first": 1.0, "tie": 0.5, "second": 0.0}


def read_pair_comparisons(reader: RunReader) -> Comparisons | None:
    """Read the planned comparisons of existing answers, if any. Raises StoreError: a file is unreadable."""
    if not reader.run.files(PAIRS):
        return None
    pairs = read_counted_pairs(reader)
    good = [pair.part for pair in pairs if pair.good]
    (tasks, task), (items, item), (judges, judge), (students, who) = (
        np.unique(np.array(names, np.str_), return_inverse=True)
        for names in (
            [part.task_id for part in good],
            [part.datapoint_id for part in good],
            [part.judge_model_id for part in good],
            [(part.first_model_id, part.second_model_id) for part in good],
        )
    )
    clusters = reader.item_clusters(items.tolist())
    return Comparisons(
        tasks.tolist(),
        students.tolist(),
        judges.tolist(),
        items.tolist(),
        task,
        item,
        item if clusters is None else np.unique(clusters, return_inverse=True)[1][item],
        who.reshape(-1, 2),
        judge,
        np.array([_WIN_SHARE[part.winner or "tie"] for part in good]),
        len(pairs) - len(good),
    )


def read_counted_pairs(reader: RunReader) -> list[CountedPair]:
    """Read the planned comparisons of existing answers, failed ones too. Raises StoreError: unreadable."""
    index: Index[CountedPair] = Index()
    index.read(reader.run.files(PAIRS), PreferencePart, lambda part: CountedPair(is_good(part), part))
    answers = {
        (item, student)
        for item, student in reader.rows("SELECT item, model FROM answers WHERE NOT failed AND sample = 0")
    }
    pairs = (index.get(key) for key in index)
    return [pair for pair in pairs if pair is not None and _is_planned_and_answered(reader, pair, answers)]


def _is_planned_and_answered(reader: RunReader, pair: CountedPair, answers: set[tuple[str, str]]) -> bool:
    part, planned = pair.part, reader.planned
    students = (part.first_model_id, part.second_model_id)
    if any((part.datapoint_id, student) not in answers for student in students):
        return False
    if planned is None:
        return True
    return planned.is_counted(part.task_id, "judge", part.judge_model_id) and all(
        planned.is_counted(part.task_id, "student", student) for student in students
    )


def compute_pair_measures(comparisons: Comparisons | None) -> PairMeasures | None:
    """Measure comparisons; None where there are none."""
    if comparisons is None or not len(comparisons.won):
        return None
    groups = [_fit_strengths(group) for group in _split_unlinked(comparisons)]
    p_values = holm_adjust_by_name({pair: p for group in groups for pair, p in group.p_values.items()})
    ahead = [pair for pair, p in p_values.items() if p < ALPHA]
    by_task = {
        task: {
            name: strength
            for part in _split_unlinked(comparisons.select(comparisons.task == code))
            for name, strength in _fit_strengths(part).strengths.items()
        }
        for code, task in enumerate(comparisons.tasks)
        if len(comparisons.tasks) > 1
    }
    students = {}
    for group in groups:
        for name in group.strengths:
            at = comparisons.students.index(name)
            mine = (comparisons.who == at).any(axis=1)
            won = np.where(comparisons.who[:, 0] == at, comparisons.won, 1 - comparisons.won)
            students[name] = PairStudent(
                strength=group.strengths[name],
                ranks=rank_range(name, group.strengths, ahead),
                win_rate=Measured.from_interval(clustered_mean(won[mine], comparisons.cluster[mine])),
                ties=int((comparisons.won[mine] == _WIN_SHARE["tie"]).sum()),
                comparisons=int(mine.sum()),
                by_task={task: strengths[name] for task, strengths in by_task.items() if name in strengths},
            )
    return PairMeasures(
        groups=tuple(tuple(group.strengths) for group in groups),
        students=students,
        rates=dict(_win_rates(comparisons, list(students), p_values)),
        judges={name: _measure_judge(comparisons, at) for at, name in enumerate(comparisons.judges)},
        items=len(np.unique(comparisons.item)),
        failed=comparisons.failed,
    )


_Pairs = Mapping[tuple[str, str], float]


class _Group(NamedTuple):
    """Students linked by a chain of comparisons, strongest first; ``p_values`` of pairs, stronger first."""

    strengths: dict[str, Measured]
    p_values: _Pairs


def _split_unlinked(comparisons: Comparisons) -> list[Comparisons]:
    """Split comparisons into parts that share no students, the largest first."""
    group = np.arange(len(comparisons.students))
    for first, second in np.unique(comparisons.who, axis=0):
        group[group == group[second]] = group[first]
    of_rows = group[comparisons.who[:, 0]]
    names, counts = np.unique(of_rows, return_counts=True)
    parts = [comparisons.select(of_rows == name) for name in names[np.argsort(-counts, kind="stable")]]
    for at, part in enumerate(parts):
        codes, who = np.unique(part.who, return_inverse=True)
        students = [comparisons.students[code] for code in codes]
        parts[at] = part._replace(students=students, who=who.reshape(part.who.shape))
    return parts


def _fit_strengths(comparisons: Comparisons) -> _Group:
    """Fit the strengths of students that comparisons link, and test each pair."""
    clusters, cluster = np.unique(comparisons.cluster, return_inverse=True)
    students = len(comparisons.students)
    fitted = fit_bradley_terry(
        sum_wins_by_cluster(len(clusters), students, cluster, comparisons.who, comparisons.won)
    )
    expected, replicates = fitted.expected_win_rates()
    items = len(np.unique(comparisons.item))
    measured = []
    for share, column in zip(expected.tolist(), replicates.T, strict=True):
        low, high = share_bounds(share, float(column.std(ddof=1)), len(clusters))
        measured.append(Measured(share, low, high, items, None))
    names = comparisons.students
    order = sorted(range(len(names)), key=lambda at: (-(measured[at].value or 0.0), names[at]))
    return _Group(
        {names[at]: measured[at] for at in order},
        {(names[a], names[b]): fitted.p_value(*sorted((a, b))) for a, b in combinations(order, 2)},
    )


def _win_rates(
    comparisons: Comparisons, order: Sequence[str], p_values: _Pairs
) -> Iterator[tuple[tuple[str, str], PairRate]]:
    """Yield each pair of students that was compared, the stronger first, with its win rate."""
    for pair in combinations(order, 2):
        first, second = (comparisons.students.index(name) for name in pair)
        rows = (comparisons.who == first).any(axis=1) & (comparisons.who == second).any(axis=1)
        if rows.any():
            won = np.where(
                comparisons.who[rows, 0] == first, comparisons.won[rows], 1 - comparisons.won[rows]
            )
            wins = Measured.from_interval(clustered_mean(won, comparisons.cluster[rows]))
            yield pair, PairRate(wins, p_values[pair], int(rows.sum()))


def _measure_judge(comparisons: Comparisons, judge: int) -> PairJudge:
    own = comparisons.select(comparisons.judge == judge)
    others = comparisons.select(comparisons.judge != judge)
    return PairJudge(
        first_place=Measured.from_interval(clustered_mean(own.won, own.cluster)),
        consistency=_same_winner_rate(own, own, lambda key: (key[0], key[2], key[1]), flipped=True),
        agreement=_same_winner_rate(own, others, lambda key: key),
        ties=Measured.from_interval(clustered_mean(own.won == _WIN_SHARE["tie"], own.cluster)),
        comparisons=len(own.won),
    )


_Key = tuple[int, int, int]


def _same_winner_rate(
    comparisons: Comparisons, others: Comparisons, partner: Callable[[_Key], _Key], *, flipped: bool = False
) -> Measured:
    """Return how often comparisons name the same winner as their partners among ``others``. ``partner`` maps
    a comparison's key to its partner's; ``flipped``: the partner shows the answers in the other order."""
    partners: dict[_Key, list[float]] = {}
    for key, won in zip(_comparison_keys(others), others.won.tolist(), strict=True):
        partners.setdefault(key, []).append(1 - won if flipped else won)
    equal, clusters = [], []
    for key, won, cluster in zip(
        _comparison_keys(comparisons), comparisons.won.tolist(), comparisons.cluster.tolist(), strict=True
    ):
        for other in partners.get(partner(key), ()):
            equal.append(float(won == other))
            clusters.append(cluster)
    return Measured.from_interval(clustered_mean(equal, clusters))


def _comparison_keys(comparisons: Comparisons) -> Iterator[_Key]:
    return zip(
        comparisons.item.tolist(), comparisons.who[:, 0].tolist(), comparisons.who[:, 1].tolist(), strict=True
    )
