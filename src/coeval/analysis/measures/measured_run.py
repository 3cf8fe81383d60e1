"""Measure a folder: each part that is asked for once, from the scores that count."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cache, singledispatch
from typing import Literal, NamedTuple, TypeAlias, TypeVar

import msgspec

from coeval.analysis.comparison.paired_difference import paired_difference
from coeval.analysis.intervals import ALPHA, p_at_any_look
from coeval.analysis.measures.agreement import Reweighting
from coeval.analysis.measures.benchmark_measures import benchmark_measures
from coeval.analysis.measures.judge_measures import (
    FEWEST_COMMON,
    JudgeMeasures,
    judge_agreement,
    judge_measures,
    judge_pairs,
    pair_measures,
    panel_measures,
)
from coeval.analysis.measures.label_measures import Labels, label_measures
from coeval.analysis.measures.leaders import (
    label_sentence,
    leader_sentences,
    partial_sentences,
    place_sentences,
)
from coeval.analysis.measures.measured import Analysis
from coeval.analysis.measures.output_measures import measure_output
from coeval.analysis.measures.pair_measures import measured_pairs, pair_sentences, read_comparisons
from coeval.analysis.measures.ranking import (
    NOBODY,
    OthersAlone,
    Ranking,
    SharedScores,
    ranking,
    without_own_measures,
)
from coeval.analysis.measures.robust_set import RobustMeasures, RobustOptions, robust_measures
from coeval.analysis.measures.run_measures import Measures, OutputMeasures, RunMeasures, parts_of
from coeval.analysis.measures.score_grid import ScoreGrid, levels_by_judge, score_grid
from coeval.analysis.measures.student_measures import (
    StudentMeasures,
    StudentScores,
    check_measures,
    student_measures,
)
from coeval.analysis.measures.teacher_measures import teacher_measures
from coeval.analysis.panel.bias_ledger import length_findings
from coeval.analysis.panel.g_study import g_study
from coeval.analysis.panel.panel_findings import family_judges, family_teachers, panel_findings, reliability
from coeval.analysis.panel.panel_reading import biases_of, consistency_of, contrasts_of, families_of
from coeval.analysis.people.people_measures import people_measures, people_sentences
from coeval.analysis.readers.output_reader import OutputReader
from coeval.analysis.readers.reader import Reader
from coeval.analysis.readers.run_reader import RunReader
from coeval.analysis.run_results import Bounded, answer_findings, missing_label_sentences
from coeval.analysis.sampled_answers import sample_measures
from coeval.analysis.scores import label_task_notes, student_scores, unscored_notes
from coeval.core.figures import figure, figure_text, kappa_word, points
from coeval.core.text import listed, numbered

# --- Conclusions
#
# What the measures of a run come to, in sentences: who leads, in which tasks somebody else does, and how
# sure that is.

Topic: TypeAlias = Literal["leads", "where", "judges", "cost"]
"""The question that a conclusion answers: who leads, where, whether judges are to be trusted, what is
missing."""


class Conclusion(NamedTuple):
    topic: Topic
    text: str


# The terminal opens with conclusions; more labels than this are a table's work.
_MOST_LABELS = 3


def conclusions(reader: RunReader, grid: ScoreGrid, measures: RunMeasures) -> Iterator[Conclusion]:
    """Sentences for people, the most important first."""
    students, ranks, labels = measures.students, measures.ranking, measures.labels
    compared, people, families = measures.pairs, measures.people, families_of(reader, grid)
    of_judges = list(_judges(measures.judges, _kappa(measures))) if ranks.order else []
    leads: Iterable[str] = ()
    if ranks.order or not (labels or compared):
        leads = leader_sentences(students, ranks, grid.looks)
    said: tuple[tuple[Topic, Iterable[str]], ...] = (
        ("leads", pair_sentences(compared) if compared is not None else ()),
        ("leads", (text for text in leads if text not in of_judges)),
        ("leads", label_task_notes(reader)),
        ("leads", unscored_notes(reader)),
        ("leads", _labels(labels)),
        ("leads", family_judges(grid, measures.judges, ranks, families)),
        ("leads", place_sentences(ranks)),
        ("leads", partial_sentences(ranks)),
        ("where", task_leaders(grid, students, ranks)),
        ("where", family_teachers(grid, ranks, families)),
        ("judges", of_judges),
        ("judges", panel_findings(measures.judges)),
        ("judges", length_findings(measures.length)),
        ("judges", reliability(measures.g_study)),
        ("cost", _missing(students, adjusted=ranks.adjusted)),
        ("leads", people_sentences(people) if people is not None else ()),
        ("leads", answer_findings(student_scores(reader, grid, students))),
    )
    return (Conclusion(topic, text) for topic, texts in said for text in texts)


def _labels(labels: Labels) -> Iterator[str]:
    """Of the first few labels, who is right most often."""
    places = [(task, name, found) for task, names in labels.items() for name, found in names.items()]
    for task, name, found in places[:_MOST_LABELS]:
        if found.ranking.order:
            yield label_sentence(found, f"{task} ({name})")
        else:
            yield f"No answer has been compared with the labels of {task} ({name}) yet."
    for task, name, found in places:
        bounds = {one: found.students[one].bounds.accuracy for one in found.ranking.order}
        bounded = (Bounded(one, *ends) for one, ends in bounds.items() if ends is not None)
        yield from missing_label_sentences(f"{task} ({name})", bounded)
    if (more := len(places) - _MOST_LABELS) > 0:
        yield f"{numbered(more, 'more label')}: see coeval analyze labels."


def _kappa(measures: RunMeasures) -> str:
    weighted = measures.panel is not None and measures.panel.kappa_weights is not None
    return "weighted κ" if weighted else "κ"


def _judges(judges: Mapping[str, JudgeMeasures], kappa: str) -> Iterator[str]:
    if len(judges) < 2:
        if judges:
            yield "Only one judge was used, so agreement cannot be measured."
        return
    kappas = {name: found.kappa_mean for name, found in judges.items() if not found.degenerate}
    known = {name: found.value for name, found in kappas.items() if found.value is not None}
    if not known:
        yield f"Agreement between the judges cannot be measured: {_why_unknown(judges)}."
        return
    mean = sum(known.values()) / len(known)
    worst = min(known, key=lambda name: (known[name], name))
    sentence = (
        f"Agreement between the judges is {kappa_word(mean)} (mean {kappa} {figure(mean, 'coefficient')}"
    )
    if len(known) > 2:
        sentence += (
            f"; lowest {worst}, {kappa} {figure_text('coefficient', known[worst], *kappas[worst][1:3])}"
        )
    yield f"{sentence})."


def _why_unknown(judges: Mapping[str, JudgeMeasures]) -> str:
    if any(not found.degenerate for found in judges.values()):
        return "those with enough scores in common gave a single level"
    most = max(found.count for found in judges.values())
    return f"they have at most {numbered(most, 'score')} in common, fewer than {FEWEST_COMMON}"


def _missing(students: Mapping[str, StudentMeasures], *, adjusted: bool) -> Iterator[str]:
    lacking = {name: found.score.missing or 0 for name, found in students.items()}
    total = sum(lacking.values())
    if not total:
        return
    possible = total + sum(found.valid_evals for found in students.values())
    named = [f"{name} {count:,}" for name, count in sorted(lacking.items(), key=lambda one: -one[1]) if count]
    yield f"Missing: {total:,} of {numbered(possible, 'score')} ({listed(named)})."
    if adjusted:
        yield "Students have different items or judges: scores are adjusted for those that a student lacks."


class _TaskLeader(NamedTuple):
    """Who has the highest score in a task, and that of the leader over all."""

    task: str
    name: str
    score: float
    leaders: float


def task_leaders(grid: ScoreGrid, students: Mapping[str, StudentScores], ranks: Ranking) -> Iterator[str]:
    """A sentence. p-values are multiplied by the number of tasks and of others, of whom the highest was
    picked (Bonferroni)."""
    if len(ranks.order) < 2:
        return
    leader, *others = ranks.order
    found = list(_leaders(students, ranks))
    elsewhere = [one for one in found if one.name != leader]
    if not elsewhere:
        if len(found) > 1:
            tasks = "both tasks" if len(found) == 2 else f"all {len(found)} tasks"
            yield f"{leader} has the highest score in {tasks}."
        return
    picked = len(found) * len(others)
    reported = [
        f"{one.name} in {one.task} ({points(one.score)}, {leader} {points(one.leaders)}: "
        f"{_sureness(grid, leader, one, picked)})"
        for one in elsewhere
    ]
    yield f"Other students have the highest score in some tasks: {listed(reported)}."


def _leaders(students: Mapping[str, StudentScores], ranks: Ranking) -> Iterator[_TaskLeader]:
    """Of each task that the leader has a score in; of equals, the leader first."""
    leader = ranks.order[0]
    for task, own in students[leader].score_by_task.items():
        if own.value is None:
            continue
        score, _, name = max(
            (found.value, name == leader, name)
            for name in ranks.order
            if (found := students[name].score_by_task.get(task)) is not None and found.value is not None
        )
        yield _TaskLeader(task, name, score, own.value)


def _sureness(grid: ScoreGrid, leader: str, one: _TaskLeader, picked: int) -> str:
    shared = SharedScores(grid).paired(leader, one.name).get(one.task)
    p = paired_difference([shared]).p if shared is not None else None
    if p is None:
        return "no test possible"
    return "significant" if p_at_any_look(p, grid.looks) * picked < ALPHA else "not significant"


# --- Measured run


class AnalyzedFolder(NamedTuple):
    """What an analysis shows of a folder, and all ``models`` that take part: shown names are unique among
    these."""

    measures: Measures
    models: tuple[str, ...]


class MeasuredRun(NamedTuple):
    """All measures of a run, the scores that they come of, and what they come to."""

    measures: RunMeasures
    grid: ScoreGrid
    conclusions: tuple[Conclusion, ...]

    @property
    def shown(self) -> AnalyzedFolder:
        models = (*self.grid.students, *self.grid.judges, *self.grid.teachers)
        return AnalyzedFolder(self.measures, models)


@singledispatch
def measure(reader: Reader, *_: object, **__: object) -> AnalyzedFolder:
    """Measure what an analysis (default: all) shows; ``options`` are those of the robust filter."""
    raise TypeError(f"nobody measures what a {type(reader).__name__} reads")


@measure.register
def _(reader: RunReader, analysis: Analysis = "all", options: RobustOptions | None = None) -> AnalyzedFolder:
    return measure_run(reader, parts_of(RunMeasures, analysis), options).shown


@measure.register
def _(reader: OutputReader, *_: object, **__: object) -> AnalyzedFolder:
    return analyzed_output(measure_output(reader))


def analyzed_output(measures: OutputMeasures) -> AnalyzedFolder:
    return AnalyzedFolder(measures, (*measures.metrics, *measures.judges))


_Part = TypeVar("_Part")


def measure_run(
    reader: RunReader, parts: Collection[str] | None = None, options: RobustOptions | None = None
) -> MeasuredRun:
    """Measure ``parts`` of a run, the fields of `RunMeasures` by name (None: all), and nothing else: the
    others are as those of a run of which nothing is known."""
    grid, how = score_grid(reader), options or RobustOptions()
    judged, again = grid.judged, Reweighting(len(grid.items.ids), cluster=grid.items.alike)
    pairs = cache(lambda: judge_pairs(judged, again))
    agreement = cache(lambda: judge_agreement(judged, pairs()))
    benchmark = cache(lambda: benchmark_measures(reader, grid))
    ranked = cache(lambda: ranking(grid))
    students = cache(lambda: student_measures(grid, ranked().scores))

    def part(name: str, compute: Callable[[], _Part], nothing: _Part) -> _Part:
        return compute() if parts is None or name in parts else nothing

    measures = RunMeasures(
        findings=(),
        simulated=reader.simulated,
        units=int(grid.sums(alike=True).units.sum()),
        agreement=part("agreement", lambda: pair_measures(pairs()), {}),
        panel=part("panel", lambda: panel_measures(judged, again), None),
        judges=part(
            "judges",
            lambda: judge_measures(
                agreement(),
                levels_by_judge(judged),
                biases_of(reader, judged),
                consistency_of(reader, judged, again),
            ),
            {},
        ),
        length=part("length", lambda: contrasts_of(reader, judged), {}),
        g_study=part("g_study", lambda: g_study(judged), None),
        teachers=part("teachers", lambda: teacher_measures(grid, again), {}),
        students=part("students", students, {}),
        ranking=part("ranking", lambda: ranked().ranking, NOBODY),
        labels=part("labels", lambda: label_measures(reader, grid.students), {}),
        without_own=part(
            "without_own", lambda: without_own_measures(grid), OthersAlone(False, (), {}, NOBODY)
        ),
        robust=part(
            "robust",
            lambda: robust_measures(grid, agreement(), how),
            RobustMeasures(applicable=False, options=how),
        ),
        coverage=part("coverage", lambda: benchmark().coverage, {}),
        items=part("items", lambda: benchmark().items, {}),
        checks=part("checks", lambda: check_measures(grid, students()), None),
        samples=part("samples", lambda: sample_measures(reader), None),
        pairs=part("pairs", lambda: measured_pairs(read_comparisons(reader)), None),
        people=part("people", lambda: people_measures(reader, grid, again), None),
    )
    nothing: tuple[Conclusion, ...] = ()
    found = part("findings", lambda: tuple(conclusions(reader, grid, measures)), nothing)
    texts = tuple(conclusion.text for conclusion in found)
    return MeasuredRun(msgspec.structs.replace(measures, findings=texts), grid, found)
