"""Tables in every medium that is text: what a row says, none of it cut."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from coeval.analysis.measures.measure_tree import Measured
from coeval.reports.content import Cell, ReportColumn, ReportTable, make_columns
from coeval.reports.writers.markup import as_latex, as_markdown
from coeval.reports.writers.terminal import terminal_lines

FIGURE = Measured(0.712, 0.61, 0.784, 20, 0)
SHOWN = "71.2 [61.0, 78.4]"


def lines(table: ReportTable, width: int) -> list[str]:
    return [line.plain for line in terminal_lines(table, width)]


def table(rows: list[tuple[Cell, ...]], *columns: ReportColumn, names: int = 1) -> ReportTable:
    return ReportTable("t", "Title", columns, tuple(rows), names=names)


POINTS, COUNT = make_columns("Score", kind="points"), make_columns("n", kind="count")


def test_a_row_is_one_line_where_there_is_room_and_headings_are_small() -> None:
    shown = lines(table([("ann", FIGURE, 1985)], *make_columns("Student"), *POINTS, *COUNT), 80)
    assert shown == ["Title", "student              score      n", f"ann      {SHOWN}  1,985"]


def test_a_column_of_nothing_is_left_out_and_a_missing_figure_is_a_dash() -> None:
    columns = (*make_columns("Student"), *POINTS, *COUNT, *make_columns("why"))
    shown = lines(table([("ann", FIGURE, None, ""), ("ben", None, None, "")], *columns), 80)
    assert shown[1].split() == ["student", "score"]
    assert shown[-1].split() == ["ben", "–"]


def test_what_is_spare_goes_first_where_it_is_narrow() -> None:
    columns = (*make_columns("Student"), *POINTS, ReportColumn("j", "judges", "gap", spare=True))
    rows: list[tuple[Cell, ...]] = [("a-student", FIGURE, "± 12.5")]
    assert "± 12.5" in lines(table(rows, *columns), 60)[-1]
    assert lines(table(rows, *columns), 30)[-1] == f"a-student  {SHOWN}"


def test_figures_stand_below_a_long_name() -> None:
    columns = (*make_columns("Student"), *POINTS, *COUNT)
    shown = lines(table([("a-student-of-a-very-long-name", FIGURE, 20)], *columns), 40)
    assert shown[-2:] == ["a-student-of-a-very-long-name", f"    {SHOWN}  20"]


def test_rows_of_one_group_stand_below_its_line() -> None:
    columns = (*make_columns("Task", "Student"), *POINTS)
    rows: list[tuple[Cell, ...]] = [
        ("a-task-of-a-long-name", "ann", FIGURE),
        ("a-task-of-a-long-name", "ben", FIGURE),
    ]
    assert lines(table(rows, *columns, names=2), 80)[-1].startswith("a-task-of-a-long-name  ben")
    shown = lines(table(rows, *columns, names=2), 40)
    assert shown[-3:] == ["a-task-of-a-long-name", f"  ann{' ' * 10}{SHOWN}", f"  ben{' ' * 10}{SHOWN}"]


@pytest.mark.parametrize("width", [30, 50, 80, 120])
def test_figures_that_a_line_cannot_hold_continue_in_further_tables(width: int) -> None:
    tasks = [ReportColumn(f"t{at}", f"a-task-with-a-name-{at}", "points") for at in range(9)]
    shown = lines(table([("ann", *[FIGURE] * 9)], *make_columns("Student"), *tasks), width)
    assert sum(line.count(SHOWN) for line in shown) == 9, "none is cut"
    assert max(map(cell_len, shown)) <= width


def test_words_of_the_last_column_are_folded_below_each_other() -> None:
    rows: list[tuple[Cell, ...]] = [("ann", "one two three four five six seven eight nine")]
    shown = lines(table(rows, *make_columns("Student", "why")), 40)
    assert shown[-2:] == ["ann      one two three four five six", "         seven eight nine"]


def test_markdown_and_latex_hold_the_same_and_obey_nothing() -> None:
    rows: list[tuple[Cell, ...]] = [("a|b*c", FIGURE, 20), ("d_e&f", None, 7)]
    whole = ReportTable(
        "t", "", (*make_columns("Student"), *POINTS, *COUNT), tuple(rows), "A & B", bold=frozenset({(0, 1)})
    )
    assert as_markdown(whole).split("\n") == [
        "| Student | Score | n |",
        "| --- | ---: | ---: |",
        r"| a\|b\*c | **71.2** [61.0, 78.4] | 20 |",
        r"| d\_e\&f | – | 7 |",
        "",
        r"A \& B",
    ]
    latex = as_latex(whole, "tab:t")
    assert r"a\textbar{}b{*}c & \textbf{71.2} [61.0, 78.4] & 20 \\" in latex
    assert r"d\_e\&f & -- & 7 \\" in latex
    assert r"\caption{A \& B}" in latex
