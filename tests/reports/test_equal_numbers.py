"""Page, workbook, terminal and ``measures.json`` of one run, or of an output of ``eval-framework`` and its
``summary.json``: the same numbers, as each shows them."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple, Self

import openpyxl
import pytest
from aiohttp.test_utils import TestServer
from cli.eval_process import finish, start, write_prompts
from cli.invoked import Command
from openpyxl.workbook import Workbook
from pipeline.experiments import Lab, model, quiz, task
from reports.workbook_tables import summary_lines, table_lines

from coeval.simulation.server import make_app
from coeval.simulation.simulated_model import SimulatedModel
from coeval.simulation.traits import parse_model_option

pytestmark = pytest.mark.process


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
    return [float(number) for number in re.findall(r"-?\d+\.\d+", text.replace("−", "-"))]


class Shown(NamedTuple):
    """What a folder's reports show."""

    page: Tables
    book: Workbook
    terminal: str
    measures: dict[str, Any]

    @classmethod
    def of(cls, folder: Path, out: Path, coeval: Command) -> Self:
        for words in (("complete-report",), ("all", "--format", "html")):
            ended = coeval("analyze", *words, "--run", folder, "--out", out)
            assert ended.code == 0, ended.err
        page = Tables()
        page.feed((out / "report.html").read_text())
        return cls(
            page,
            openpyxl.load_workbook(out / "complete-report.xlsx"),
            coeval("analyze", "--run", folder).out,
            json.loads((out / "measures.json").read_text()),
        )

    def compared(
        self,
        table: str,
        sheet: str,
        names: int,
        heading: str,
        expected: dict[Any, list[float]],
        units: tuple[float, float] = (100, 100),
    ) -> None:
        """A measure of a table: of the page, of the workbook; ``names`` columns tell what a row is of, and
        ``units`` by how much page and workbook multiply it: scores are points there."""
        on, into = units
        head, *rows = self.page.rows[table]
        place = head.index(heading)
        on_page = {tuple(row[:names]): shown(row[place]) for row in rows}
        first, lines = table_lines(self.book, sheet)
        at = [first.index(name) for name in (heading, f"{heading}, from", f"{heading}, to")]
        in_book = {tuple(line[:names]): [line[each] for each in at] for line in lines}
        assert on_page.keys() == in_book.keys() == expected.keys() != set()
        for key, numbers in expected.items():
            assert on_page[key] == pytest.approx([on * one for one in numbers], abs=0.051), (table, key)
            scaled = pytest.approx([into * one for one in numbers], rel=1e-15, abs=1e-300)
            assert in_book[key] == scaled, (sheet, key)

    def of_line(self, pattern: str) -> list[float]:
        """The first measure of the terminal's line that begins so."""
        return shown(next(line for line in self.terminal.splitlines() if re.match(pattern, line)))[:3]

    def reported(self, finding: str) -> None:
        """A finding is in the terminal, and in the workbook's summary, unless it is the first: the summary
        opens with the page's own sentence of who leads."""
        assert finding in summary_lines(self.book) or finding == self.measures["findings"][0]
        assert finding in " ".join(self.terminal.split())


def test_one_run_has_the_same_numbers_everywhere(tmp_path: Path, coeval: Command) -> None:
    models = [model("ann"), model("ben", skill=0.5, severity=0.2), model("cem", "student", skill=0.2)]
    lab = Lab(tmp_path, models, [task(total=6), quiz(total=4)])
    assert lab.run().exit_code == 0
    found = Shown.of(lab.path, tmp_path / "report", coeval)
    measures = found.measures
    students = {(name,): pair(each, "score") for name, each in measures["students"].items()}
    found.compared("students", "Students", 1, "Score", students)
    agreement = {tuple(who.split("|")): pair(each, "kappa") for who, each in measures["agreement"].items()}
    found.compared("agreement", "Judges pairwise", 2, "κ", agreement, (1, 1))
    teachers = {(name,): pair(each, "v1") for name, each in measures["teachers"].items()}
    found.compared("teachers", "Teachers by item discrimination", 1, "Variance", teachers, (1, 1))
    for (name,), numbers in students.items():
        assert found.of_line(rf"{name} +\d") == in_points(numbers)
    for finding in measures["findings"]:
        found.reported(finding)


async def test_an_output_has_the_same_numbers_everywhere(tmp_path: Path, coeval: Command) -> None:
    """Metrics of a task answered once, and twice; how far two judges agree."""
    lab = Lab(tmp_path, [model("ann", skill=0.5)], [task(total=12)])
    await lab.arun()
    requested = write_prompts(
        tmp_path / "prompts.jsonl", "punctuation:no_comma", [f"prompt {n}" for n in range(9)]
    )
    models = [
        SimulatedModel(parse_model_option(text, {}))
        for text in ("base:skill=0.5", "jury", "hard:severity=0.3")
    ]
    async with TestServer(make_app(models)) as server:
        how = [
            "--model",
            "base",
            "--base-url",
            f"http://127.0.0.1:{server.port}/v1",
            "--ifeval-input",
            requested,
        ]
        for words in (
            ["--tasks", f"ifeval,coeval:{lab.path}", "--judge-model", "hard", "--output-dir", "once"],
            ["--tasks", f"ifeval,coeval:{lab.path}", "--judge-model", "jury", "--output-dir", "once"],
            ["--tasks", "ifeval", "--num-runs", 2, "--output-dir", "twice"],
        ):
            ended = await finish(await start(tmp_path, *how, *words))
            assert ended.code == 0, ended

    found = Shown.of(tmp_path / "once", tmp_path / "report", coeval)
    metrics = {}
    for folder in ("ifeval", "coeval-exp"):
        for name, numbers in summary_of(tmp_path / "once" / folder).items():
            metrics[f"{folder} · {name}",] = numbers
            assert metric(found.measures, folder, name) == numbers
            assert found.of_line(rf"base +{folder} +{name} +[−\d]") == in_points(numbers)
    found.compared("metrics", "Metrics", 1, "Points", metrics)
    agreement = {
        tuple(who.split("|")): pair(each, "wpa") for who, each in found.measures["agreement"].items()
    }
    found.compared("agreement", "Judges pairwise", 2, "Weighted", agreement, (100, 1))
    assert found.measures["findings"]
    for finding in found.measures["findings"]:
        found.reported(finding)

    twice = Shown.of(tmp_path / "twice", tmp_path / "report of both", coeval)
    names = twice.measures["samples"]["base"]["ifeval"]
    samples = {("base", "ifeval", name): metric(twice.measures, "ifeval", name) for name in names}
    twice.compared("samples", "Over all samples", 3, "Points", samples)
    for (_, _, name), numbers in samples.items():
        assert twice.of_line(rf"base +ifeval +{name} +\d") == in_points(numbers)
    each = {(f"ifeval · {name}",): numbers for (_, _, name), numbers in samples.items()}
    twice.compared("metrics", "Metrics", 1, "Points", each)


def in_points(numbers: list[float]) -> Any:
    """As a line of the terminal has them."""
    return pytest.approx([100 * one for one in numbers], abs=0.051)


def summary_of(folder: Path) -> dict[str, list[float]]:
    """The metrics of a ``summary.json`` with the ends of their intervals."""
    metrics = json.loads((folder / "summary.json").read_text())["metrics"]
    return {name: [each["value"], *each["ci95"]] for name, each in metrics.items()}


def metric(measures: dict[str, Any], task: str, name: str) -> list[float]:
    """A metric of ``measures.json`` likewise."""
    of_model = measures["metrics"]["base"]
    return [of_model[task][name], *of_model["ci95"][task][name]]


def pair(measured: dict[str, Any], name: str) -> list[float]:
    """A measure of ``measures.json`` with the ends of its interval."""
    return [measured[name], *measured["ci95"][name]]
