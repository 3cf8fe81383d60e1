"""A run's results as tables on a terminal.

Names come from configuration files and are shown as they are: never as markup, and without the
control characters that could move the cursor or change colours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from coeval.analysis.doubtful_answers import (
    CutOffAnswers,
    EmptyAnswers,
    cut_off_sentence,
    empty_answers_sentence,
    marked_labels,
    warning_of_cut_off,
)
from coeval.analysis.run_results import (
    LABELS,
    SIMULATED,
    Bounded,
    cut_of,
    label_columns,
    missing_label_sentences,
    missing_sentences,
    unequally_covered_sentence,
)
from coeval.cli.streams import folded_name, say, warn
from coeval.cli.views.name_table import print_costs, print_metrics, say_names, without_incomparable
from coeval.core.figures import bounds_text, points_text
from coeval.core.plain import plain
from coeval.core.shown_names import ShownNames
from coeval.core.text import listed

if TYPE_CHECKING:  # the analysis loads numpy, scipy and duckdb, which sentences do not need
    from coeval.analysis.run_results import LabelAccuracy, Results, StudentScore
    from coeval.analysis.student_scales import HumanScore, PairStrength, SampledScore

# --- Notes beside a table of scores

BOUNDS = "bounds"
"""The column of scores with all that is missing at 0, and at 1."""

LABEL_INTERVAL = "[low, high] in label accuracy: 95% interval, over items."
NO_LABEL = "no label"
"""The column of answers that are none of the labels."""


def notes(results: Results, *, scored: bool) -> list[str]:
    """What to know of the tables; ``scored``: there is one of scores."""
    notes = []
    if scored:
        notes.append(
            "Scores in points, 0 to 100, with the 95% interval [low, high] of the mean over items (n); "
            "failed: answers, judgments and factors without a result, in no mean."
        )
    bounds = [(score.least, score.most) for score in results.students if score.task is None]
    bounds += [(label.least, label.most) for label in results.labels]
    if any(least != most for least, most in bounds):
        notes.append(
            f"{BOUNDS}: with all that failed or is missing counted as 0 (wrong), and as 100 (right)."
        )
    if unequal := unequally_covered_sentence(results.students):
        notes.append(plain(unequal))
    if fewer := _less_scored(results.students, results.labels):
        notes.append(
            "With under nine tenths of another student's scores or labels in some task, so not over the same "
            f"items or judges: {listed(map(plain, fewer))}."
        )
    notes += _of_labels(results, scored)
    if results.sampled:
        notes.append(
            "mean@N: over N answers to an item, pooled within it. item s.e.: how far other items would move "
            "it; sd in item: how far answers to one item lie apart."
        )
    if any(each.passes for each in results.sampled):
        notes.append("pass@N, pass^N: how often one of N answers passes, and all of them; by k in --json.")
    if cut := cut_off_sentence(_cut_off(results.students), "of"):
        notes.append(cut)
    notes += _removed(results)
    return notes + [plain(note) for note in results.notes]


def warnings(results: Results) -> Iterator[str]:
    """What speaks against trusting the scores as they are."""
    yield from (plain(served.warning) for served in results.served if served.warning)
    yield from map(plain, missing_sentences(results.students))
    for place, of in groupby(results.labels, key=lambda label: f"{label.task} ({label.attribute})"):
        known = (
            Bounded(label.student, label.least, label.most)
            for label in of
            if not label.removed and label.least is not None and label.most is not None
        )
        yield from map(plain, missing_label_sentences(place, known))
    if cut := warning_of_cut_off(_cut_off(results.students)):
        yield cut
    empty = [
        EmptyAnswers(plain(score.student), score.empty, score.empty_truncated, score.answers)
        for score in results.students
        if score.task is None
    ]
    if said := empty_answers_sentence(empty, "of"):
        yield said


def _of_labels(results: Results, scored: bool) -> list[str]:
    notes = []
    if scored and results.only_labelled:
        notes.append(f"({LABELS}): label accuracy, the share of right answers; in no overall score.")
    if results.labels:
        notes.append(LABEL_INTERVAL)
    if any(label.none_of_the_labels for label in results.labels):
        notes.append(f"{NO_LABEL}: answers that are none of the task's labels, or several; wrong.")
    return notes


def _cut_off(scores: Sequence[StudentScore]) -> list[CutOffAnswers]:
    return [cut_of(score)._replace(name=plain(score.student)) for score in scores if score.task is None]


def _removed(results: Results) -> list[str]:
    """What the configuration no longer plans: what the mark means, and what is left out of all means."""
    notes = []
    if any(s.removed for s in results.students) or any(label.removed for label in results.labels):
        notes.append("(removed): no longer in the configuration; a removed task is in no overall score.")
    names = [
        f"{each.kind} {plain(each.name)}" + (f" of {plain(each.task)}" if each.kind == "factor" else "")
        for each in results.left_out
    ]
    if names:
        notes.append(f"No longer in the configuration and in no mean: {listed(dict.fromkeys(names))}.")
    beyond = [
        f"{cut.items:,} {'item' if cut.items == 1 else 'items'} of {plain(cut.task)}"
        for cut in results.beyond_total
    ]
    if beyond:
        notes.append(f"Beyond sampling.total and in no mean: {listed(beyond)}.")
    return notes


def _less_scored(scores: Sequence[StudentScore], labels: Sequence[LabelAccuracy]) -> list[str]:
    """Students with clearly fewer scores or labels in a task than another one has; no score at all is told
    elsewhere."""
    samples = {s.student: s.samples for s in scores}
    counts = [
        ((s.task, ""), s.student, s.units / s.samples) for s in scores if s.task and s.units and not s.removed
    ]
    counts += [
        ((a.task, a.attribute), a.student, a.n / samples.get(a.student, 1)) for a in labels if not a.removed
    ]
    most: dict[tuple[str, str], float] = {}
    for place, _, count in counts:
        most[place] = max(most.get(place, 0), count)
    return sorted({student for place, student, count in counts if count < 0.9 * most[place]})


NOTHING = "–"

Column: TypeAlias = tuple[str, list[str]]
"""Header and cells, one per row."""


class Row(NamedTuple):
    """A student's name as it is shown."""

    name: str
    dim: bool


# Cells between two columns.
_GAP = 2
# Cells left of the first column.
_EDGES = 1
# Cells that a header is folded to: at most two lines for nearly all, without a break inside a word.
_LONGEST_HEADER = 17
# Fewer characters do not tell models of one family apart.
_SHORTEST_NAME = 8


def names_of(results: Results, labels: Mapping[str, str] | None = None) -> ShownNames:
    """Short names of all models that take part; ``labels`` as in `short_names`."""
    names = [one.student for one in results.students] + [one.student for one in results.labels]
    names += [one.student for one in results.pairs] + [one.model for one in results.metrics]
    names += [one.model for one in results.costs]
    return ShownNames.of(names, marked_labels(results.served, labels or {}))


def render(results: Results, console: Console, labels: Mapping[str, str] | None = None) -> None:
    """Print scores, label accuracies and what they mean, within the console's width; ``labels`` as in
    `short_names`."""
    names = names_of(results, labels)
    results = names.renamed(results)
    if results.simulated:
        console.print(Text(SIMULATED, style="bold yellow"))
    if results.pairs:
        _print(_pair_table(results.pairs, console.width), console)
        say(console, "Strength: expected wins in 100 comparisons with the others. docs/pairs.md", "dim")
    for said in results.leads:
        say(console, said)
    scored = any(score.score is not None or score.failed for score in results.students)
    if scored:
        for table in _score_tables(results, console.width):
            _print(table, console)
    if results.people:
        _print(_people_table(results.people, console.width), console)
        say(console, "Human scale: by labels, and judged scores where they help. docs/people.md", "dim")
    if results.labels:
        for table in _label_tables(results.labels, console.width):
            _print(table, console)
    if results.sampled:
        shown = [each for each in results.sampled if each.factor is None or each.passes]
        _print(_sampled_table(shown, console.width), console)
    if results.metrics:
        print_metrics(results.metrics, console)
    if not (scored or results.labels or results.metrics or results.pairs):
        say(console, "no scores yet: no answer has been scored")
    for note in without_incomparable(notes(results, scored=scored), console):
        say(console, note, "dim")
    for warning in warnings(results):
        warn(console, warning)
    print_costs(results.costs, console)
    say_names(console, names)


def _print(table: Table, console: Console) -> None:
    """Without the blanks that pad the last column."""
    for line in console.render_lines(table, pad=False):
        text = Text.assemble(*((segment.text, segment.style or "") for segment in line))
        text.rstrip()
        console.print(text, soft_wrap=True)


def _score_tables(results: Results, width: int) -> list[Table]:
    """One table if every task fits beside the overall score, else that one first and tasks in chunks."""
    scores = results.students
    overall = [score for score in scores if score.task is None]
    by_task: dict[tuple[str, bool], dict[str, StudentScore]] = {}
    judged = {score.task for score in scores if score.score is not None or score.failed}
    judged -= results.only_labelled
    for score in scores:
        if score.task is not None and score.task in judged:
            by_task.setdefault((score.task, "task" in score.removed), {})[score.student] = score
    students = [score.student for score in overall]
    title = "Scores of checks" if results.pairs and results.checks_alone else "Scores"
    rows = [Row(_named(score.student, bool(score.removed)), bool(score.removed)) for score in overall]
    counts = [
        ("n", [str(score.n) for score in overall]),
        ("failed", [str(score.failed) for score in overall]),
    ]
    if any(score.least != score.most for score in overall):
        counts.insert(0, (BOUNDS, [bounds_text(score.least, score.most) or NOTHING for score in overall]))
    whole = [("overall", [_cell(score) for score in overall])]
    labelled = _label_columns(results, students)
    if len(by_task) == 1 and not labelled and not any("task" in score.removed for score in scores):
        [(only, _)] = by_task
        return [_table(f"{title} in {plain(only)}", rows, [*whole, *counts], width)]
    tasks = [
        (_named(*task), [_cell(cells.get(student)) for student in students])
        for task, cells in by_task.items()
    ] + labelled
    free = width - _name_width(rows, width)
    if _wide([*whole, *tasks, *counts]) <= free:
        return [_table(title, rows, [*whole, *tasks, *counts], width)]
    tables = [_table(title, rows, [*whole, *counts], width)]
    while tasks:
        fitting = next((k for k in range(len(tasks), 1, -1) if _wide(tasks[:k]) <= free), 1)
        tables.append(_table(f"{title} by task", rows, tasks[:fitting], width))
        tasks = tasks[fitting:]
    return tables


def _pair_table(pairs: Sequence[PairStrength], width: int) -> Table:
    """Students by comparisons of their answers, in points."""
    columns = [
        ("rank", [one.rank for one in pairs]),
        ("strength", [one.points for one in pairs]),
        ("win rate", [_points(one.win_rate) for one in pairs]),
        ("ties", [f"{one.ties:,}" for one in pairs]),
        ("n", [f"{one.comparisons:,}" for one in pairs]),
    ]
    return _table("Pairwise comparisons", [Row(plain(one.student), False) for one in pairs], columns, width)


def _people_table(people: Sequence[HumanScore], width: int) -> Table:
    """Students by judges and by people, in points."""
    columns = [
        ("judged", [one.judged_points for one in people]),
        ("human scale", [one.points or NOTHING for one in people]),
        ("labels", [f"{one.labels:,}" for one in people]),
    ]
    title = f"By judges and by people, {plain(people[0].scale)}, in points"
    return _table(title, [Row(plain(one.student), False) for one in people], columns, width)


def _label_columns(results: Results, students: Sequence[str]) -> list[Column]:
    return [
        (
            _named(column.name, column.removed, LABELS),
            [_accuracy(column.accuracies.get(student)) for student in students],
        )
        for column in label_columns(results)
    ]


def _label_tables(labels: Sequence[LabelAccuracy], width: int) -> list[Table]:
    """One table if all names fit beside the figures, else one for each label of each task."""
    names = {
        "task": [_named(label.task, "task" in label.removed) for label in labels],
        "label": [_named(label.attribute, "label" in label.removed) for label in labels],
        "student": [_named(label.student, "student" in label.removed) for label in labels],
    }
    dim = [bool(label.removed) for label in labels]
    columns = _label_figures(labels)
    leading = [(header, cells) for header, cells in names.items() if header != "student"]
    rows = [Row(name, off) for name, off in zip(names["student"], dim, strict=True)]
    needed = sum(_widest([header, *cells]) + _GAP for header, cells in names.items()) - _GAP
    if needed + _wide(columns) <= width:
        return [_table("Label accuracy", rows, columns, width, leading)]
    tables = []
    places = list(zip(names["task"], names["label"], strict=True))
    for task, label in dict.fromkeys(places):
        at = [n for n, place in enumerate(places) if place == (task, label)]
        figures = _label_figures([labels[n] for n in at])
        title = f"Label accuracy in {task}: {label}"
        tables.append(_table(title, [rows[n] for n in at], figures, width))
    return tables


def _label_figures(labels: Sequence[LabelAccuracy]) -> list[Column]:
    columns = [
        ("accuracy", [_accuracy(label) for label in labels]),
        ("right", [f"{label.correct} of {label.n}" for label in labels]),
    ]
    if any(label.none_of_the_labels for label in labels):
        columns.append((NO_LABEL, [str(label.none_of_the_labels) for label in labels]))
    if any(label.least != label.most for label in labels):
        columns.append((BOUNDS, [bounds_text(label.least, label.most) or NOTHING for label in labels]))
    if any(label.failed for label in labels):
        columns.append(("failed", [str(label.failed) for label in labels]))
    return columns


def _sampled_table(sampled: Sequence[SampledScore], width: int) -> Table:
    """Of several answers to an item: the mean over all of them, and how often one or all of them pass."""
    leading = [
        ("task", [plain(each.task) for each in sampled]),
        ("factor", ["(answer)" if each.factor is None else plain(each.factor) for each in sampled]),
    ]
    passes = [each.passes[-1] if each.passes else None for each in sampled]
    columns = [
        ("mean@N", [bracketed(each.mean, each.low, each.high) for each in sampled]),
        ("item s.e.", [_points(each.item_se) for each in sampled]),
        ("sd in item", [_points(each.sample_sd) for each in sampled]),
    ]
    if any(passes):
        columns += [
            ("pass@N", [bracketed(p.one, p.one_low, p.one_high) if p else NOTHING for p in passes]),
            ("pass^N", [bracketed(p.all, p.all_low, p.all_high) if p else NOTHING for p in passes]),
        ]
    columns.append(("N", [str(each.samples) for each in sampled]))
    rows = [Row(plain(each.student), False) for each in sampled]
    title = "Several answers to an item"
    names = sum(_widest([header, *cells]) + _GAP for header, cells in leading) + _name_width(rows, width)
    if names + _wide(columns, _widest([header for header, _ in columns])) <= width:
        return _table(title, rows, columns, width, leading)
    columns = [(header, [cell.partition(" [")[0] for cell in cells]) for header, cells in columns]
    places = [": ".join(place) for place in zip(*(cells for _, cells in leading), strict=True)]
    return _table(title, *_under(places, rows, columns), width)


def _under(
    places: Sequence[str], rows: Sequence[Row], columns: Sequence[Column]
) -> tuple[list[Row], list[Column]]:
    """The same with a line before each run of rows of one place."""
    found: list[Row] = []
    cells: list[list[str]] = [[] for _ in columns]
    for n, row in enumerate(rows):
        if n == 0 or places[n] != places[n - 1]:
            found.append(Row(places[n], True))
            for column in cells:
                column.append("")
        found.append(row)
        for column, (_, shown) in zip(cells, columns, strict=True):
            column.append(shown[n])
    return found, [(header, column) for (header, _), column in zip(columns, cells, strict=True)]


def _table(
    title: str, rows: Sequence[Row], columns: Sequence[Column], width: int, leading: Sequence[Column] = ()
) -> Table:
    """Students and their figures; ``leading`` columns, of names that fit, stand before."""
    table = Table(
        title=Text(title), title_justify="left", box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 0, 0, 1)
    )
    for header, cells in leading:
        table.add_column(Text(header), width=_widest([header, *cells]), no_wrap=True)
    before = sum(_widest([header, *cells]) + _GAP for header, cells in leading)
    headers = _longest_header(columns, width - before - _name_width(rows, width))
    room = max(_name_width(rows, width), width - before - _wide(columns, headers))
    of_names = min(_longest_name(rows), room)
    table.add_column("student", width=of_names, overflow="fold")
    for header, cells in columns:
        wide = _column_width(header, cells, headers)
        of_intervals = any(" " in cell for cell in cells)  # they give way where a row is too wide
        table.add_column(
            Text(folded_name(header, wide)),
            width=None if of_intervals else wide,
            max_width=wide,
            justify="right",
            overflow="fold",
        )
    for n, row in enumerate(rows):
        name = folded_name(row.name, of_names)
        cells = [*(cells[n] for _, cells in leading), name, *(cells[n] for _, cells in columns)]
        table.add_row(*map(Text, cells), style="dim" if row.dim else None)
    return table


def _named(name: str, removed: bool, *marks: str) -> str:
    marks = (*marks, "removed") if removed else marks
    return f"{plain(name)} ({', '.join(marks)})" if marks else plain(name)


def _name_width(rows: Sequence[Row], width: int) -> int:
    """What names take of the width before there is any to spare."""
    return min(_longest_name(rows), max(_SHORTEST_NAME, width // 3))


def _longest_name(rows: Sequence[Row]) -> int:
    return _widest(["student", *(row.name for row in rows)])


def _longest_header(columns: Sequence[Column], free: int) -> int:
    """To how many cells headers are folded: not at all where there is room for them as they are."""
    whole = _widest([header for header, _ in columns])
    return whole if _wide(columns, whole) <= free else _LONGEST_HEADER


def _column_width(header: str, cells: Sequence[str], longest_header: int) -> int:
    """A long header is folded, a cell never."""
    return max(min(cell_len(header), longest_header), _widest(cells))


def _wide(columns: Sequence[Column], longest_header: int = _LONGEST_HEADER) -> int:
    """Cells that columns take beside a first one."""
    return _EDGES + sum(_column_width(header, cells, longest_header) + _GAP for header, cells in columns)


def _widest(texts: Sequence[str]) -> int:
    return max((cell_len(text) for text in texts), default=0)


def _cell(score: StudentScore | None) -> str:
    return NOTHING if score is None else bracketed(score.score, score.low, score.high)


def _points(score: float | None) -> str:
    return points_text(score) or NOTHING


def _accuracy(label: LabelAccuracy | None) -> str:
    return NOTHING if label is None else bracketed(label.accuracy, label.low, label.high)


def bracketed(mean: float | None, low: float | None, high: float | None) -> str:
    return points_text(mean, low, high) or NOTHING
