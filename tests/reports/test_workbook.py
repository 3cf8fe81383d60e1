"""The workbook of a run, read back: its numbers are those of the measures, its texts are texts."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import openpyxl
import pytest
from openpyxl.workbook import Workbook
from pipeline.experiments import Lab, model, quiz, task

import coeval as api
from coeval.analysis.measures.measure_tree import Measured
from coeval.analysis.measures.robust_set import RobustOptions
from coeval.cli.commands.analyze_command import print_or_write_analysis
from coeval.core.figures import dollars
from coeval.reports.content import Cell, Report, ReportColumn, ReportSection, ReportTable
from coeval.reports.report_workbook import write_workbook
from coeval.reports.writers.sheet import LONGEST, clean_sheet_text

EVIL = '=HYPERLINK("http://evil","x")\x00\x1b[31m\u202e</t>]]>&<c><f>1+1</f>'
LONG = "long \U0001f600" * 200_000


def same(numbers: Any) -> Any:
    """As a workbook holds them: with 16 digits."""
    return None if numbers is None else pytest.approx(numbers, rel=1e-15, abs=0)


def same_points(*scores: float | None) -> Any:
    """Likewise, of scores that a workbook shows in points."""
    return [None if score is None else same(100 * score) for score in scores]


def write(folder: Path, name: str, out: Path) -> None:
    print_or_write_analysis(folder, name, "excel", out, options=RobustOptions())


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    models = [model("ann"), model("ben", skill=0.5, failure_rate=0.3), model("cem", "student", skill=0.2)]
    settings = {"generation_retries": 0, "probe_on_fail": "warn"}
    made = Lab(tmp_path_factory.mktemp("workbook"), models, [task(total=6), quiz(total=4)], settings)
    made.run()
    good = [key for key, record in made.records("response_collection").items() if "status" not in record]
    made.edit("response_collection", good[0], response=EVIL)
    made.edit("response_collection", good[1], response=LONG)
    made.edit(
        "data_generation",
        next(iter(made.records("data_generation"))),
        prompt="-1+1|cmd",
        reference_response="@x",
        passage_source="=guide.md#120",
    )
    return made


@pytest.fixture(scope="module")
def written(lab: Lab) -> Path:
    out = lab.folder / "report"
    write(lab.path, "complete-report", out)
    return out / "complete-report.xlsx"


@pytest.fixture(scope="module")
def book(written: Path) -> Workbook:
    return openpyxl.load_workbook(written)


@pytest.fixture(scope="module")
def measures(lab: Lab) -> dict[str, Any]:
    return api.open_run(lab.path).measures()


@pytest.mark.process
def test_each_table_has_a_sheet_with_a_frozen_head_and_filters(book: Workbook) -> None:
    assert book.sheetnames[0] == "Summary"
    assert {"Students", "Judges"} <= set(book.sheetnames)
    for sheet in book.worksheets[1:]:
        assert sheet.freeze_panes == "B2", sheet.title
        assert sheet.auto_filter.ref.startswith("A1:"), sheet.title
        assert all(8 <= width.width <= 62 for width in sheet.column_dimensions.values())
    linked = {
        str(cell.hyperlink.location).split("!")[0].strip("'").replace("''", "'")
        for cell in book["Summary"]["A"]
        if cell.hyperlink
    }
    assert linked == set(book.sheetnames[1:])


def test_colours_of_numbers_begin_at_zero(tmp_path: Path) -> None:
    columns = (
        ReportColumn("name", "Name"),
        ReportColumn("a", "A", "points"),
        ReportColumn("b", "B", "share"),
    )
    rows = (("x", Measured(0.296, 0.2, 0.4, 9, 0), -0.3), ("y", Measured(0.5, 0.4, 0.6, 9, 0), 0.2))
    section = ReportSection("s", "What?", (), (), (ReportTable("t", "T", columns, rows),))
    write_workbook(tmp_path / "book.xlsx", Report("experiment", "r", (), (), (section,)))
    sheet = openpyxl.load_workbook(tmp_path / "book.xlsx")["T"]
    scales = [rule.colorScale for found in sheet.conditional_formatting for rule in found.rules]
    ends = [[float(end.val) for end in scale.cfvo] for scale in scales]
    assert ends == [[-50, 0, 50], [-0.3, 0, 0.3]]
    assert all([end.type for end in scale.cfvo] == ["num"] * 3 for scale in scales)


def test_amounts_have_the_decimals_that_pages_give_them(tmp_path: Path) -> None:
    columns = (ReportColumn("name", "Name"), ReportColumn("cost", "Cost", "usd"))
    amounts = (0, 0.00002, 0.0123, 0.0054, 0.1, 1234.5)
    table = ReportTable("t", "T", columns, tuple((dollars(usd), usd) for usd in amounts))
    report = Report("experiment", "r", (), (), (ReportSection("s", "What?", (), (), (table,)),))
    write_workbook(tmp_path / "book.xlsx", report)
    for text, cell in openpyxl.load_workbook(tmp_path / "book.xlsx")["T"].iter_rows(min_row=2):
        literal, _, decimals = cell.number_format.removeprefix('"').partition('"#,##0.')
        written = f"{literal}{cell.value:,.{len(decimals)}f}" if decimals else literal.rstrip('"')
        assert written == text.value


def test_what_models_said_is_text_and_nothing_else(book: Workbook, written: Path) -> None:
    for sheet in book.worksheets:
        for line in sheet.iter_rows():
            assert all(cell.data_type != "f" for cell in line)
    with zipfile.ZipFile(written) as archive:
        for name in archive.namelist():
            if name.startswith("xl/worksheets/sheet"):
                assert b"<f>" not in archive.read(name)
    texts = [cell for sheet in book.worksheets for line in sheet.iter_rows() for cell in line]
    evil = [cell for cell in texts if str(cell.value).startswith("=HYPERLINK")]
    assert {(cell.data_type, cell.quotePrefix) for cell in evil} <= {("s", True)}


@pytest.mark.process
def test_one_section_alone_is_a_workbook_too(lab: Lab, tmp_path: Path) -> None:
    write(lab.path, "judges", tmp_path)
    book = openpyxl.load_workbook(tmp_path / "judges.xlsx")
    assert book.sheetnames[:2] == ["Summary", "Judges"]
    assert not {"Students", "Items", "Failures"} & set(book.sheetnames)


ODD_CELLS: tuple[Cell, ...] = (
    "+1",
    " @SUM(A1)",
    "a\r\nb\tc",
    "\ud800lone",
    "_x0041_",
    float("inf"),
    float("nan"),
    Measured(None, None, None, 0, 3),
    Measured(0.5, 0.25, 0.75, 4, 0),
    None,
    True,
    "",
    7,
)
READ_BACK = (
    "+1",
    " @SUM(A1)",
    "a\nb    c",
    "\\ud800lone",
    "_x0041_",
    None,
    None,
    None,
    50,
    None,
    "yes",
    None,
    700,
)


def test_odd_cells_and_names_make_a_book_that_can_be_read(tmp_path: Path) -> None:
    columns = (ReportColumn("name", "=Name"), ReportColumn("value", "Value", "points", "What it means"))
    table = ReportTable(
        "t", "A/B: [x]?*'", columns, tuple((str(n), cell) for n, cell in enumerate(ODD_CELLS))
    )
    again = ReportTable("u", "a b  x", columns, ())
    empty = ReportTable("v", "History" * 9, columns, ())
    section = ReportSection("s", "=Q?", (), (), (table, again, empty))
    write_workbook(tmp_path / "odd.xlsx", Report("comparison", "'T\x07", ("=f",), (), (section,)))
    book = openpyxl.load_workbook(tmp_path / "odd.xlsx")
    sheet = book.worksheets[1]
    assert [cell.value for cell in sheet["B"][1 : len(READ_BACK) + 1]] == list(READ_BACK)
    assert [cell.value for cell in sheet[10]] == ["8", 50, 25, 75, 4]
    assert all(len(name) <= 31 for name in book.sheetnames)
    assert book["Summary"]["A1"].value == "'T\\x07"


def test_no_text_is_longer_than_a_cell_takes() -> None:
    for text in ("x" * LONGEST, "x" * (LONGEST + 1), "\U0001f600" * 20_000, "\U0001f600" * 16_383):
        units = len(clean_sheet_text(text).encode("utf-16-le")) // 2
        assert units <= LONGEST
        assert ("[cut: " in clean_sheet_text(text)) == (len(text.encode("utf-16-le")) // 2 > LONGEST)
