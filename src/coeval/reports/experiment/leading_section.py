"""Who leads, and is it sure?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import urlencode

import msgspec

from coeval.analysis.comparison.family import PairDifference
from coeval.analysis.measures.measure_tree import Measured
from coeval.analysis.measures.ranking import Ranking
from coeval.analysis.measures.run_measures import RunMeasures
from coeval.analysis.measures.student_measures import StudentMeasures, StudentScores
from coeval.core.figures import NOT_KNOWN
from coeval.core.plain import escape_line
from coeval.core.text import join_names
from coeval.reports.content import (
    Cell,
    Picture,
    PictureToggle,
    ReportColumn,
    ReportSection,
    ReportTable,
    Sentence,
    make_columns,
    make_section,
)
from coeval.reports.difference_table import with_differences
from coeval.reports.experiment.run_evidence import RunEvidence
from coeval.reports.experiment.where_section import label_table
from coeval.reports.measure_table import column_of_field, columns_by_field, differing_bounds, format_ranks
from coeval.reports.plots import EACH_TASK, NOTEWORTHY, OVERALL, HeatMap, forest_plot, heat_map
from coeval.reports.result_tables import LabelColumn, label_columns, sample_table

# --- Ranking of students

ALL, WITHOUT_OWN = "all scores", "without own"


class _Standing(NamedTuple):
    """Students by all scores, or by those of others, as they are ranked."""

    name: str
    students: Mapping[str, StudentScores]
    ranking: Ranking

    @property
    def order(self) -> list[str]:
        """Best first; those without a score stand last, by name."""
        return [*self.ranking.order, *(name for name in self.students if name not in self.ranking.order)]


def _standings(measures: RunMeasures) -> Iterator[_Standing]:
    """Those that there are; that of all scores first."""
    whole, others = measures.ranking, measures.without_own
    yield _Standing(ALL, measures.students, whole)
    if others.applicable:
        yield _Standing(WITHOUT_OWN, others.students, others.ranking)


def score_anchors(ranks: Ranking) -> tuple[str, str, str]:
    """Return the tables that show the figures of `opening`, sentence by sentence."""
    if len(ranks.order) > 1 and ranks.differences:
        return "differences", "standings", "differences"
    return "students", "students", "students"


def order_sentences(measures: RunMeasures) -> Iterator[str]:
    """Say whether the order stays without self-judgments; nothing where pairs contradict each other, so that
    the first is significantly not the best."""
    others, order = measures.without_own.ranking, measures.ranking.order
    if len(order) < 2 or not others.order or others.ranges.get(others.order[0], (1, 1))[0] > 1:
        return
    same = "the same" if others.order == order else join_names(others.order)
    yield f"Without the scores that students gave themselves the order is {same}."


def standing_toggles(measures: RunMeasures) -> tuple[PictureToggle, ...]:
    """Return the toggles of `standings`."""
    scores = tuple(standing.name for standing in _standings(measures))
    several = any(len(found.score_by_task) > 1 for found in measures.students.values())
    found = (PictureToggle("by", (OVERALL, EACH_TASK) if several else ()), PictureToggle("scores", scores))
    return tuple(toggle for toggle in found if len(toggle.choices) > 1)


def standings(measures: RunMeasures) -> ReportTable:
    """For each choice of scores the students over all tasks, and then task by task; best first."""
    rows: list[tuple[Cell, ...]] = []
    links: dict[int, str] = {}
    judges = list(measures.judges)

    def add(standing: _Standing, task: str | None, student: str, *cells: Cell) -> None:
        query = [("student", student), *([("task", task)] if task is not None else [])]
        if standing.name == WITHOUT_OWN and student in judges:
            query += [("judge", judge) for judge in judges if judge != student]
        links[len(rows)] = urlencode(query)
        rows.append((standing.name, task, student, *cells))

    for standing in _standings(measures):
        students, ranges = standing.students, standing.ranking.ranges
        for name in standing.order:
            score = students[name].score
            add(standing, None, name, format_ranks(ranges.get(name)), score, score.n)
        tasks = sorted({task for found in students.values() for task in found.score_by_task})
        for task in tasks if len(tasks) > 1 else ():
            scored = [
                (students[name].score_by_task[task], name)
                for name in standing.order
                if task in students[name].score_by_task
            ]
            scored.sort(key=lambda one: (one[0].value is None, -(one[0].value or 0.0), one[1]))
            for score, name in scored:
                add(standing, task, name, None, score, score.n)
    return ReportTable(
        "standings",
        "Scores by task, with and without self-judgments",
        (
            ReportColumn("scores", "Scores", "text", "All scores, or without self-judgments"),
            *make_columns("Task", "Student"),
            column_of_field(Ranking, "ranges", "ranks"),
            ReportColumn("score", "Score", "points", "Mean over items of the mean over judges and factors"),
            ReportColumn("n", "Items", "count"),
        ),
        tuple(rows),
        note="A row without a task is the mean over tasks. Without own: scores from pairwise differences, "
        "each by judges other than the two.",
        links=links,
    )


_MISSING = "Scores that are possible and are not there, those of failed answers too; labels are in no score"
_AT = "The score if all that failed or is missing had scored {}; – where nothing is missing"
_ACCURACY = "Share of right labels, of the whole run whatever is chosen; in no score"
# Label columns beside the scores; of more, the table of labels has all.
_MOST_LABELS = 3
_BY_LABEL = "No judge scored an answer: students are ranked by how often they state the right label."


def leading_section(evidence: RunEvidence) -> ReportSection:
    """Students by their score, every two of them on the same items, and how often labels are right."""
    measures, students = evidence.measured.measures, evidence.students
    judged = bool(measures.ranking.order) or not measures.labels
    of_labels: dict[tuple[str, ...], Ranking] = {
        (task, label): one.ranking for task, names in measures.labels.items() for label, one in names.items()
    }
    labelled = [column for column in label_columns(evidence.results) if not column.removed]
    scores = student_table(measures, students, labelled if len(labelled) <= _MOST_LABELS else ())
    differences = _differences({(): measures.ranking} if judged else of_labels)
    labels, ways = label_table(measures.labels), standings(measures)
    pictures = []
    if measures.ranking.order:
        forest = Picture(
            "forest",
            "Scores with their 95% intervals. The band is the leader's; at the right stand the ranks that "
            "each may have.",
            ways.name,
            forest_plot(ways.name, students, evidence.measured.grid.tasks, evidence.models, ALL),
            standing_toggles(measures),
        )
        pictures.append(forest)
    if differences.rows and judged:
        pictures.append(_difference_map(differences, students))
    tables: tuple[ReportTable, ...] = (labels, differences)
    if judged:
        gaps = msgspec.structs.replace(_differences(of_labels), name=f"label-{differences.name}")
        tables = (scores, differences, ways, labels, gaps)
    if measures.samples is not None:
        tables = (*tables, sample_table(measures.samples))
    said = (*order_sentences(measures), *([] if measures.ranking.differences else [_UNCOMPARED]))
    said = said if judged else (_BY_LABEL,)
    sentences = [Sentence(text, ways.name if judged else labels.name) for text in said]
    return make_section("leads", "Who leads, and is it sure?", sentences, pictures, tables)


def _difference_map(differences: ReportTable, students: Sequence[str]) -> Picture:
    grid = HeatMap(
        differences,
        *("better", "other", "difference"),
        *(students[:-1], students[1:]),
        least=NOTEWORTHY,
        format="+.1f",
        dot="sure",
        tooltip=("difference_low", "difference_high", "p", "n", "could_be_seen"),
    )
    return heat_map(
        "matrix",
        "Students pairwise. How far the row's student is ahead of the column's, on the items that "
        "both have. A dot: significant after Holm's adjustment for the number of pairs.",
        grid,
    )


_UNCOMPARED = "No comparison yet: fewer than two students have scores of the same items."


def student_table(
    measures: RunMeasures, order: Sequence[str], labelled: Sequence[LabelColumn] = ()
) -> ReportTable:
    """All that is known of students, by the accuracies of ``labelled`` tasks too."""
    columns = columns_by_field(StudentMeasures)
    others = [field for field in columns if field not in ("score", "over_judges")]
    rows: list[tuple[Cell, ...]] = []
    for name in order:
        found = measures.students[name]
        ranks = format_ranks(measures.ranking.ranges.get(name))
        failed = 0 if found.counts is None else found.counts.failed
        counts = (found.score.n, *(getattr(found, field) for field in others), failed, found.score.missing)
        beside = (column.accuracies.get(name) for column in labelled)
        means = (found.score, _over_judges(found.over_judges), *beside)
        rows.append((name, ranks, *means, *counts, *differing_bounds(found.bounds)))
    return ReportTable(
        "students",
        "Students",
        (
            ReportColumn("student", "Student"),
            column_of_field(Ranking, "ranges", "ranks"),
            columns["score"],
            columns["over_judges"],
            *(
                ReportColumn(f"label-{at}", f"{escape_line(column.name)} (labels)", "points", _ACCURACY)
                for at, column in enumerate(labelled)
            ),
            ReportColumn("n", "Items", "count", terminal="n"),
            *(columns[field] for field in others),
            ReportColumn(
                "failed",
                "Failed",
                "count",
                "Answers and judgments without a result, of the whole run whatever is chosen",
                terminal="",
            ),
            ReportColumn("missing", "Missing", "count", _MISSING),
            ReportColumn("least", "Missing at 0", "points", _AT.format(0), "least"),
            ReportColumn("most", "Missing at 100", "points", _AT.format(100), "most"),
        ),
        tuple(rows),
        links={place: urlencode({"student": name}) for place, name in enumerate(order)},
    )


def _over_judges(found: Measured | None) -> Measured | str | None:
    """An interval as wide as the scale says nothing."""
    known = found is None or found.low is None or found.high is None or found.low > 0 or found.high < 1
    return found if known else NOT_KNOWN


def standing_table(title: str, students: Mapping[str, StudentScores], ranking: Ranking) -> ReportTable:
    """Scores by some of the judgments, and ranks where there are any; those without a score last, by name."""
    rows = []
    for name in (*ranking.order, *sorted(students.keys() - set(ranking.order))):
        score = students[name].score
        rows.append((name, format_ranks(ranking.ranges.get(name)), score, score.n))
    columns = (
        ReportColumn("student", "Student"),
        column_of_field(Ranking, "ranges", "ranks"),
        column_of_field(StudentMeasures, "score"),
        ReportColumn("n", "Items", "count", terminal="n"),
    )
    return ReportTable("scores", title, columns, tuple(rows))


def _differences(rankings: Mapping[tuple[str, ...], Ranking]) -> ReportTable:
    """``rankings``: that of the scores, by nothing, or those of labels, by task and label."""
    pairs = [(place, *pair) for place, ranking in rankings.items() for pair in _ordered(ranking)]
    of_labels = () not in rankings
    names = ReportTable(
        "differences",
        f"Pairwise differences {'of labels ' * of_labels}on shared items",
        (
            ReportColumn("better", "Student"),
            ReportColumn("other", "Less"),
            *make_columns("Task", "Label") * of_labels,
        ),
        tuple((better, worse, *place) for place, better, worse, _ in pairs),
        note="Intervals and p allow for all pairs. Items are a sample of what these teachers write; over "
        "items and judges, judges are a sample too. A link leads to the items that the first of two lost.",
        links={
            at: urlencode({"lost": f"{better},{worse}"}) for at, (_, better, worse, _) in enumerate(pairs)
        },
    )
    fields = ("difference", "p", "sure", "over_judges", "p_over_judges", "agreeing", "n", "could_be_seen")
    return with_differences(names, [found for *_, found in pairs], fields)


def _ordered(ranking: Ranking) -> Iterator[tuple[str, str, PairDifference]]:
    """Each pair with the one who stands first before the other, and by how much it is ahead."""
    place = {name: at for at, name in enumerate(ranking.order)}
    pairs = []
    for (first, second), found in ranking.differences.items():
        if place[first] < place[second]:
            pairs.append((first, second, found.turned))
        else:
            pairs.append((second, first, found))
    yield from sorted(pairs, key=lambda pair: (place[pair[0]], place[pair[1]]))


# --- The first screen
#
# Students with what they score, cost and take.

FRONT = "front"
SCORE_TITLE = "Score"
_RANKS = "The ranks that a student may have, by all pairwise differences after Holm's adjustment"
_USD = "US dollars per 1,000 answers: mean cost of those whose price is known, without retries"
_SECONDS = "Median time from request to answer, where it is on record: not of files and batches"


def front_table(evidence: RunEvidence) -> ReportTable | None:
    """Students, best first, with intervals, ranks, cost and time; None where nobody has a figure."""
    title, meaning, found = _front_figures(evidence)
    if not found:
        return None
    costs = evidence.costs
    rows: list[tuple[Cell, ...]] = []
    links = {}
    for name, (measured, ranks) in found.items():
        links[len(rows)] = urlencode({"student": name})
        cost = costs.get(name)
        spent = (None, None) if cost is None else (cost.usd_per_1000, cost.seconds)
        rows.append((name, measured, format_ranks(ranks), *spent))
    return ReportTable(
        FRONT,
        "Students",
        (
            ReportColumn("student", "Student"),
            ReportColumn("score", title, "points", meaning),
            ReportColumn("ranks", "Rank", "text", _RANKS),
            ReportColumn("usd", "$ per 1,000", "usd", _USD),
            ReportColumn("seconds", "Seconds", "seconds", _SECONDS),
        ),
        tuple(rows),
        links=links,
    )


_FrontFigures = Mapping[str, tuple[Measured, tuple[int, int] | None]]


def _front_figures(evidence: RunEvidence) -> tuple[str, str, _FrontFigures]:
    """What students are ranked by: its title and meaning, and by student its measure and ranks."""
    measures = evidence.measured.measures
    ranking = measures.ranking
    if ranking.order or not (measures.labels or measures.pairs):
        scores = {name: measures.students[name].score for name in ranking.order}
        meaning = "0 to 100, with its 95% interval over items"
        return SCORE_TITLE, meaning, {name: (one, ranking.ranges.get(name)) for name, one in scores.items()}
    if measures.pairs is not None:
        students = measures.pairs.students
        meaning = "Expected wins in 100 comparisons, with its 95% interval over items"
        return "Wins in 100", meaning, {name: (one.strength, one.ranks) for name, one in students.items()}
    task, label, found = next(
        (task, name, found) for task, names in measures.labels.items() for name, found in names.items()
    )
    meaning = (
        f"Answers in 100 that state the right {escape_line(label)} in {escape_line(task)}, with its "
        "95% interval"
    )
    ranges = found.ranking.ranges
    return (
        "Accuracy",
        meaning,
        {name: (found.students[name].accuracy, ranges.get(name)) for name in found.ranking.order},
    )
