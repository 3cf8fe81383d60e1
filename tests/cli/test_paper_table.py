"""``coeval results --markdown`` and ``--latex``: the table of a paper."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from cli.invoked import Command
from cli.written_output import output, verdicts
from cli.written_training import drawn, write_training
from made_rows import student_row
from markdown_it import MarkdownIt
from pipeline.experiments import Lab, model, quiz, task

from coeval.analysis.comparison.comparison_report import Comparison
from coeval.core.html_table import MeasureRow
from coeval.reports.content import ReportTable
from coeval.reports.result_tables import Results, paper_table
from coeval.reports.writers.markup import as_latex, as_markdown, escape_latex

HOSTILE = ("a|b", "c_d&e%f", "\\input{etc}", "two\nlines", "**x** <img src=x>", "[h]*#~^$", "]")


class _Rows(HTMLParser):
    """The texts of a table's cells, what stands in bold, and all tags."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.bold: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        self.tags.append(f"/{tag}")

    def handle_data(self, data: str) -> None:
        open_cell = max(self.tags.count("td") + self.tags.count("th"), 0)
        if open_cell > self.tags.count("/td") + self.tags.count("/th"):
            self.rows[-1][-1] += data
        if self.tags.count("strong") > self.tags.count("/strong"):
            self.bold.append(data)


def read_markdown(text: str) -> _Rows:
    found = _Rows()
    found.feed(MarkdownIt("commonmark").enable("table").render(text))
    return found


def read_latex(text: str) -> list[list[str]]:
    """The cells between the rules of a table; every group and environment is closed."""
    bare = re.sub(r"\\[\\&%$#_{}]", "", text)
    depth = 0
    for sign in bare:
        depth += {"{": 1, "}": -1}.get(sign, 0)
        assert depth >= 0
    assert depth == 0
    assert re.findall(r"\\begin\{(\w+)\}", text) == re.findall(r"\\end\{(\w+)\}", text)[::-1]
    assert not re.search(r"[#~^]|(?<!\\)[$_&%]", re.sub(r"\$[^$]*\$| & |^% .*", "", bare, flags=re.MULTILINE))
    used = {*re.findall(r"\\([a-zA-Z]+)", text)} - {
        "begin",
        "end",
        "textbackslash",
        "textless",
        "textgreater",
    }
    assert used <= {
        "usepackage", "centering", "toprule", "midrule", "bottomrule", "caption", "label", "textbf",
        "textbar", "textasciitilde", "textasciicircum", "times",
    }  # fmt: skip
    body = text[text.index(r"\midrule") + len(r"\midrule") : text.index(r"\bottomrule")]
    return [re.split(r"(?<!\\) & ", row.strip()) for row in body.split(" \\\\\n") if row.strip()]


def score(student: str, task: str | None, mean: float) -> MeasureRow:
    return student_row(student, task, mean, mean - 0.05, mean + 0.05, 40, 40, 0)


def compared(a: str, b: str, difference: float, p: float) -> Comparison:
    ends = (difference - 0.1, difference + 0.1)
    return Comparison(
        a, b, None, "score", "overall", "share", 0.5, 0.5 + difference, 0, (0.0, 1.0), "paired t", 1.0,
        difference=difference, ci95=ends, ci95_adjusted=ends, p=p, p_adjusted=p, n=40,
        minimum_detectable=0.1,
    )  # fmt: skip


def table(p: float, names: tuple[str, ...] = ("best", "other", "last")) -> ReportTable:
    """Scores in two tasks and overall; ``p`` of all comparisons."""
    means = [0.9 - 0.1 * at for at in range(len(names))]
    scores = [
        score(name, where, mean)
        for where in (None, "t_1", "t|2")
        for name, mean in zip(names, means, strict=True)
    ]
    pairs = [
        compared(a, b, means[names.index(b)] - means[names.index(a)], p)
        for at, a in enumerate(names)
        for b in names[at + 1 :]
    ]
    return paper_table(Results(tuple(scores), (), simulated=False), pairs)


def test_the_best_is_bold_where_it_is_significantly_ahead_of_all() -> None:
    markdown, latex = as_markdown(table(0.01)), as_latex(table(0.01), "tab:scores")
    assert read_markdown(markdown).bold == ["90.0"], "overall; tasks were not compared"
    assert markdown.count("**") == 2
    assert read_latex(latex)[0][:2] == ["best", r"\textbf{90.0} [85.0, 95.0]"]
    assert latex.count(r"\textbf") == 1
    assert "Bold: significantly" in markdown
    assert "Bold: significantly" in latex


def test_nothing_is_bold_where_nothing_is_significant() -> None:
    for text in (as_markdown(table(0.2)), as_latex(table(0.2), "tab:scores")):
        assert "**" not in text
        assert r"\textbf" not in text
        assert "Bold" not in text


def test_one_that_is_tied_with_the_best_keeps_it_from_bold() -> None:
    results = Results(
        tuple(score(name, None, mean) for name, mean in (("a", 0.9), ("b", 0.8), ("c", 0.3))), (), False
    )
    tied = paper_table(results, [compared("a", "b", -0.1, 0.2), compared("a", "c", -0.6, 0.001)])
    assert not tied.bold


def test_hostile_names_are_text_in_both() -> None:
    found = table(0.01, HOSTILE)
    rows = read_markdown(as_markdown(found))
    assert {tag.lstrip("/") for tag in rows.tags} <= {
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "strong",
        "p",
    }
    assert rows.rows[0] == ["student", "overall", "t_1", "t|2"]
    assert [row[0] for row in rows.rows[1:]] == [name.replace("\n", "\\n") for name in HOSTILE]
    assert all(len(row) == 4 for row in rows.rows)
    cells = read_latex(as_latex(found, "tab:scores"))
    assert len(cells) == len(HOSTILE)
    assert all(len(row) == 4 for row in cells)
    assert cells[1][0] == r"c\_d\&e\%f"
    assert cells[2][0] == r"\textbackslash{}input\{etc\}"
    assert cells[3][0] == r"two\textbackslash{}nlines"
    assert escape_latex("gpt-4o--mini") == "gpt-4o{-}{-}mini"


@pytest.mark.process
def test_a_run_of_students_by_tasks_and_labels(here: Path, coeval: Command) -> None:
    lab = Lab(here, [model("ann"), model("x_y", skill=0.3)], [task(total=4), quiz()])
    assert lab.run().exit_code == 0
    ended = coeval("results", lab.path, "--markdown")
    assert ended.code == 0, ended.err
    rows = read_markdown(ended.out).rows
    assert rows[0][0] == "student"
    assert {row[0] for row in rows[1:]} == {"ann", "x_y"}
    latex = read_latex(coeval("results", lab.path, "--latex").out)
    assert [len(row) for row in latex] == [len(rows[0])] * 2
    for more in (["--json"], ["--csv"], ["--latex"], ["--by", "judge"]):
        refused = coeval("results", lab.path, "--markdown", *more)
        assert (refused.code, refused.out) == (1, "")


@pytest.mark.process
def test_outputs_and_sweeps_have_their_tables(here: Path, coeval: Command) -> None:
    one = output(here / "one", "org/base_model", verdicts([1, 0] * 20))
    rows = read_markdown(coeval("results", one, "--markdown").out).rows
    assert rows[0] == ["model", "ifeval"]
    assert [rows[1][0], rows[1][1][:4]] == ["base_model", "50.0"]
    rising = {100: 0.1, 200: 0.5, 300: 0.9}
    sweep = write_training(here / "sweep", drawn(rising, 120, 1))
    found = read_markdown(coeval("results", sweep, "--markdown").out)
    assert [row[0] for row in found.rows] == ["step", "100", "200", "300"]
    assert found.bold == [found.rows[3][1].partition(" ")[0]]
    assert [row[0] for row in read_latex(coeval("results", sweep, "--latex").out)] == ["100", "200", "300"]
