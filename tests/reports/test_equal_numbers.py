"""Page, workbook, terminal and ``measures.json`` of one run: the same numbers, as each shows them."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import openpyxl
import pytest
from cli.invoked import Command
from pipeline.experiments import Lab, model, quiz, task

pytestmark = pytest.mark.slow


class Tables(HTMLParser):
    """The texts of a page's tables, by name."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[str, list[list[str]]] = {}
        self._table: list[list[str]] | None = None
        self._inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        name = dict(attrs).get("data-table")
        if tag == "table" and name:
            self._table = self.rows.setdefault(name, [])
        elif tag == "tr" and self._table is not None:
            self._table.append([])
        elif tag in ("td", "th") and self._table is not None:
            self._table[-1].append("")
            self._inside = True

    def handle_endtag(self, tag: str) -> None:
        self._inside = self._inside and tag not in ("td", "th")
        if tag == "table":
            self._table = None

    def handle_data(self, data: str) -> None:
        if self._inside and self._table:
            self._table[-1][-1] += data


def shown(text: str) -> list[float]:
    """The value and the ends of its interval."""
    return [float(number) for number in re.findall(r"-?\d*\.\d+", text.replace("−", "-"))]


def test_one_run_has_the_same_numbers_everywhere(tmp_path: Path, coeval: Command) -> None:
    models = [model("ann"), model("ben", skill=0.5, severity=0.2), model("cem", "student", skill=0.2)]
    lab = Lab(tmp_path, models, [task(total=6), quiz(total=4)])
    assert lab.run().exit_code == 0
    out = tmp_path / "report"
    for words in (("complete-report",), ("all", "--format", "html")):
        assert coeval("analyze", *words, "--run", lab.path, "--out", out).code == 0
    measures = json.loads((out / "measures.json").read_text())
    terminal = coeval("analyze", "--run", lab.path).out
    page = Tables()
    page.feed((out / "report.html").read_text())
    book = openpyxl.load_workbook(out / "complete-report.xlsx")

    def compared(table: str, sheet: str, names: int, heading: str, expected: dict[Any, list[float]]) -> None:
        """A measure of a table: of the page, of the workbook; ``names`` columns tell what a row is of."""
        head, *rows = page.rows[table]
        place = head.index(heading)
        on_page = {tuple(row[:names]): shown(row[place]) for row in rows}
        first, *lines = book[sheet].iter_rows(values_only=True)
        at = [first.index(name) for name in (heading, f"{heading}, from", f"{heading}, to")]
        in_book = {tuple(line[:names]): [line[each] for each in at] for line in lines}
        assert on_page.keys() == in_book.keys() == expected.keys() != set()
        for key, numbers in expected.items():
            assert on_page[key] == pytest.approx(numbers, abs=0.0051), (table, key)
            assert in_book[key] == pytest.approx(numbers, rel=1e-15, abs=1e-300), (sheet, key)

    students = {
        (name,): [found["headline"], *found["ci95"]["headline"]]
        for name, found in measures["students"].items()
    }
    compared("students", "Students", 1, "Score", students)
    agreement = {
        tuple(pair.split("|")): [found["kappa"], *found["ci95"]["kappa"]]
        for pair, found in measures["agreement"].items()
    }
    compared("agreement", "Every two judges", 2, "κ", agreement)
    teachers = {(name,): [found["v1"], *found["ci95"]["v1"]] for name, found in measures["teachers"].items()}
    compared("teachers", "Teachers", 1, "Variance", teachers)

    for (name,), numbers in students.items():
        line = next(line for line in terminal.splitlines() if re.match(rf"{name} +\d", line))
        assert shown(line)[:3] == pytest.approx(numbers, abs=0.0051)
    summary = [cell for (cell,) in book["Summary"].iter_rows(values_only=True) if cell]
    for finding in measures["findings"]:
        assert finding in summary
        assert finding in " ".join(terminal.split())
