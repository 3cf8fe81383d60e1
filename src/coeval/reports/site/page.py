"""A report as one self-contained page: text, tables, charts, data and scripts in a single file.

It needs no network, and its content security policy allows only our scripts, named by their hashes. All
texts of a report are escaped by the template, or lie in data blocks.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import logging
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from math import ceil, floor
from typing import Any, NamedTuple
from urllib.parse import urlencode

import jinja2
import msgspec
import vl_convert
from markupsafe import Markup

from coeval import __version__
from coeval.analysis.measures.measure_tree import Measured
from coeval.core.figures import FORMATS, NEARLY_SYMMETRIC
from coeval.core.plain import escape_line
from coeval.reports.charts.chart_spec import resolve_short_names
from coeval.reports.charts.themes import DARK, LIGHT, page_colours_css, theme_config
from coeval.reports.content import Cell, Report, ReportColumn, ReportTable, Sentence, format_cell, format_rows
from coeval.reports.experiment.leading_section import FRONT
from coeval.reports.items.item_selection import ItemSelection
from coeval.store.jsonl import write_bytes_atomic
from coeval.store.output_folder import cache_folder

# --- Data within a page: gzip, then base64

# zlib's own default: 9 takes much longer and saves little.
_LEVEL = 6


class DataBlock(NamedTuple):
    """Named data in a page; ``text`` is base64 of gzip, so that no data can end its element."""

    name: str
    text: str


def json_block(name: str, value: Any) -> DataBlock:
    return compressed_block(name, compress_data(msgspec.json.encode(value)))


def compress_data(data: bytes) -> bytes:
    """Compress data for a page, to the same bytes each time."""
    return gzip.compress(data, _LEVEL, mtime=0)


def compressed_block(name: str, compressed: bytes) -> DataBlock:
    """Make a block of data that is gzipped already."""
    return DataBlock(name, base64.b64encode(compressed).decode())


# --- Vega scripts
#
# Putting them together takes seconds, so what came of it is kept in the user's cache folder, by vl-convert's
# version; a folder that cannot be written costs nothing but that time.

log = logging.getLogger("coeval")

VEGA_SCRIPT = "window.vegaEmbed = vegaEmbed;"


@cache
def load_vega_gzip_and_text() -> tuple[bytes, str]:
    """Load the script that gives the page ``vegaEmbed``, gzipped and as text; it is built once and cached."""
    path = cache_folder() / "pages" / f"vega-{version('vl-convert-python')}.js.gz"
    try:
        kept = path.read_bytes()
        return kept, gzip.decompress(kept).decode()
    except (OSError, EOFError, gzip.BadGzipFile):
        text = vl_convert.javascript_bundle(VEGA_SCRIPT)
    kept = gzip.compress(text.encode(), 9, mtime=0)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes_atomic(path, kept)
    except OSError as error:
        log.debug("the script of charts is not kept: %s", error)
    return kept, text


_SITE, _ITEMS = "coeval.reports.site", "coeval.reports.items"
_SCRIPTS = (
    (_SITE, "cells.js"),
    (_SITE, "edges.js"),
    (_ITEMS, "answers.js"),
    (_ITEMS, "matrix.js"),
    (_ITEMS, "items.js"),
    (_ITEMS, "item_sources.js"),
    (_SITE, "blocks.js"),
    (_SITE, "address.js"),
    (_SITE, "copies.js"),
    (_SITE, "tables.js"),
    (_SITE, "chart_keys.js"),
    (_SITE, "pictures.js"),
    (_SITE, "choices.js"),
    (_SITE, "page.js"),
)
_STYLES = ((_SITE, "page.css"), (_ITEMS, "items.css"))
# Where more data follows: no text of a report can hold it unescaped.
_DATA_PLACEHOLDER = Markup("<!-- more -->")
# Sections whose figures are those of the whole run, whatever is chosen.
_OF_WHOLE_RUN = frozenset({"pairs", "judges", "benchmark", "by-people", "cost"})
# Of a table that stand in the page's text; the others are shown when somebody asks for them.
_MOST_ROWS = 60
_NUMBER = re.compile(r"(?<![\w./:-])[±$−-]?\d[\d,.]*+(?:\s\[[^\]]*\])?(?![\w/-])")
_LETTER = re.compile(r"[^\W\d_]")
# Characters: longer texts in cells are prompts and notes, which no sentence quotes.
_LONGEST_NAME = 200


class PageChoice(NamedTuple):
    """A choice of scores that a reader may open."""

    dimension: str
    name: str

    @property
    def query(self) -> str:
        """Return the choice as the query of an address."""
        return urlencode({self.dimension: self.name})


class PageFrame:
    """A report's page without the data that readers open on demand; `with_data` adds as much as there is room
    for.

    ``choices``: the choices of scores that the page offers, and ``left_out``, how many more have no room;
    ``served_at``: the server's address for items and figures of choices, empty if the page holds them.
    """

    def __init__(
        self,
        report: Report,
        *,
        choices: Sequence[PageChoice] = (),
        left_out: int = 0,
        has_items: bool = False,
        served_at: str = "",
    ) -> None:
        """Render the page, with a policy that allows its own scripts and styles."""
        script, style = _join_package_files(_SCRIPTS), _join_package_files(_STYLES)
        vega, vega_text = load_vega_gzip_and_text()
        policy = "; ".join(
            (
                "default-src 'none'",
                f"script-src {hash_script(script)} {hash_script(vega_text)}",
                f"style-src {hash_script(style)}",
                "img-src data: blob:",
                *(["connect-src 'self'"] if served_at else []),
                "base-uri 'none'",
                "form-action 'none'",
            )
        )
        page = load_template("page.html").render(
            report=report,
            preview=_preview_text(report),
            shown=report.shown_names,
            names=_json_markup({escape_line(name): label for name, label in report.shown_names.key.items()}),
            policy=policy,
            style=Markup(style),  # noqa: S704  our own file
            script=Markup(script),  # noqa: S704  the same
            blocks=(_report_block(report), compressed_block("vega", vega)),
            choices=choices,
            left_out=left_out,
            students=[row[0] for row in report.front.rows] if report.front is not None else [],
            whole=_OF_WHOLE_RUN,
            version=__version__,
            has_items=has_items or bool(served_at),
            served_at=served_at,
            more=_DATA_PLACEHOLDER,
        )
        self._before, _, self._after = (
            text.encode("utf-8", "replace") for text in page.partition(_DATA_PLACEHOLDER)
        )

    def __len__(self) -> int:
        return len(self._before) + len(self._after)

    def with_data(self, blocks: Iterable[DataBlock]) -> bytes:
        data = load_template("blocks.html").render(blocks=blocks)
        return self._before + data.encode() + self._after


def make_page(report: Report, blocks: Sequence[DataBlock] = (), items: ItemSelection | None = None) -> bytes:
    """Write a page with ``blocks`` of data for its scripts, and the ``items`` that can be read in it."""
    frame = PageFrame(report, has_items=items is not None)
    return frame.with_data((*blocks, *(items_and_lost_blocks(items) if items is not None else ())))


def items_and_lost_blocks(items: ItemSelection) -> tuple[DataBlock, DataBlock]:
    """Make the block of items, and one of who lost to whom, so that a link need not unpack the items."""
    whole = json_block("items", msgspec.structs.replace(items, lost=[]))
    return whole, json_block("lost", items.lost)


# Characters of a description that link previews show.
_PREVIEW = 200


def _preview_text(report: Report) -> str:
    """Return the text of link previews: the answer, or else the facts."""
    answer = report.shown_names.text(report.lead[0].text) if report.lead else " · ".join(report.facts[:2])
    return answer if len(answer) <= _PREVIEW else f"{answer[:_PREVIEW].rpartition(' ')[0]} …"


def _json_markup(value: Any) -> Markup:
    """Encode JSON for an element, which no text in it can end."""
    return Markup(msgspec.json.encode(value).decode().replace("<", "\\u003c"))  # noqa: S704


def _report_block(report: Report) -> DataBlock:
    """Make the block of data for charts and tables."""
    tables = [table for section in report.sections for table in section.tables]
    tables += [report.front] if report.front is not None else []
    return json_block(
        "report",
        {
            "title": report.title,
            "alone": report.shown_names.alone,
            "students": [row[0] for table in tables for row in table.rows if table.name == "students"],
            "tables": {
                table.name: {
                    "title": table.title,
                    "columns": [
                        {"name": column.name, "title": column.title, "kind": column.kind}
                        for column in table.columns
                    ],
                    "rows": table.to_flat_dicts(),
                    "links": {str(index): link for index, link in table.links.items()},
                    "chosen": table.chosen,
                }
                for table in tables
            },
            "pictures": {
                picture.name: {
                    "table": picture.table,
                    "spec": resolve_short_names(picture.spec, report.labels),
                }
                for section in report.sections
                for picture in section.pictures
            },
            "themes": {"light": theme_config(LIGHT), "dark": theme_config(DARK)},
        },
    )


# --- Figures of a choice of scores
#
# Rows of tables are as short as they can be written without changing what people read.

# The tables that follow a choice: the script shows those that its page has.
_CHOICE_TABLES = (
    *(FRONT, "students", "differences", "standings", "quality-cost"),
    *("parts", "values", "checks", "by-judge", "by-teacher", "levels"),
)
# Decimals that a share is written with, in the order in which they are tried: four are a tenth of the last
# digit that people read.
_DECIMALS = (4, 6, 9)


def encode_choice_json(report: Report, students: Sequence[str]) -> bytes:
    """Return JSON of a choice's report: ``lead`` as HTML; by name of ``tables`` the link of each row, and its
    cells in the order of their columns (a measure: value, ends and n). ``students``: in the order of their
    colours."""
    tables = {table.name: table for section in report.sections for table in section.tables}
    tables |= {} if report.front is None else {FRONT: report.front}
    return msgspec.json.encode(
        {
            "lead": _render_lead_and_forest(report, students),
            "status": report.shown_names.text(escape_line(report.facts[0])),
            "tables": {name: _rows_and_links_json(tables.get(name)) for name in _CHOICE_TABLES},
        }
    )


def _rows_and_links_json(table: ReportTable | None) -> dict[str, Any]:
    if table is None:
        return {"rows": [], "links": []}
    rows = [
        [_choice_cell(cell, column) for cell, column in zip(row, table.columns, strict=True)]
        for row in table.rows
    ]
    return {"rows": rows, "links": [table.links.get(at) for at in range(len(rows))] if table.links else []}


def _choice_cell(cell: Cell, column: ReportColumn) -> Any:
    if isinstance(cell, Measured):
        return list(_round_measure(cell, column)[:4])
    if isinstance(cell, float):
        return _round_measure(Measured(cell, None, None, None, None), column).value
    return escape_line(cell) if isinstance(cell, str) else cell


def _round_measure(cell: Measured, column: ReportColumn) -> Measured:
    """Round a measure as far as its text stays the same."""
    text = format_cell(cell, column.kind)
    for decimals in _DECIMALS:
        value, low, high = (None if end is None else round(end, decimals) for end in cell[:3])
        rounded = Measured(value, low, high, cell.n, cell.missing)
        if format_cell(rounded, column.kind) == text:
            return rounded
    return cell


def _render_lead_and_forest(report: Report, students: Sequence[str]) -> str:
    """Render the first screen's sentences and forest; ``students``: in the order of their colours."""
    values = {"report": report, "shown": report.shown_names, "students": students}
    return str(load_template("first_screen.html").make_module(values).lead())  # type: ignore[attr-defined]


# --- Scripts, styles and templates


def read_asset(package: str, name: str) -> str:
    """Read a script or style sheet, with what it takes from Python: colours, and how figures are written."""
    text = (files(package) / name).read_text(encoding="utf-8")
    if name == "page.css":
        return page_colours_css() + text
    if name == "cells.js":
        kinds = msgspec.json.encode({kind: style._asdict() for kind, style in FORMATS.items()}).decode()
        return f"const FIGURE_FORMATS = {kinds};\nconst NEARLY_SYMMETRIC = {NEARLY_SYMMETRIC};\n{text}"
    return text


@cache
def _join_package_files(names: tuple[tuple[str, str], ...]) -> str:
    """Join files of packages into one text that no parser of HTML ends early."""
    text = "\n".join(read_asset(package, name) for package, name in names)
    return f'"use strict";\n(() => {{\n{text}\n}})();' if names[0][1].endswith(".js") else text


def hash_script(text: str) -> str:
    """Hash a script or style as a content security policy names it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@cache
def load_template(name: str, folder: str = "site") -> jinja2.Template:
    """Load a template from a ``folder`` of `coeval.reports`; it escapes all texts."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("coeval.reports", folder),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "numbers": _split_into_anchor_text_name,
        "names": _names_with_numbers,
        "opening": _split_first_sentence,
        "texts": _initial_texts,
        "forest": _lay_out_forest,
        "plain": escape_line,
    }
    return environment.get_template(name)


def _split_into_anchor_text_name(
    sentence: Sentence, names: Collection[str], report: Report
) -> Iterator[tuple[str, str, str]]:
    """Split a sentence into pieces: the anchor of the table that has a number, the text, and the name it
    stands for, if any."""
    pieces = [
        (is_number, text, name)
        for piece, name in report.shown_names.pieces(sentence.text)
        for is_number, text in ([(False, piece)] if name else _split_numbers(piece, names))
    ]
    numbers = {text: _numbers_in(text) for is_number, text, _ in pieces if is_number}
    anchors: dict[str, str] = {}
    for row in _candidate_rows(sentence, report) if numbers else ():
        anchors |= {text: row.table for text, figures in numbers.items() if row.figures >= figures}
        numbers = {text: figures for text, figures in numbers.items() if text not in anchors}
        if not numbers:
            break
    usual = sentence.anchor if sentence in report.lead else ""
    for is_number, text, name in pieces:
        yield anchors.get(text, usual) if is_number else "", text, name


class _FigureRow(NamedTuple):
    table: str
    figures: frozenset[str]


def _candidate_rows(sentence: Sentence, report: Report) -> Iterator[_FigureRow]:
    """Yield the rows that a sentence may be about: first those of whoever it names, in the table at its
    anchor, in that table's section, and elsewhere; then all of the table at its anchor."""
    if not sentence.anchor:
        return
    tables = [(section, table) for section in report.sections for table in section.tables]
    home = next(
        (section for section, table in tables if sentence.anchor in (section.anchor, table.name)), None
    )
    tables.sort(key=lambda pair: (pair[1].name != sentence.anchor, pair[0] is not home))
    nearby = [table for section, table in tables if section is home or sentence in report.lead]
    for named in (True, False):
        for table in nearby:
            if not named and table.name != sentence.anchor:
                continue
            words = [at for at, column in enumerate(table.columns) if column.kind == "text"]
            heads = _numbers_in(" ".join(column.title for column in table.columns))
            for texts in _initial_texts(table):
                cells = [texts[at] for at in words]
                if not named or any(cell in sentence.text for cell in cells if _is_name(cell, report)):
                    figures = (text for at, text in enumerate(texts) if at not in words)
                    yield _FigureRow(table.name, heads | _numbers_in(" ".join(figures)))


def _is_name(text: str, report: Report) -> bool:
    """Check whether a cell names something: a word like ``items`` is also in sentences on other things."""
    return text in report.labels or not text.isalpha()


def _numbers_in(text: str) -> frozenset[str]:
    """Return the numbers in a text, without signs and commas."""
    return frozenset(number.replace(",", "") for number in re.findall(r"\d[\d,]*(?:\.\d+)?", text))


def _split_numbers(sentence: str, names: Collection[str] = ()) -> list[tuple[bool, str]]:
    """Split a sentence into pieces, each with whether it is a number; digits within ``names`` are none."""
    pieces: list[tuple[bool, str]] = []
    end = 0
    patterns = sorted((re.escape(name) for name in names if name in sentence), key=len, reverse=True)
    name_spans = [match.span() for match in re.finditer("|".join(patterns), sentence)] if patterns else []
    for match in _NUMBER.finditer(sentence):
        if any(begin < match.end() and match.start() < stop for begin, stop in name_spans):
            continue
        text = match.group().rstrip(".,")
        pieces += [(False, sentence[end : match.start()]), (True, text)]
        end = match.start() + len(text)
    return [*pieces, (False, sentence[end:])]


def _names_with_numbers(report: Report) -> frozenset[str]:
    """Return the texts in cells that hold a number among their words, as ``GPT 4.1 mini`` does."""
    cells = {
        escape_line(cell)
        for section in report.sections
        for table in section.tables
        for row in table.rows
        for cell in row
        if isinstance(cell, str) and len(cell) <= _LONGEST_NAME
    }
    return frozenset(text for text in cells if _NUMBER.search(text) and _LETTER.search(text))


def _split_first_sentence(title: str) -> tuple[str, str]:
    """Split a picture's title into its first sentence and the rest."""
    first, stop, rest = title.partition(". ")
    return first + stop.strip(), rest


class _ForestRow(NamedTuple):
    """A row's texts, and the positions of its mark and interval in percent of the width."""

    texts: list[str]
    link: str
    colour: int
    middle: float
    low: float
    high: float


class _Forest(NamedTuple):
    """``band``: where the leader's interval begins, and how wide it is."""

    ticks: tuple[str, ...]
    band: tuple[float, float]
    rows: list[_ForestRow]


# Colours of `LIGHT.categories`, as the style sheet numbers them.
_COLOURS = 8


def _lay_out_forest(table: ReportTable, students: Sequence[str]) -> _Forest:
    """Place a table's names and measures on an axis between multiples of ten points; ``students`` in the
    order of their colours."""
    measures = [row[1] for row in table.rows if isinstance(row[1], Measured)]
    ends = [
        100 * (measure.value or 0.0 if end is None else end)
        for measure in measures
        for end in (measure.low, measure.high)
    ]
    least, most = 10 * floor(min(ends) / 10), 10 * ceil(max(ends) / 10)
    most = max(most, least + 10)

    def position(share: float) -> float:
        return round((100 * share - least) / (most - least) * 100, 2)

    rows = []
    for at, (row, texts) in enumerate(zip(table.rows, format_rows(table.columns, table.rows), strict=True)):
        measure = row[1]
        value, low, high = measure[:3] if isinstance(measure, Measured) else (None, None, None)
        value = value or 0.0
        marks = (
            position(value),
            position(value if low is None else low),
            position(value if high is None else high),
        )
        colour = students.index(str(row[0])) % _COLOURS
        rows.append(_ForestRow(texts, table.links.get(at, ""), colour, *marks))
    first = rows[0]
    return _Forest(
        tuple(f"{tick:g}" for tick in (least, (least + most) / 2, most)),
        (first.low, round(first.high - first.low, 2)),
        rows,
    )


def _initial_texts(table: ReportTable) -> list[list[str]]:
    return format_rows(table.columns, table.chosen_rows[:_MOST_ROWS])
