"""Who leads, and is it real?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import urlencode

import msgspec

from coeval.analysis.measures.measure_tree import Measured
from coeval.analysis.measures.ranking import Ranking
from coeval.analysis.measures.run_measures import RunMeasures
from coeval.analysis.measures.student_measures import StudentMeasures, StudentScores
from coeval.core.figures import NOT_KNOWN
from coeval.core.plain import escape_line
from coeval.core.text import join_names
from coeval.reports.charts.plots import EACH_TASK, NOTEWORTHY, OVERALL, HeatMap, forest_plot, heat_map
from coeval.reports.content import (
    Cell,
    Picture,
    PictureToggle,
    ReportColumn,
    ReportSection,
    ReportTable,
    link_rows,
    make_columns,
)
from coeval.reports.difference_table import add_difference_columns
from coeval.reports.experiment.run_evidence import RunEvidence
from coeval.reports.experiment.where_section import label_table
from coeval.reports.measure_table import bounds_unless_equal, column_of_field, columns_by_field, format_ranks
from coeval.reports.result_tables import SAMPLE_TABLE, LabelColumn, label_columns_of_unscored_tasks

# --- Ranking of students

ALL, WITHOUT_OWN = "all scores", "without own"


class _Standing(NamedTuple):
    """Students ranked by all scores, or by those of other judges than themselves."""

    name: str
    students: Mapping[str, StudentScores]
    ranking: Ranking

    @property
    def order(self) -> list[str]:
        """Return students, best first; those without a score come last, by name."""
        return [*self.ranking.order, *(name for name in self.students if name not in self.ranking.order)]


def _standings_with_and_without_self_judgments(measures: RunMeasures) -> Iterator[_Standing]:
    """Yield the ranking by all scores, then the one without self-judgments if it applies."""
    whole, others = measures.ranking, measures.without_own
    yield _Standing(ALL, measures.students, whole)
    if others.applicable:
        yield _Standing(WITHOUT_OWN, others.students, others.ranking)


def opening_anchors(ranks: Ranking) -> tuple[str, ...]:
    """Return the tables that show the figures of `opening`, sentence by sentence."""
    if len(ranks.order) > 1 and ranks.differences:
        return "differences", "standings", "differences"
    return "students", "students", "students"


def order_without_self_judgments_sentences(measures: RunMeasures) -> Iterator[str]:
    """Say whether the order changes without self-judgments. Nothing if pairs contradict each other, so that
    the first is significantly not the best."""
    others, order = measures.without_own.ranking, measures.ranking.order
    if len(order) < 2 or not others.order or others.ranges.get(others.order[0], (1, 1))[0] > 1:
        return
    same = "the same" if others.order == order else join_names(others.order)
    yield f"Without self-judgments the order is {same}."


def standings_toggles(measures: RunMeasures) -> tuple[PictureToggle, ...]:
    """Return the toggles of the picture of `standings_table`."""
    scores = tuple(standing.name for standing in _standings_with_and_without_self_judgments(measures))
    several = any(len(student.score_by_task) > 1 for student in measures.students.values())
    student = (PictureToggle("by", (OVERALL, EACH_TASK) if several else ()), PictureToggle("scores", scores))
    return tuple(toggle for toggle in student if len(toggle.choices) > 1)


def standings_table(measures: RunMeasures) -> ReportTable:
    """Make rows of students overall, then task by task, best first, with and without self-judgments."""
    rows: list[tuple[Cell, ...]] = []
    links: dict[int, str] = {}
    judges = list(measures.judges)

    def add(standing: _Standing, task: str | None, student: str, *cells: Cell) -> None:
        query = [("student", student), *([("task", task)] if task is not None else [])]
        if standing.name == WITHOUT_OWN and student in judges:
            query += [("judge", judge) for judge in judges if judge != student]
        links[len(rows)] = urlencode(query)
        rows.append((standing.name, task, student, *cells))

    for standing in _standings_with_and_without_self_judgments(measures):
        students, ranges = standing.students, standing.ranking.ranges
        for name in standing.order:
            score = students[name].score
            add(standing, None, name, format_ranks(ranges.get(name)), score, score.n)
        tasks = sorted({task for student in students.values() for task in student.score_by_task})
        for task in tasks if len(tasks) > 1 else ():
            scored = [
                (students[name].score_by_task[task], name)
                for name in standing.order
                if task in students[name].score_by_task
            ]
            scored.sort(key=lambda pair: (pair[0].value is None, -(pair[0].value or 0.0), pair[1]))
            for score, name in scored:
                add(standing, task, name, None, score, score.n)
    columns = (
        ReportColumn("scores", "Scores", "text", "All scores, or without self-judgments"),
        *make_columns("Task", "Student"),
        column_of_field(Ranking, "ranges", "ranks"),
        ReportColumn("score", "Score", "points", "Mean over items of the mean over judges and factors"),
        ReportColumn("n", "Items", "count"),
    )
    title = "Scores by task, with and without self-judgments"
    return ReportTable("standings", title, columns, tuple(rows), note=_STANDINGS_NOTE, links=links)


_STANDINGS_NOTE = (
    "Rows without a task are means over tasks. Without own: scores from pairwise differences, each by judges "
    "other than the two."
)
_FAILED = "Answers and judgments without a result in the whole run, whatever is selected"
_MISSING = "Expected scores that are missing, including those of failed answers; labels enter no score"
_AT = "The score if all failed and missing answers had scored {}; – if nothing is missing"
_ACCURACY = "Share of right labels in the whole run, whatever is selected; not in the score"
# Label columns beside the scores; of more, the table of labels has all.
_MOST_LABELS = 3
_BY_LABEL = "No judge scored an answer, so students are ranked by how often they state the right label."


def leading_section(evidence: RunEvidence) -> ReportSection:
    """Make the section of students by score, their pairwise differences, and label accuracies."""
    measures, students = evidence.measured.measures, evidence.students
    judged = bool(measures.ranking.order) or not measures.labels
    of_labels: dict[tuple[str, ...], Ranking] = {
        (task, name): label.ranking
        for task, names in measures.labels.items()
        for name, label in names.items()
    }
    labelled = [column for column in label_columns_of_unscored_tasks(evidence.results) if not column.removed]
    scores = student_table(measures, students, labelled if len(labelled) <= _MOST_LABELS else ())
    differences = _difference_table({(): measures.ranking} if judged else of_labels)
    labels, ways = label_table(measures.labels), standings_table(measures)
    pictures = []
    if measures.ranking.order:
        title = "Scores with their 95% intervals. Band: the leader's interval; right: plausible ranks."
        forest = forest_plot(ways.name, students, evidence.measured.grid.tasks, evidence.models, ALL)
        pictures.append(Picture("forest", title, ways.name, forest, standings_toggles(measures)))
    if differences.rows and judged:
        pictures.append(_difference_map(differences, students))
    tables: tuple[ReportTable, ...] = (labels, differences)
    if judged:
        gaps = msgspec.structs.replace(_difference_table(of_labels), name=f"label-{differences.name}")
        tables = (scores, differences, ways, labels, gaps)
    if measures.samples is not None:
        tables = (*tables, SAMPLE_TABLE.fill(measures.samples))
    texts = (
        *order_without_self_judgments_sentences(measures),
        *([] if measures.ranking.differences else [_UNCOMPARED]),
    )
    texts = texts if judged else (_BY_LABEL,)
    shown_in = ways.name if judged else labels.name
    return ReportSection.with_rows("leads", "Who leads, and is it real?", texts, pictures, tables, shown_in)


def _difference_map(differences: ReportTable, students: Sequence[str]) -> Picture:
    """Draw the pairwise differences as a heat map."""
    grid = HeatMap(
        differences,
        *("better", "other", "difference"),
        *(students[:-1], students[1:]),
        least=NOTEWORTHY,
        format="+.1f",
        dot="sure",
        tooltip=("difference_low", "difference_high", "p", "n", "could_be_seen"),
    )
    title = (
        "Students pairwise, row − column, on shared items. Dot: significant after Holm's adjustment for the "
        "number of pairs."
    )
    return heat_map("matrix", title, grid)


_UNCOMPARED = "No comparison yet: fewer than two students have scores on the same items."


def student_table(
    measures: RunMeasures, order: Sequence[str], labelled: Sequence[LabelColumn] = ()
) -> ReportTable:
    """Make a row for each student with all its measures, and its accuracies in the ``labelled`` columns."""
    declared = columns_by_field(StudentMeasures)
    others = [field for field in declared if field not in ("score", "over_judges")]
    rows: list[tuple[Cell, ...]] = []
    for name in order:
        student = measures.students[name]
        ranks = format_ranks(measures.ranking.ranges.get(name))
        failed = 0 if student.counts is None else student.counts.failed
        measured = (getattr(student, field) for field in others)
        counts = (student.score.n, *measured, failed, student.score.missing)
        beside = (column.accuracies.get(name) for column in labelled)
        means = (student.score, _score_unless_full_scale(student.over_judges), *beside)
        rows.append((name, ranks, *means, *counts, *bounds_unless_equal(student.bounds)))
    columns = (
        *make_columns("Student"),
        column_of_field(Ranking, "ranges", "ranks"),
        declared["score"],
        declared["over_judges"],
        *(
            ReportColumn(f"label-{at}", f"{escape_line(column.name)} (labels)", "points", _ACCURACY)
            for at, column in enumerate(labelled)
        ),
        ReportColumn("n", "Items", "count", terminal="n"),
        *(declared[field] for field in others),
        ReportColumn("failed", "Failed", "count", _FAILED, terminal=""),
        ReportColumn("missing", "Missing", "count", _MISSING),
        ReportColumn("least", "Missing = 0", "points", _AT.format(0), "least"),
        ReportColumn("most", "Missing = 100", "points", _AT.format(100), "most"),
    )
    return ReportTable("students", "Students", columns, tuple(rows), links=link_rows(rows, student=0))


def _score_unless_full_scale(score: Measured | None) -> Measured | str | None:
    """Return `NOT_KNOWN` for an interval as wide as the scale, which says nothing."""
    is_narrower = score is None or score.low is None or score.high is None or score.low > 0 or score.high < 1
    return score if is_narrower else NOT_KNOWN


def score_ranking_table(title: str, students: Mapping[str, StudentScores], ranking: Ranking) -> ReportTable:
    """Make a table of scores and, if there are any, ranks; students without a score come last, by name."""
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


def _difference_table(rankings_by_label: Mapping[tuple[str, ...], Ranking]) -> ReportTable:
    """Make a table of pairwise differences. ``rankings_by_label``: of scores, under the key (), or of labels,
    by task and label."""
    pairs = [(label, pair) for label, ranking in rankings_by_label.items() for pair in ranking.order_pairs()]
    of_labels = () not in rankings_by_label
    columns = (
        ReportColumn("better", "Student"),
        ReportColumn("other", "Against"),
        *make_columns("Task", "Label") * of_labels,
    )
    names = ReportTable(
        "differences",
        f"Pairwise differences {'of labels ' * of_labels}on shared items",
        columns,
        tuple((pair.ahead, pair.behind, *label) for label, pair in pairs),
        note="Intervals and p are adjusted for all pairs and treat items as a sample of what these teachers "
        "write; with other judges, judges are a sample too. Links: items that the first student lost.",
        links={
            row: urlencode({"lost": f"{pair.ahead},{pair.behind}"}) for row, (_, pair) in enumerate(pairs)
        },
    )
    fields = ("difference", "p", "sure", "over_judges", "p_over_judges", "agreeing", "n", "could_be_seen")
    return add_difference_columns(names, [pair.difference for _, pair in pairs], fields)


# --- The first screen
#
# Students with what they score, cost and take.

FRONT = "front"
SCORE_TITLE = "Score"
_RANKS = "Plausible ranks, by all pairwise differences after Holm's adjustment"
_USD = "US dollars per 1,000 answers: mean cost of those whose price is known, without retries"
_SECONDS = "Median time from request to answer, if recorded; not for files and batches"


def front_table(evidence: RunEvidence) -> ReportTable | None:
    """Make the first screen's table of students with score, ranks, cost and time; None without scores."""
    figures = _choose_front_figures(evidence)
    if not figures.by_student:
        return None
    rows: list[tuple[Cell, ...]] = []
    for name, (measured, ranks) in figures.by_student.items():
        cost = evidence.costs.get(name)
        spent = (None, None) if cost is None else (cost.usd_per_1000, cost.seconds)
        rows.append((name, measured, format_ranks(ranks), *spent))
    columns = (
        ReportColumn("student", "Student"),
        ReportColumn("score", figures.title, "points", figures.meaning),
        ReportColumn("ranks", "Rank", "text", _RANKS),
        ReportColumn("usd", "$ per 1,000", "usd", _USD),
        ReportColumn("seconds", "Seconds", "seconds", _SECONDS),
    )
    return ReportTable(FRONT, "Students", columns, tuple(rows), links=link_rows(rows, student=0))


class _FrontFigures(NamedTuple):
    """What students are ranked by: its title and tooltip, and by student its value and ranks."""

    title: str
    meaning: str
    by_student: Mapping[str, tuple[Measured, tuple[int, int] | None]]


def _choose_front_figures(evidence: RunEvidence) -> _FrontFigures:
    """Choose what students are ranked by: scores, strengths from comparisons, or the first label."""
    measures = evidence.measured.measures
    ranking = measures.ranking
    if ranking.order or not (measures.labels or measures.pairs):
        return _FrontFigures(
            SCORE_TITLE,
            "0 to 100, with its 95% interval over items",
            {name: (measures.students[name].score, ranking.ranges.get(name)) for name in ranking.order},
        )
    if measures.pairs is not None:
        return _FrontFigures(
            "Wins in 100",
            "Expected wins in 100 comparisons, with its 95% interval over items",
            {name: (student.strength, student.ranks) for name, student in measures.pairs.students.items()},
        )
    task, names = next((task, names) for task, names in measures.labels.items() if names)
    name, label = next(iter(names.items()))
    ranges = label.ranking.ranges
    return _FrontFigures(
        "Accuracy",
        escape_line(f"Answers in 100 that state the right {name} in {task}, with its 95% interval"),
        {student: (label.students[student].accuracy, ranges.get(student)) for student in label.ranking.order},
    )
