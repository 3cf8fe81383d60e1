"""Which answers people are asked to label, and what: one factor of one, without its student and its judges.

Answers are drawn by chance within strata, the same ones at every start. Every task has one random order of
its items, and all students' answers to an item are drawn together, since differences between students are
surest on shared items. So the first labels of a draw are a draw themselves: who stops early has labelled at
random all the same, and a larger draw begins with the smaller one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from coeval.analysis.intervals import Floats, Scale, clustered_mean
from coeval.analysis.measures.agreement import Reweighting
from coeval.analysis.measures.judge_measures import PairAgreement, judge_pairs, measures_of_pair
from coeval.analysis.measures.measured import Entity, Measured, ShownAs, of_interval
from coeval.analysis.measures.score_grid import UNSCORED, ScoreGrid, level_names
from coeval.analysis.readers.run_reader import RunReader
from coeval.core.errors import UsageError
from coeval.core.records import SAMPLE, Response, item_number, response_id
from coeval.core.scale import HIGH_MEDIUM_LOW, RubricScale
from coeval.core.text import digest, listed
from coeval.store.human_labels import ByChance, HumanLabel, Labels


class JudgedKey(NamedTuple):
    """An answer that a judge scored: its id, item, task, student and sample."""

    answer: str
    item: str
    task: str
    student: str
    sample: int


class DrawnAnswer(NamedTuple):
    """``drawn`` is None of one that was picked by hand."""

    key: JudgedKey
    drawn: ByChance | None


def judged_factors(grid: ScoreGrid, chosen: Iterable[str] = ()) -> dict[str, tuple[str, ...]]:
    """Name the factors that judges score, by task; of these the ``chosen``, where there are any.

    Raises UsageError: nobody scores a chosen one, or there are none at all.
    """
    known = {
        task: tuple(sorted(design.judged)) for task, design in zip(grid.tasks, grid.designs, strict=True)
    }
    chosen = tuple(chosen)
    every = sorted({factor for factors in known.values() for factor in factors})
    if not every:
        raise UsageError("no judge scores a factor of this run, so there is nothing to label")
    if unknown := [factor for factor in chosen if factor not in every]:
        raise UsageError(f"--factor {unknown[0]}: judges score {listed(every)}")
    return {
        task: tuple(factor for factor in factors if not chosen or factor in chosen)
        for task, factors in known.items()
    }


def draw(grid: ScoreGrid, factors: dict[str, tuple[str, ...]], n: int, seed: int) -> list[DrawnAnswer]:
    """Draw ``n`` answers, or all if there are fewer, in the order in which they are shown.

    Strata are task × student; an answer's probability is the share of its stratum that is drawn.
    """
    strata: defaultdict[tuple[str, str], dict[str, list[JudgedKey]]] = defaultdict(dict)
    for key in _candidates(grid, factors):
        strata[key.task, key.student].setdefault(key.item, []).append(key)
    place = {item: at for _, items in _by_task(strata) for at, item in enumerate(_ordered(items, seed))}
    one_each = {
        min(keys, key=lambda key: _hash(seed, key.answer)): len(keys)
        for items in strata.values()
        for keys in items.values()
    }
    order = sorted(
        one_each, key=lambda key: (place[key.item], _hash(seed, key.item), _hash(seed, key.answer))
    )
    taken = order[:n]
    counts = Counter((key.task, key.student) for key in taken)
    found = []
    for key in taken:
        stratum = key.task, key.student
        items = len(strata[stratum])
        share = counts[stratum] / items / one_each[key]
        found.append(DrawnAnswer(key, ByChance(share, " × ".join(stratum), seed, items)))
    return found


def picked(grid: ScoreGrid, factors: dict[str, tuple[str, ...]], items: Collection[str]) -> list[DrawnAnswer]:
    """Choose all answers to some items, by hand.

    Raises UsageError: no judge scored an answer to one of them.
    """
    found = [DrawnAnswer(key, None) for key in _candidates(grid, factors) if key.item in {*items}]
    if unknown := {*items} - {key.item for key, _ in found}:
        raise UsageError(f"--item {min(unknown)}: no judge scored an answer to such an item")
    return sorted(found, key=lambda one: (one.key.item, _hash(0, one.key.answer)))


def share_out(
    drawn: Sequence[DrawnAnswer], people: Sequence[str], by: str, overlap: float
) -> list[DrawnAnswer]:
    """Choose one person's part: the first ``overlap`` of the draw, which all have, and every k-th of the
    rest.

    Raises UsageError: the person is not among the people.
    """
    if not people:
        return list(drawn)
    names = sorted(set(people))
    if by not in names:
        raise UsageError(f"--by {by} is not among {listed(names)}; name the same people at every start")
    common = round(overlap * len(drawn))
    mine = range(common + names.index(by), len(drawn), len(names))
    return [*drawn[:common], *(drawn[at] for at in mine)]


def _candidates(grid: ScoreGrid, factors: dict[str, tuple[str, ...]]) -> Iterator[JudgedKey]:
    """The answers with a judge's score in one of these factors."""
    chosen = np.array([[name in factors[task] for name in grid.factors] for task in grid.tasks], bool)
    rows = grid.valid.any(axis=1) & chosen[grid.task, grid.factor]
    sample = grid.sample if grid.sample is not None else np.zeros(len(grid.item), np.int64)
    for item, student, at in sorted(
        set(zip(grid.item[rows].tolist(), grid.student[rows].tolist(), sample[rows].tolist(), strict=True))
    ):
        name, who = grid.items.ids[item], grid.students[student]
        task = grid.tasks[int(grid.items.task[item])]
        yield JudgedKey(response_id(name, who, at), name, task, who, at)


def _by_task(
    strata: dict[tuple[str, str], dict[str, list[JudgedKey]]],
) -> Iterator[tuple[str, set[str]]]:
    for task in sorted({task for task, _ in strata}):
        yield task, {item for (of, _), items in strata.items() if of == task for item in items}


def _ordered(items: Iterable[str], seed: int) -> list[str]:
    return sorted(items, key=lambda item: _hash(seed, item))


def _hash(seed: int, name: str) -> str:
    return digest("label", str(seed), name)


class LabelTexts(NamedTuple):
    """``reference`` is empty where the item has none."""

    prompt: str
    answer: str
    reference: str


class LabelQuestion(NamedTuple):
    """``id`` tells nothing of the student; ``label`` is what is kept once a level is given."""

    id: str
    prompt: str
    answer: str
    reference: str
    factor: str
    criterion: str
    scale: RubricScale
    label: HumanLabel

    def at(self, level: str | None) -> HumanLabel:
        """Make the label of a level, one of the scale's; None takes it back."""
        value = None if level is None else self.scale.value(level)
        return msgspec.structs.replace(self.label, level=level, value=value)


def question_id(answer: str, factor: str, judge: str) -> str:
    """Name a question to a person, so that nobody's sheet is taken for another's; it begins with a letter, so
    that no spreadsheet takes it for a number."""
    return f"q{digest('question', answer, factor, judge)}"


class ShownTexts:
    """Prompts, answers, references, criteria and scales of a run, as people are shown them.

    Raises StoreError: a file cannot be read.
    """

    def __init__(self, reader: RunReader, answers: Iterable[str], grid: ScoreGrid) -> None:
        found = {record.id: record for record in reader.records(Response, frozenset(answers))}
        items = reader.texts({record.datapoint_id for record in found.values()})
        self._shown = {
            key: LabelTexts(item.prompt or "", record.response or "", item.reference_response or "")
            for key, record in found.items()
            if (item := items.get(record.datapoint_id)) is not None
        }
        self._criteria = reader.rubrics()
        self._designs = dict(zip(grid.tasks, grid.designs, strict=True))

    def of(self, answer: str) -> LabelTexts | None:
        """Return what is shown with an answer; None where the answer or its item is gone."""
        return self._shown.get(answer)

    def criterion(self, task: str, factor: str) -> str:
        return self._criteria.get(task, {}).get(factor, "")

    def scale(self, task: str, factor: str) -> RubricScale:
        design = self._designs.get(task)
        return HIGH_MEDIUM_LOW if design is None else design.scales.get(factor, HIGH_MEDIUM_LOW)

    def fits(self, label: HumanLabel) -> bool:
        """Whether a label's level is one of its factor's scale."""
        return self.scale(label.task_id, label.factor).level(label.level) is not None

    def hashes(self, answer: str, task: str, factor: str) -> tuple[str, str]:
        """Hash what is shown: prompt, answer and the reference if there is one, and the criterion with its
        scale; empty where an answer or its prompt is gone."""
        shown = self.of(answer)
        texts = () if shown is None else shown if shown.reference else shown[:2]
        scale = self.scale(task, factor)
        values = map(repr, scale.values)
        criterion = digest(self.criterion(task, factor), *scale.levels, *values)
        return (digest(*texts) if texts else ""), criterion

    def shows(self, label: HumanLabel) -> bool:
        """Whether a label is about what is there now."""
        hashes = self.hashes(label.response_id, label.task_id, label.factor)
        return bool(hashes[0]) and hashes == (label.input_hash, label.criterion)


def to_label(
    texts: ShownTexts, drawn: Sequence[DrawnAnswer], factors: Mapping[str, Sequence[str]], judge: str
) -> Iterator[HumanLabel]:
    """Make the labels, still without a level, that a draw asks of a person."""
    for key, how in drawn:
        for factor in factors[key.task]:
            shown, criterion = texts.hashes(key.answer, key.task, factor)
            if shown:
                yield HumanLabel(
                    judge_model_id=judge,
                    task_id=key.task,
                    datapoint_id=key.item,
                    response_id=key.answer,
                    factor=factor,
                    drawn=how,
                    input_hash=shown,
                    criterion=criterion,
                )


def questions(grid: ScoreGrid, texts: ShownTexts, labels: Iterable[HumanLabel]) -> Iterator[LabelQuestion]:
    """Ask for these labels; those about texts, criteria or factors that have changed are left out."""
    designs = dict(zip(grid.tasks, grid.designs, strict=True))
    for label in labels:
        shown, design = texts.of(label.response_id), designs.get(label.task_id)
        if shown is None or design is None or label.factor not in design.judged or not texts.shows(label):
            continue
        yield LabelQuestion(
            question_id(label.response_id, label.factor, label.judge_model_id),
            *shown,
            label.factor,
            texts.criterion(label.task_id, label.factor),
            texts.scale(label.task_id, label.factor),
            label,
        )


def of_person(labels: Labels, judge: str) -> list[HumanLabel]:
    """Choose a person's labels and what is asked of that person, in the order of the draw."""
    return [label for label in labels.values() if label.response_id and label.judge_model_id == judge]


# --- Human labels as rows of the grid of scores, beside what judges gave there

PANEL = "all judges"
PEOPLE = "human labels"
"""No model has a name with a blank."""

_SIGNED = Scale(-1.0, 1.0)
# Of distances: below, two levels are equally near.
_EQUAL = 1e-9


class LabelledRows(NamedTuple):
    """Beside the rows of a grid, (C,): the mean of people's labels (NaN: none) and that of judges' scores.
    ``by_person``: each person's labels alone."""

    people: Floats
    judged: Floats
    by_person: Mapping[str, Floats]


class AgainstPeople(Entity, frozen=True):
    """A judge, or the mean of all, beside people, over answers' factors that both scored."""

    bias: Annotated[Measured, ShownAs("Judge less people, mean", "Bias", "bias", "points")]
    spa: Annotated[Measured, ShownAs("Share of equal levels", "Equal", "equal", "share")]
    kappa: Annotated[
        Measured,
        ShownAs(
            "Agreement beyond chance; of other scales weighted (Cohen 1960, 1968)",
            "κ",
            "kappa",
            "coefficient",
        ),
    ]
    count: Annotated[int, ShownAs("Labels that it has a score beside", "Labels", kind="count")]
    bias_by_level: Annotated[
        Mapping[str, Measured], ShownAs("Judge less people, by people's level", elsewhere="people-levels")
    ]
    confusion: Annotated[
        Mapping[str, Mapping[str, float]],
        ShownAs("Labels by people's level, then by the judge's", elsewhere="people-levels"),
    ]


def labelled_rows(grid: ScoreGrid, labels: Iterable[HumanLabel]) -> LabelledRows:
    """Find each label's row; several people's labels of one row are averaged. What the grid has no row for,
    or no level, is left out."""
    keys = _keys(grid, grid.item, grid.student, grid.factor, grid.sample)
    order = np.argsort(keys)
    given: defaultdict[str, dict[int, float]] = defaultdict(dict)
    items = {name: at for at, name in enumerate(grid.items.ids)}
    students = {name: at for at, name in enumerate(grid.students)}
    factors = {name: at for at, name in enumerate(grid.factors)}
    for label in labels:
        student, number = _answer_of(label)
        item, who, factor = items.get(label.datapoint_id), students.get(student), factors.get(label.factor)
        sample = _sample(number)
        if item is None or who is None or factor is None or not 0 <= sample < grid.times[who]:
            continue
        place = (np.array([at]) for at in (item, who, factor, sample))
        key = int(_keys(grid, *place)[0])
        at = int(np.searchsorted(keys, key, sorter=order))
        if at == len(order) or keys[order[at]] != key:
            continue
        row = int(order[at])
        scale = grid.designs[int(grid.task[row])].scales.get(label.factor, HIGH_MEDIUM_LOW)
        if (level := scale.level(label.level)) is not None:
            given[label.judge_model_id][row] = scale.value(level)
    by_person = {}
    for person, values in sorted(given.items()):
        column = np.full(len(grid.item), np.nan)
        column[list(values)] = list(values.values())
        by_person[person] = column
    return LabelledRows(_means(list(by_person.values()), len(grid.item)), _judged(grid), by_person)


def _answer_of(label: HumanLabel) -> tuple[str, str]:
    """Whose answer is labelled, and the number of the sample, empty of the first."""
    student, _, number = label.response_id.removeprefix(f"{label.datapoint_id}__").partition(SAMPLE)
    return student, number


class SampledRows(NamedTuple):
    """Rows without those of answers that came after the draw; ``later``: how many items these are to."""

    rows: LabelledRows
    later: int


def sampled_rows(grid: ScoreGrid, rows: LabelledRows, drawn: Iterable[HumanLabel]) -> SampledRows:
    """Leave out a student's answers to items of a task that were not among those drawn from: labels are no
    sample of them. Items that a student has no answer to are none of these.

    Items come in the order of their numbers, those with ids of their own as they are on record. Of several
    draws the one from the fewest items counts: what it was from, all of them were from.
    """
    fewest: dict[tuple[str, str], int] = {}
    for label in drawn:
        if label.drawn is not None and label.drawn.items:
            stratum = label.task_id, _answer_of(label)[0]
            fewest[stratum] = min(label.drawn.items, fewest.get(stratum, label.drawn.items))
    numbers = [item_number(name) for name in grid.items.ids]
    judged, out = np.isfinite(rows.judged), np.zeros(len(grid.item), bool)
    for (task, student), most in fewest.items():
        if task in grid.tasks and student in grid.students:
            mine = (grid.task == grid.tasks.index(task)) & (grid.student == grid.students.index(student))
            items = np.unique(grid.item[mine & judged]).tolist()
            ordered = sorted(items, key=lambda at: (numbers[at] if numbers[at] is not None else at, at))
            out |= mine & np.isin(grid.item, ordered[most:])

    def without(column: Floats) -> Floats:
        return np.where(out, np.nan, column)

    by_person = {person: without(column) for person, column in rows.by_person.items()}
    kept = LabelledRows(without(rows.people), without(rows.judged), by_person)
    return SampledRows(kept, len(np.unique(grid.item[out])))


def _sample(number: str) -> int:
    """Which of a student's answers to an item an id ends in, from 0; below 0 where it says nothing."""
    if not number:
        return 0
    return int(number) - 1 if number.isdecimal() and number.isascii() and len(number) < 6 else -1


def _keys(
    grid: ScoreGrid,
    item: NDArray[np.integer],
    student: NDArray[np.integer],
    factor: NDArray[np.integer],
    sample: NDArray[np.integer] | None,
) -> NDArray[np.int64]:
    own = None if grid.sample is None else sample
    answer = grid._replace(item=item, student=student, sample=own).answer
    return np.asarray(answer * max(len(grid.factors), 1) + factor, np.int64)


def _means(columns: Sequence[Floats], rows: int) -> Floats:
    """Over those that are there, NaN where none is."""
    total, count = np.zeros(rows), np.zeros(rows)
    for column in columns:
        there = np.isfinite(column)
        total[there] += column[there]
        count += there
    with np.errstate(invalid="ignore"):
        return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _judged(grid: ScoreGrid) -> Floats:
    values = grid.values
    return _means([np.where(column >= 0, values[column], np.nan) for column in grid.levels.T], len(grid.item))


def judges_against_people(
    grid: ScoreGrid, rows: LabelledRows, reweighting: Reweighting
) -> dict[str, AgainstPeople]:
    """By judge, and of the mean over all. Rows are taken twice: a mean between two levels is half of each."""
    known = np.tile(np.flatnonzero(np.isfinite(rows.people) & np.isfinite(rows.judged)), 2)
    again = np.arange(len(known)) >= len(known) // 2
    some, people, values = _of(grid, known), rows.people[known], grid.values
    columns = {name: some.levels[:, at] for at, name in enumerate(grid.judges)}
    human = _nearest(some, people, again)
    scored = {name: np.where(column >= 0, values[column], np.nan) for name, column in columns.items()} | {
        PANEL: rows.judged[known]
    }
    columns[PANEL] = _nearest(some, rows.judged[known], again)
    found = {}
    for name, column in columns.items():
        there = column >= 0
        if there.any():
            agreed = _agreed(some, (name, column), (PEOPLE, human), reweighting)
            distances = scored[name][there] - people[there]
            found[name] = _against(some.of_rows(there), agreed, distances, (human[there], column[there]))
    return found


def _against(
    grid: ScoreGrid,
    agreed: PairAgreement,
    distances: Floats,
    levels: tuple[NDArray[np.int8], NDArray[np.int8]],
) -> AgainstPeople:
    names = level_names(grid)
    human, own = (names.place[grid.task, grid.factor, column] for column in levels)
    used = [at for at in range(len(names.names)) if (human == at).any() or (own == at).any()]
    return AgainstPeople(
        bias=of_interval(clustered_mean(distances, grid.cluster, _SIGNED), None),
        spa=agreed.spa,
        kappa=agreed.kappa,
        count=agreed.count // 2,
        bias_by_level={
            names.names[at]: of_interval(
                clustered_mean(distances[human == at], grid.cluster[human == at], _SIGNED), None
            )
            for at in used
            if (human == at).any()
        },
        confusion={
            names.names[at]: {names.names[to]: _half(((human == at) & (own == to)).sum()) for to in used}
            for at in used
        },
    )


def _half(count: np.int64) -> float:
    """A whole number where it is one."""
    return int(count) // 2 if count % 2 == 0 else int(count) / 2


def people_agreement(
    grid: ScoreGrid, rows: LabelledRows, reweighting: Reweighting
) -> dict[tuple[str, str], PairAgreement]:
    """Of every two people, over what both labelled."""
    found = {}
    names = list(rows.by_person)
    for at, one in enumerate(names):
        for other in names[at + 1 :]:
            both = np.isfinite(rows.by_person[one]) & np.isfinite(rows.by_person[other])
            if both.any():
                some = _of(grid, both)
                columns = [(name, _nearest(some, rows.by_person[name][both])) for name in (one, other)]
                found[one, other] = _agreed(some, columns[0], columns[1], reweighting)
    return found


def _agreed(
    grid: ScoreGrid,
    one: tuple[str, NDArray[np.int8]],
    other: tuple[str, NDArray[np.int8]],
    reweighting: Reweighting,
) -> PairAgreement:
    names = (one[0], other[0])
    designs = tuple(design._replace(judges=frozenset(names)) for design in grid.designs)
    both = grid._replace(levels=np.c_[one[1], other[1]], judges=names, designs=designs)
    [pair] = judge_pairs(both, reweighting)
    return measures_of_pair(pair)


def _nearest(grid: ScoreGrid, values: Floats, last_of: NDArray[np.bool_] | None = None) -> NDArray[np.int8]:
    """The place of the nearest level of each row's scale among all levels; between two, the first of its
    scale, and the last of the rows ``last_of``."""
    found = np.full(len(values), UNSCORED, grid.levels.dtype)
    for task, design in enumerate(grid.designs):
        for factor, name in enumerate(grid.factors):
            rows = (grid.task == task) & (grid.factor == factor)
            if rows.any():
                scale = design.scales.get(name, HIGH_MEDIUM_LOW)
                own = np.array(scale.values)
                far = np.abs(values[rows][:, None] - own)
                near = far <= far.min(axis=1, keepdims=True) + _EQUAL
                first, last = near.argmax(axis=1), len(own) - 1 - near[:, ::-1].argmax(axis=1)
                level = own[first if last_of is None else np.where(last_of[rows], last, first)]
                found[rows] = np.abs(level[:, None] - grid.scale).argmin(axis=1)
    return found


def _of(grid: ScoreGrid, rows: NDArray[np.bool_] | NDArray[np.intp]) -> ScoreGrid:
    """These rows by judges alone."""
    return grid.of_rows(rows)._replace(checked=None)
