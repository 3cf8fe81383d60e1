"""Measures on a terminal, and as JSON, CSV and Markdown: all follow the records and what these declare."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, TypeAlias

from rich.text import Text

from coeval.analysis.measures.measured import (
    Analysis,
    Leaf,
    Measured,
    Part,
    Record,
    ShownAs,
    declared,
    leaves,
)
from coeval.analysis.measures.run_measures import (
    OutputMeasures,
    RunMeasures,
    SampleSpread,
    plain_measures,
    shown_parts,
)
from coeval.analysis.panel.bias_ledger import Favour, Leaning
from coeval.analysis.panel.g_study import part_names
from coeval.analysis.people.people_measures import PeopleMeasures, people_sentences
from coeval.analysis.run_results import SIMULATED
from coeval.cli.streams import say
from coeval.cli.views.name_table import Column, NameRow, print_table, say_names
from coeval.cli.views.results_view import json_text
from coeval.core.figures import (
    MISSING,
    NOT_KNOWN,
    FigureKind,
    bounds_text,
    figure,
    figure_text,
    gap_text,
    metric_text,
    points,
    points_text,
)
from coeval.core.plain import plain
from coeval.core.shown_names import ShownNames
from coeval.core.text import listed

if TYPE_CHECKING:
    from rich.console import Console

    from coeval.analysis.measures.label_measures import LabelMeasures, Labels, LabelStudent
    from coeval.analysis.measures.pair_measures import PairMeasures
    from coeval.analysis.measures.ranking import Ranking
    from coeval.analysis.measures.robust_set import RobustMeasures
    from coeval.analysis.measures.run_measures import Measures
    from coeval.analysis.measures.student_measures import StudentScores

NO_LABEL = "no label"
# Of a label, up to which a table of all of them against each other can be read.
MOST_VALUES = 12
# Rows of a screen; the commonest confusions and the most doubtful items come first.
_MOST_MISTAKES = 20
# As many as `_MOST_MISTAKES`.
_MOST_ITEMS = 20
_OVER_JUDGES = (
    "Scores are by these judges, over items, a sample of what these teachers write; over items, judges: "
    "judges are a sample too."
)
_OF = " / "
_COLUMNS = ("part", "name", "measure", "of", "value", "low", "high", "n", "missing")

# --- JSON, CSV and Markdown


def as_json(measures: Measures, analysis: Analysis) -> str:
    return json_text(plain_measures(measures, analysis), indent=2) + "\n"


def as_csv(measures: Measures, analysis: Analysis) -> str:
    """A line for each number: the part and name it belongs to (no name: the run as a whole), the measure,
    and of what (``by_task`` of ``haiku``; of a label ``quiz / colour``); with its interval, n and what is
    missing, where it has these."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for leaf in _leaves(measures, analysis):
        place = (leaf.part, leaf.name, leaf.measure, _OF.join(leaf.of))
        writer.writerow([*map(_guarded, place), *("" if v is None else v for v in leaf.measured)])
    return text.getvalue()


def as_markdown(measures: Measures, analysis: Analysis) -> str:
    """Findings, a table for each part, and for each student and label what is taken for what."""
    shown = dict(shown_parts(measures, analysis))
    lines = [f"**{_cell(SIMULATED)}**", ""] if shown.get("simulated") else []
    if findings := shown.get("findings"):
        lines += [*(f"- {_cell(finding)}" for finding in findings), ""]
    lines += [f"Scores that count (units): {measures.units:,}.", ""]
    for part, found in groupby(_leaves(measures, analysis), key=lambda leaf: leaf.part):
        if part != "run" and (rows := [leaf for leaf in found if leaf.measure not in _IN_TABLES]):
            lines += [f"## {part}", "", *_markdown_table(rows), ""]
    labels: Labels = shown.get("labels", {})
    for task, of_task in labels.items():
        for label, of_label in of_task.items():
            for name, student in of_label.students.items():
                if student.accuracy.n:
                    lines += [f"### {_cell(task)} {_cell(label)}: {_cell(name)}", ""]
                    lines += [*_markdown_confusion(student), ""]
    return "\n".join(lines)


# Measures that have tables of their own.
_IN_TABLES = ("confusion", "expected")


def _leaves(measures: Measures, analysis: Analysis) -> Iterator[Leaf]:
    for name, part in shown_parts(measures, analysis):
        yield from leaves(name, part)


def _markdown_confusion(found: LabelStudent) -> Iterator[str]:
    """Expected labels below, stated ones beside; of many labels, the pairs that occur."""
    table = found.confusion
    if len(table) > MOST_VALUES:
        yield "| expected | stated | answers |"
        yield "| --- | --- | ---: |"
        for expected, stated, count in mistakes([found]):
            yield f"| {_cell(expected)} | {_cell(stated)} | {count:,} |"
        return
    yield f"| expected | {' | '.join(map(_cell, table))} | {NO_LABEL} |"
    yield f"| --- |{' ---: |' * (len(table) + 1)}"
    for expected, row in table.items():
        counts = (*row.values(), found.none_of(expected))
        yield f"| {_cell(expected)} | {' | '.join(f'{count:,}' for count in counts)} |"


def _markdown_table(found: Sequence[Leaf]) -> Iterator[str]:
    """Without a column of names where all is of the run as a whole."""
    named = any(leaf.name for leaf in found)
    yield f"|{' name |' * named} measure | value | 95% interval | n | missing |"
    yield f"|{' --- |' * named} --- | ---: | --- | ---: | ---: |"
    for leaf in found:
        value, low, high, n, missing = leaf.measured
        bounds = (
            "" if low is None or high is None else f"[{figure(low, leaf.kind)}, {figure(high, leaf.kind)}]"
        )
        whole = isinstance(value, int)
        shown = MISSING if value is None else f"{value:,}" if whole else figure(value, leaf.kind)
        counts = ("" if count is None else f"{count:,}" for count in (n, missing))
        names = (_cell(leaf.name),) if named else ()
        measure = _cell(f"{leaf.measure} {_OF.join(leaf.of)}".strip())
        yield f"| {' | '.join((*names, measure, shown, bounds, *counts))} |"


def _cell(text: str) -> str:
    """Names of models and attributes are foreign: no sign of Markdown or HTML in them is one."""
    return "".join(f"\\{c}" if c in "\\`*_{}[]<>#|!" else c for c in plain(text))


def _guarded(text: str) -> str:
    """Text that a spreadsheet would take for a formula is marked as the text it is."""
    return plain(f"'{text}" if text.startswith(("=", "+", "-", "@")) else text)


# --- Tables of the terminal

Cells: TypeAlias = Mapping[str, str]
"""The cells of a row by their headings."""


def print_measures(
    measures: Measures, analysis: Analysis, console: Console, labels: Mapping[str, str] | None = None
) -> None:
    """The scores, a line for each student, then findings, then a table for each part that there is anything
    of; ``labels`` as in `short_names`."""
    models = measures.metrics if isinstance(measures, OutputMeasures) else measures.students
    names = ShownNames.of((*models, *measures.judges, *measures.teachers), labels)
    measures = names.renamed(measures)
    shown = dict(shown_parts(measures, analysis))
    if shown.get("simulated"):
        console.print(Text(SIMULATED, style="bold yellow"))
    findings: Sequence[str] = shown.get("findings", ())
    if scored := "students" in shown and isinstance(measures, RunMeasures) and measures.units > 0:
        _print_standing("Scores", measures.students, measures.ranking, console)
    if findings and (scored or shown.get("simulated")):
        console.print()
    for finding in findings:
        say(console, f"- {finding}")
    match measures:
        case RunMeasures():
            printed = _print_run(measures, shown.keys(), console)
        case OutputMeasures():
            printed = _print_output(measures, shown.keys(), console)
    if printed:
        console.print()
        say(console, "[low, high]: 95% interval, clustered by item (n). docs/measures.md", "dim")
        say_names(console, names)
    elif not findings:
        bare = "students" not in shown
        nothing = "No task of this run has labels." if bare and "labels" in shown else _NOT_YET
        say(console, _UNLABELLED if analysis == "calibration" else nothing)


_NOT_YET = "There is nothing to show yet."
_UNLABELLED = "Nobody has labelled an answer of this run yet: coeval label RUN"


def _print_run(measures: RunMeasures, shown: Iterable[str], console: Console) -> bool:
    """Whether there was anything to print."""
    printed = False
    if "pairs" in shown and measures.pairs is not None:
        _print_pairs(measures.pairs, console)
        printed = True
    if "students" in shown:
        printed |= _print_students(measures, console)
        if measures.without_own.applicable:
            title = "Without the scores that students gave themselves"
            _print_standing(title, measures.without_own.students, measures.without_own.ranking, console)
        printed |= _print_declared(measures, shown, ("samples",), console)
        printed |= _print_checks(measures, console)
    if "labels" in shown and measures.labels:
        _print_labels(measures.labels, console, whole="students" not in shown)
        printed = True
    printed |= _print_declared(measures, shown, ("agreement", "judges", "length", "teachers"), console)
    if "agreement" in shown and measures.panel is not None and measures.panel.kappa_weights is not None:
        say(console, "kappa: Cohen's weighted κ, linear in the values of levels.", "dim")
    if "g_study" in shown:
        printed |= _print_studies(measures, console)
    if "robust" in shown and (measures.units or "students" not in shown):
        _print_robust(measures.robust, console)
        printed |= measures.robust.applicable
    if _print_declared(measures, shown, ("coverage",), console):
        printed = True
        _tell_coverage(measures, console)
    if "items" in shown:
        printed |= _print_items(measures, console)
    if "people" in shown and measures.people is not None:
        _print_people(measures.people, console, alone="students" not in shown)
        printed = True
    return printed


def _print_people(found: PeopleMeasures, console: Console, *, alone: bool) -> None:
    """Students on both scales and judges against people, in points; ``alone``: with the sentences, and what
    judges take for what."""
    for sentence in people_sentences(found) if alone else ():
        say(console, sentence)
    for name, scale in found.scales.items():
        students = {one: _cells(record) for one, record in scale.students.items()}
        print_rows(f"Students by judges and by people, {name}", "student", students, console)
        if scale is found.whole:
            pairs = {_name(pair): _cells(record) for pair, record in scale.pairs.items()}
            print_rows(f"Differences by judges and by people, {name}", "students", pairs, console)
    judges = {one: _cells(record) for one, record in found.judges.items()}
    print_rows("Judges against people", "judge", judges, console)
    for name, judge in found.judges.items() if alone else ():
        levels = {
            level: {
                **{other: f"{count:,}" for other, count in row.items()},
                "bias": _text(judge.bias_by_level.get(level)),
            }
            for level, row in judge.confusion.items()
        }
        print_rows(f"{name}: people's levels below, its own beside", "people", levels, console)
    agreed = {_name(pair): _cells(record) for pair, record in found.between.items()}
    print_rows("People pairwise", "people", agreed, console)
    say(
        console,
        "Scores and bias in points; λ: how far judged scores are used (PPI++). docs/people.md",
        "dim",
    )


def _print_pairs(found: PairMeasures, console: Console) -> None:
    """Strengths in points, win rates, judges."""
    tables = (
        ("Strength by comparisons", "student", found.students),
        ("Win rates, the stronger against the weaker", "students", found.rates),
        ("Judges of comparisons", "judge", found.judges),
    )
    for title, heading, records in tables:
        of: Mapping[Any, Record] = records
        print_rows(title, heading, {_name(key): _cells(record) for key, record in of.items()}, console)
    say(console, "Points: a tie is half a win. docs/pairs.md", "dim")


def _print_studies(measures: RunMeasures, console: Console) -> bool:
    """Print variance components and each judge's worth."""
    study = measures.g_study
    printed = False
    if study is not None:
        scatter = {
            name: {"sd": points_text(*one.sd[:3]) or "", "n": _text(one.sd.n)}
            for name, one in part_names(study.components).items()
        }
        printed = print_rows("Where scores scatter: sd in points", "part", scatter, console)
        worth = {name: _cells(one) for name, one in study.worth.items()}
        printed |= print_rows("What judges add to Eρ²", "judge", worth, console)
    return printed


def _print_output(measures: OutputMeasures, shown: Iterable[str], console: Console) -> bool:
    printed = _print_declared(measures, shown, ("agreement", "judges"), console)
    for model, tasks in measures.metrics.items() if "metrics" in shown else ():
        for task, metrics in tasks.items():
            spreads = measures.samples[model].get(task, {}) if model in measures.samples else {}
            rows = {
                name: _metric(found, tasks.units.get((task, name), "share"), spreads.get(name))
                for name, found in metrics.items()
            }
            runs = max((spread.n_runs for spread in spreads.values()), default=0)
            several = f", {runs} samples of each prompt" if runs else ""
            printed |= print_rows(f"{model} in {task}{several}", "metric", rows, console)
    return printed


def _metric(found: Measured, unit: str, spread: SampleSpread | None) -> dict[str, str]:
    """A metric in points, and how far samples and prompts scatter."""
    value, low, high = ("" if each is None else metric_text(each, unit) for each in found[:3])
    cells = {"value": f"{value} [{low}, {high}]" if low and high else value, "n": _text(found.n)}
    if spread is None:
        return cells
    errors = {"sd of samples": spread.std, "item s.e.": spread.item_se}
    return cells | {name: "" if each is None else gap_text(each, unit) for name, each in errors.items()}


def _print_declared(measures: Measures, shown: Iterable[str], parts: Sequence[str], console: Console) -> bool:
    """Tables of parts by what they and the fields of their records declare."""
    printed = False
    reported = declared(type(measures))
    for name in parts:
        of_part, found = reported[name], getattr(measures, name)
        if name in shown and isinstance(of_part, Part):
            rows = {_name(key): _cells(record) for key, record in found.items()}
            printed |= print_rows(of_part.title, of_part.heading, rows, console)
            if name == "judges":
                printed |= _print_leanings(measures, console)
    return printed


def print_rows(title: str, heading: str, rows: Mapping[str, Cells], console: Console) -> bool:
    """Whether there was anything to print: a column is left out where no row has anything in it, and so is a
    table of nothing but counts."""
    headings = [name for name in _first_of_all(rows.values()) if any(row.get(name) for row in rows.values())]
    if not set(headings) - {"n", "rank", "items"}:
        return False
    columns = [Column(name) for name in headings]
    console.print()
    cells = [NameRow(name, [row.get(each) or MISSING for each in headings]) for name, row in rows.items()]
    print_table(console, title, heading, columns, cells)
    return True


def _first_of_all(rows: Iterable[Cells]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row))


def _name(key: str | tuple[str, ...]) -> str:
    return key if isinstance(key, str) else "|".join(key)


def _cells(record: Record) -> dict[str, str]:
    """The figures that a record declares for the terminal, and what the first of its measures rests on."""
    found = {
        shown.terminal: _text(getattr(record, name), shown.kind)
        for name, shown in declared(type(record)).items()
        if isinstance(shown, ShownAs) and shown.terminal
    }
    figures = (getattr(record, name) for name in declared(type(record)))
    counted = next((figure for figure in figures if isinstance(figure, Measured)), None)
    return found if counted is None else {**found, "n": _text(counted.n)}


def _text(found: Any, kind: FigureKind = "points") -> str:
    """A figure as it is declared; empty where there is nothing to say."""
    match found:
        case Measured():
            return "" if found.value is None else figure_text(kind, found.value, *found[1:3])
        case Favour(value=float(), ci95=None):
            usual = "no verdict" if found.usual is None else f"usual {points(found.usual)}"
            return f"{_text(found.measured)} ({usual})"
        case Leaning():
            return "" if found.measured is None else _text(found.measured)
        case (int(), int()):
            return _rank(found)
        case int():
            return f"{found:,}"
        case float():
            return figure(found, kind)
        case _:
            return found or ""


def _rank(found: Sequence[int] | None) -> str:
    """``2``, or ``2–4`` where it is not sure."""
    return "–".join(str(rank) for rank in dict.fromkeys(found or ()))


def _best_first(students: Mapping[str, StudentScores], ranking: Ranking) -> dict[str, Measured]:
    """Their scores in the order of the ranking; those without a score last, by name."""
    order = [*ranking.order, *sorted(students.keys() - set(ranking.order))]
    return {name: students[name].score for name in order}


def _print_students(measures: RunMeasures, console: Console) -> bool:
    """Nothing where nobody has a score, and none is known to be missing."""
    students, ranking = measures.students, measures.ranking
    if not any(found.score.value is not None or found.score.missing for found in students.values()):
        return False
    rows = {
        name: {
            "over items, judges": _over_judges(students[name].over_judges),
            "mean of recorded": _text(students[name].mean_recorded) if ranking.adjusted else "",
            "missing": _text(students[name].score.missing),
            "bounds": bounds_text(*(students[name].bounds.score or (None, None))) or "",
        }
        for name in _best_first(students, ranking)
    }
    print_rows("Students", "student", rows, console)
    if any(row["over items, judges"] for row in rows.values()):
        say(console, _OVER_JUDGES, "dim")
    if any(row["bounds"] for row in rows.values()):
        say(console, "bounds: the score with all that is missing counted as 0, and as 100.", "dim")
    return True


def _over_judges(found: Measured | None) -> str:
    """An interval as wide as the scale says nothing."""
    known = found is None or found.low is None or found.high is None or (found.low > 0 or found.high < 1)
    return _text(found) if known else NOT_KNOWN


def _print_standing(
    title: str, students: Mapping[str, StudentScores], ranking: Ranking, console: Console
) -> None:
    """Scores by some of the judgments, and ranks where there are any."""
    scores = _best_first(students, ranking)
    rows = {
        name: {"rank": _rank(ranking.ranges.get(name)), "score": _text(score), "n": _text(score.n)}
        for name, score in scores.items()
    }
    print_rows(title, "student", rows, console)


def _print_robust(robust: RobustMeasures, console: Console) -> None:
    if not robust.applicable:
        say(console, f"No robust set: {robust.reason}.", "dim")
        return
    title = f"Robust set: {robust.datapoints or 0:,} of {robust.of_datapoints or 0:,} items"
    _print_standing(title, robust.students, robust.ranking, console)
    whose = f"judges {listed(robust.judges or ())}; teachers {listed(robust.teachers or ())}"
    say(console, f"Where the judges who agree best agree: {whose}.", "dim")
    say(console, "These items were selected by the same scores, so there are no ranks or p-values.", "dim")


def _print_checks(measures: RunMeasures, console: Console) -> bool:
    """A row for each check and student."""
    several = len({task for task, _ in measures.checks or {}}) > 1
    rows = {
        f"{task} · {name}: {student}" if several else f"{name}: {student}": {
            "mean": _text(one),
            "n": _text(one.n),
            "missing": _text(one.missing),
        }
        for (task, name), found in (measures.checks or {}).items()
        for student, one in found.mean.items()
    }
    return print_rows("Checks", "check: student", rows, console)


def _print_leanings(measures: Measures, console: Console) -> bool:
    """What can be told of any of them."""
    rows = {
        name: {
            **_cells(judge.bias),
            "itself": "" if judge.consistency is None else _text(judge.consistency.spa, "share"),
        }
        for name, judge in measures.judges.items()
    }
    title = "What judges lean on, and how often they agree with themselves"
    return print_rows(title, "judge", rows, console)


def _tell_coverage(measures: RunMeasures, console: Console) -> None:
    for task, found in measures.coverage.items():
        counts = (
            ("all students pass", found.all_pass),
            ("all fail", found.all_fail),
            ("nearly the same as another are", found.near_duplicates),
        )
        if reported := [f"{words} {count:,}" for words, count in counts if count]:
            say(console, f"Of the items of {task}, {listed(reported)}.")


def _print_items(measures: RunMeasures, console: Console) -> bool:
    """Those that tell least of students, or the opposite: worst discrimination first."""
    items = measures.items
    known = sorted(
        (one.discrimination, name) for name, one in items.items() if one.discrimination is not None
    )
    rows = {name: _cells(items[name]) for _, name in known[:_MOST_ITEMS]}
    return print_rows("Datapoints that tell students apart least", "item", rows, console)


# --- Label accuracy on a terminal


def _print_labels(labels: Labels, console: Console, *, whole: bool) -> None:
    """A table for each label of each task; ``whole``: and for each student what is taken for what."""
    for task, attributes in labels.items():
        for attribute, found in attributes.items():
            _print_label_students(f"Labels of {task}: {attribute}", found, console)
            if whole:
                for name, student in found.students.items():
                    if student.accuracy.n:
                        _print_confusion(f"{task} {attribute}, {name}", student, console)
            else:
                _tell_mistakes(f"{task} ({attribute})", list(found.students.values()), console)


def _print_label_students(title: str, found: LabelMeasures, console: Console) -> None:
    rows = {
        name: {
            "rank": _rank(found.ranking.ranges.get(name)),
            **_cells(found.students[name]),
            "missing": _text(found.students[name].accuracy.missing),
            "bounds": bounds_text(*(found.students[name].bounds.accuracy or (None, None))) or "",
        }
        for name in found.order
    }
    print_rows(title, "student", rows, console)


def mistakes(students: Iterable[LabelStudent]) -> list[tuple[str, str, int]]:
    """What is expected and what is stated in its place, of all students together: the most frequent first."""
    counts = Counter[tuple[str, str]]()
    for found in students:
        for expected, row in found.confusion.items():
            counts.update({(expected, stated): count for stated, count in row.items() if stated != expected})
    return sorted(
        ((*pair, count) for pair, count in counts.items() if count), key=lambda each: (-each[2], each[:2])
    )


def _tell_mistakes(where: str, students: Sequence[LabelStudent], console: Console) -> None:
    if found := mistakes(students):
        of = Counter[str]()
        for each in students:
            of.update(each.expected)
        reported = [
            f"{said} for {expected} ({count:,} of {of[expected]:,})" for expected, said, count in found[:3]
        ]
        say(console, f"Most often mistaken in {where}: {listed(reported)}.")


def _print_confusion(title: str, found: LabelStudent, console: Console) -> None:
    """Expected labels below, stated ones beside; of many labels, the most frequent mistakes."""
    if len(found.confusion) > MOST_VALUES:
        worst = {
            f"{expected}: {said}": {"answers": f"{count:,}"}
            for expected, said, count in mistakes([found])[:_MOST_MISTAKES]
        }
        print_rows(f"{title}: most frequent mistakes", "expected: stated", worst, console)
        return
    rows = [
        NameRow(value, [f"{count:,}" for count in (*row.values(), found.none_of(value))])
        for value, row in found.confusion.items()
    ]
    columns = [*map(Column, found.confusion), Column(NO_LABEL)]
    print_table(console, f"{title}: expected labels below, stated ones beside", "expected", columns, rows)
