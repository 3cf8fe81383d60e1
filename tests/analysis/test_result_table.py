from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import pytest
from made_rows import label_row, student_row
from rich.cells import cell_len
from rich.console import Console

from coeval.analysis.run_results import SIMULATED
from coeval.cli.views.results_view import print_results
from coeval.core.html_table import MeasureRow
from coeval.reports.result_tables import Results

HOSTILE = "[red]evil[/red]\x1b[31m\n\u202e"
LONG = "very-long-student-name-" * 4


def shown(results: Results, width: int) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    print_results(results, console)
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert max(cell_len(line.rstrip()) for line in text.splitlines()) <= width
    return text


def scores(students: Sequence[str], tasks: Sequence[str], low: float = 0.61) -> tuple[MeasureRow, ...]:
    return tuple(
        student_row(student, task, 0.71, low, 0.78, 20, 120, 3)
        for task in (None, *tasks)
        for student in students
    )


def test_one_row_per_student_with_overall_tasks_and_counts() -> None:
    text = shown(Results(scores(["small", "large"], ["haiku", "sum"]), (), False), 80)
    [header] = [line.split() for line in text.splitlines() if "overall" in line and "haiku" in line]
    assert header == ["student", "overall", "n", "failed", "haiku", "sum"]
    [row] = [line.split() for line in text.splitlines() if line.strip().startswith("small")]
    figure = ["71.0", "[61.0,", "78.0]"]
    assert row == ["small", *figure, "20", "3", *figure * 2]
    assert "95% interval" in text
    assert SIMULATED not in text


@pytest.mark.parametrize("width", [60, 80, 120])
def test_many_tasks_and_hostile_names_fit_the_width(width: int) -> None:
    tasks = [f"task-with-a-long-name-{i}" for i in range(9)]
    labels = tuple(
        label_row(tasks[0] * 2, name, "label" * 9, 0.5, 0.4, 0.6, 99999, 50000) for name in (HOSTILE, LONG)
    )
    text = shown(Results(scores([HOSTILE, LONG], tasks), labels, True), width)
    assert text.splitlines()[0] == SIMULATED
    assert "[red]evil[/" in text, "shown, not obeyed; it may be folded between words"
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "overall" in text
    assert text.count("student") > 1, "tasks continue in further tables, or below the names"
    assert text.count("71.0 [61.0, 78.0]") == 2 * (1 + len(tasks)), "no cell is cut or folded"


def test_a_wide_console_holds_more_tasks_per_table() -> None:
    results = Results(scores(["s"], [f"task-number-{i}" for i in range(5)]), (), False)
    tables = [shown(results, width).count("student ") for width in (40, 80, 140)]
    assert tables[0] > tables[1] > tables[2] == 1


def test_a_single_task_is_not_shown_twice() -> None:
    text = shown(Results(scores(["s"], ["haiku"]), (), False), 80)
    assert "Scores in haiku" in text
    assert text.count("71.0 [61.0, 78.0]") == 1


def test_scores_are_points_with_one_decimal_at_the_ends_of_the_scale_too() -> None:
    def cell(mean: float, low: float, high: float) -> str:
        text = shown(Results((student_row("s", None, mean, low, high, 20, 120, 0),), (), False), 80)
        [row] = [line for line in text.splitlines() if line.strip().startswith("s ")]
        return " ".join(row.split()[1:4])

    assert cell(0.5, 0.4049, 0.595) == "50.0 [40.5, 59.5]"
    assert cell(1.0, 0.8834, 1.0) == "100.0 [88.3, 100.0]"
    assert cell(0.0, 0.0, 0.12) == "0.0 [0.0, 12.0]"


def test_two_tasks_and_names_of_ten_cells_fit_80_columns_in_one_table() -> None:
    text = shown(Results(scores(["sim-medium"], ["a", "ticket_triage"]), (), False), 80)
    [row] = [line.split() for line in text.splitlines() if line.strip().startswith("sim-medium")]
    figure = ["71.0", "[61.0,", "78.0]"]
    assert row == ["sim-medium", *figure, "20", "3", *figure * 2]


def test_a_student_without_a_score_keeps_its_row_and_its_failures() -> None:
    nothing = tuple(student_row("mute", task, None, None, None, 0, 0, 7) for task in (None, "t"))
    text = shown(Results((*scores(["s"], ["t"]), *nothing), (), False), 80)
    [row] = [line.split() for line in text.splitlines() if line.strip().startswith("mute")]
    assert row == ["mute", "–", "0", "7"]


def test_an_overall_over_fewer_tasks_is_pointed_out() -> None:
    some = scores(["all"], ["a", "b"]) + scores(["half"], ["a"])
    text = shown(Results(some, (), False), 100)
    assert "over the other tasks only: half." in text
    assert "over the other tasks only" not in shown(Results(scores(["x", "y"], ["a", "b"]), (), False), 80)


def test_labels_have_their_own_table() -> None:
    unscored = student_row("s", None, None, None, None, 0, 0, 0)
    label = label_row("haiku", "s", "season", 0.75, 0.30, 0.95, 4, 3)
    text = shown(Results((unscored,), (label,), False), 80)
    [row] = [line.split() for line in text.splitlines() if "season" in line]
    assert row == ["haiku", "season", "s", "75.0", "[30.0,", "95.0]", "3", "of", "4"]
    assert "95% interval, over items" in text
    assert "overall" not in text


def test_a_label_table_folds_only_the_names_that_are_too_long() -> None:
    label = label_row("ticket_triage", "s", LONG, 0.75, 0.30, 0.95, 4, 3)
    text = shown(Results((), (label,), False), 80)
    assert "ticket_triage, very-long-" in text
    assert LONG not in text
    [row] = [line.split() for line in text.splitlines() if line.strip().startswith("s ")]
    assert row == ["s", "75.0", "[30.0,", "95.0]", "3", "of", "4"]


def test_in_a_narrow_terminal_each_label_has_a_line_and_no_name_is_folded() -> None:
    labels = tuple(accuracy("ticket_triage", name, "team") for name in ("sim-large", "sim-medium"))
    assert shown(Results((), labels, False), 80).splitlines()[0].strip() == "Label accuracy"
    narrow = shown(Results((), labels, False), 50)
    assert "\nticket_triage, team\n" in narrow
    assert row_of("sim-medium", narrow) == ["sim-medium", "75.0", "[30.0,", "95.0]", "3", "of", "4"]


def test_a_long_task_name_is_folded_only_where_it_must_be() -> None:
    found = Results(scores(["s"], ["a_task_with_a_name_of_some_length", "b"]), (), False)
    assert "a_task_with_a_name_of_some_length" in shown(found, 100_000)
    assert "a_task_with_a_name_of_some_length" in shown(found, 120)
    assert "a_task_with_a_name_of_some_length" not in shown(found, 80)


def test_nothing_to_show_is_said() -> None:
    assert "no scores yet" in shown(Results((), (), False), 80)


def test_what_was_left_out_is_said() -> None:
    assert "x.jsonl: 1 line" in shown(Results(scores(["s"], ["t"]), (), False, ("x.jsonl: 1 line",)), 80)


def test_figures_stand_below_names_that_leave_them_no_room() -> None:
    name = "a-student-with-a-name-of-40-characters-x"
    assert name in shown(Results(scores([name], ["t"]), (), False), 80)
    assert f"\n{name}\n    71.0 [61.0, 78.0]" in shown(Results(scores([name], ["t"]), (), False), 60)


def row_of(student: str, text: str) -> list[str]:
    return next(line.split() for line in text.splitlines() if line.strip().startswith(f"{student} "))


def accuracy(task: str, student: str, attribute: str = "colour", **more: Any) -> MeasureRow:
    return label_row(task, student, attribute, 0.75, 0.3, 0.95, 4, 3, **more)


def test_a_task_that_has_only_labels_shows_its_accuracy_outside_overall() -> None:
    labels_only = tuple(student_row(name, "quiz", None, None, None, 0, 0, 1) for name in "st")
    found = Results((*scores("st", ["haiku"]), *labels_only), (accuracy("quiz", "s"),), False)
    text = shown(found, 80)
    [header] = [line.split() for line in text.splitlines() if "overall" in line and "student" in line]
    assert header == ["student", "overall", "n", "failed", "haiku", "quiz", "(labels)"]
    assert row_of("s", text)[9:] == ["75.0", "[30.0,", "95.0]"]
    assert row_of("t", text)[9] == "–", "no label of its own was compared"
    assert "(labels): label accuracy, the share of right answers; in no overall score." in text
    beside = shown(Results(scores(["s"], ["haiku"]), (accuracy("haiku", "s"),), False), 80)
    assert "(labels)" not in beside, "a task with scores has its labels in their own table only"


def test_several_labels_of_a_task_are_several_columns() -> None:
    removed = accuracy("q", "s", "taste", removed=("label",))
    gone = accuracy("gone", "s", removed=("task",))
    labels = (accuracy("q", "s", "a"), accuracy("q", "s", "b"), removed, gone)
    text = shown(Results(scores(["s"], ["haiku"]), labels, False), 140)
    header = " ".join(next(line for line in text.splitlines() if "overall" in line).split())
    assert header.startswith("student overall n failed haiku q a (labels) q b (labels) ")
    assert "gone (labels," in text
    assert "taste" not in header, "a removed label stands in the table of labels only"


def test_answers_that_are_none_of_the_labels_are_shown_where_there_are_any() -> None:
    labels = (accuracy("quiz", "s", none_of_the_labels=12), accuracy("quiz", "t"))
    text = shown(Results((), labels, False), 80)
    [header] = [line for line in text.splitlines() if "accuracy" in line and "student" in line]
    assert header.split()[-2:] == ["no", "label"]
    ends = [line.split()[-1] for line in text.splitlines() if "colour" in line]
    assert ends == ["12", "0"]
    assert "no label: answers that are none of the task's labels, or several; wrong." in text
    assert "no label" not in shown(Results((), (accuracy("quiz", "t"),), False), 80)


def test_answers_that_were_cut_off_are_told_by_student_the_most_first() -> None:
    def student(name: str, truncated: int) -> MeasureRow:
        return student_row(name, None, 0.5, 0.4, 0.6, 20, 40, 0, answers=400, truncated=truncated)

    text = shown(Results((student("a", 3), student("b", 37), student("c", 0)), (), False), 100)
    assert "Cut off at max_tokens: 37 of 400 answers of b, 3 of 400 answers of a." in text
    assert "max_tokens" not in shown(Results((student("c", 0),), (), False), 100)
    many = tuple(student(f"student-{n}", 1) for n in range(40))
    assert "answers of student-7 and 32 more." in " ".join(shown(Results(many, (), False), 100).split())
