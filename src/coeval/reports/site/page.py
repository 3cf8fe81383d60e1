"""A report as one self-contained page: text, tables, charts, data and scripts in a single file.

It asks no network for anything, and a browser that heeds its content security policy runs no script but
ours: the policy names them by their hashes. All texts of a report are escaped by the template, or lie in data
blocks.
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
from coeval.core.plain import escape_line
from coeval.reports.chart_spec import resolve_short_names
from coeval.reports.content import Cell, Report, ReportColumn, ReportTable, Sentence, format_cell, format_rows
from coeval.reports.drawn_pictures import DARK, LIGHT, theme_config
from coeval.reports.experiment.leading_section import FRONT
from coeval.reports.items.item_selection import ItemSelection
from coeval.store.jsonl import write_bytes_atomic
from coeval.store.output_folder import cache_folder

# --- Data within a page: gzip, then base64

# zlib's own default: 9 takes much longer and saves little.
_LEVEL = 6


class DataBlock(NamedTuple):
    """``text`` is base64 of gzip, so that no data can end its element."""

    name: str
    text: str


def json_block(name: str, value: Any) -> DataBlock:
    return packed_block(name, packed(msgspec.json.encode(value)))


def packed(data: bytes) -> bytes:
    """Compress data for a page, to the same bytes each time."""
    return gzip.compress(data, _LEVEL, mtime=0)


def packed_block(name: str, packed: bytes) -> DataBlock:
    """Of data that is gzipped already."""
    return DataBlock(name, base64.b64encode(packed).decode())


# --- Vega scripts
#
# Putting them together takes seconds, so what came of it is kept in the user's cache folder, by vl-convert's
# version; a folder that cannot be written costs nothing but that time.

log = logging.getLogger("coeval")

VEGA_SCRIPT = "window.vegaEmbed = vegaEmbed;"


@cache
def vega_script() -> tuple[bytes, str]:
    """The script that gives the page ``vegaEmbed``: gzipped, and its text."""
    place = cache_folder() / "pages" / f"vega-{version('vl-convert-python')}.js.gz"
    try:
        kept = place.read_bytes()
        return kept, gzip.decompress(kept).decode()
    except (OSError, EOFError, gzip.BadGzipFile):
        text = vl_convert.javascript_bundle(VEGA_SCRIPT)
    kept = gzip.compress(text.encode(), 9, mtime=0)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        write_bytes_atomic(place, kept)
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
_MORE = Markup("<!-- more -->")
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
        """As it stands in addresses."""
        return urlencode({self.dimension: self.name})


class PageFrame:
    """A report as a page that still lacks data which readers may ask for: what has room in it follows.

    ``choices``: those of scores that the page offers, and ``left_out``, how many others it has no room for;
    ``served_at``: where the page asks for items and for the figures of choices, an address at the server that
    it came from, and empty where it holds them.
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
        script, style = _joined(_SCRIPTS), _joined(_STYLES)
        vega, vega_text = vega_script()
        policy = "; ".join(
            (
                "default-src 'none'",
                f"script-src {script_hash(script)} {script_hash(vega_text)}",
                f"style-src {script_hash(style)}",
                "img-src data: blob:",
                *(["connect-src 'self'"] if served_at else []),
                "base-uri 'none'",
                "form-action 'none'",
            )
        )
        page = page_template("page.html").render(
            report=report,
            preview=_preview(report),
            shown=report.shown_names,
            names=_data({escape_line(name): label for name, label in report.shown_names.key.items()}),
            policy=policy,
            style=Markup(style),  # noqa: S704  our own file
            script=Markup(script),  # noqa: S704  the same
            blocks=(_report_block(report), packed_block("vega", vega)),
            choices=choices,
            left_out=left_out,
            students=[row[0] for row in report.front.rows] if report.front is not None else [],
            whole=_OF_WHOLE_RUN,
            version=__version__,
            has_items=has_items or bool(served_at),
            served_at=served_at,
            more=_MORE,
        )
        self._before, _, self._after = (text.encode("utf-8", "replace") for text in page.partition(_MORE))

    def __len__(self) -> int:
        return len(self._before) + len(self._after)

    def with_data(self, blocks: Iterable[DataBlock]) -> bytes:
        data = page_template("blocks.html").render(blocks=blocks)
        return self._before + data.encode() + self._after


def write_page(report: Report, blocks: Sequence[DataBlock] = (), items: ItemSelection | None = None) -> bytes:
    """``blocks``: more data for the scripts that the page holds; ``items``: those that can be read in it."""
    frame = PageFrame(report, has_items=items is not None)
    return frame.with_data((*blocks, *(item_blocks(items) if items is not None else ())))


def item_blocks(items: ItemSelection) -> tuple[DataBlock, DataBlock]:
    """Who lost to whom stands by itself: the headline leads there, and unpacks no items for it."""
    whole = json_block("items", msgspec.structs.replace(items, lost=[]))
    return whole, json_block("lost", items.lost)


# Characters of a description that link previews show.
_PREVIEW = 200


def _preview(report: Report) -> str:
    """What chats and mail programs show beside a link: the answer, or else the facts."""
    said = report.shown_names.text(report.lead[0].text) if report.lead else " · ".join(report.facts[:2])
    return said if len(said) <= _PREVIEW else f"{said[:_PREVIEW].rpartition(' ')[0]} …"


def _data(value: Any) -> Markup:
    """JSON in an element of its own, which no text in it can end."""
    return Markup(msgspec.json.encode(value).decode().replace("<", "\\u003c"))  # noqa: S704


def _report_block(report: Report) -> DataBlock:
    """What charts and tables are drawn of."""
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
                    "rows": table.to_dicts(),
                    "links": {str(place): link for place, link in table.links.items()},
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
_FOLLOWING = (
    *(FRONT, "students", "differences", "standings", "quality-cost"),
    *("parts", "values", "checks", "by-judge", "by-teacher", "levels"),
)
# Decimals that a share is written with, in the order in which they are tried: four are a tenth of the last
# digit that people read.
_DECIMALS = (4, 6, 9)


def choice_data(report: Report, students: Sequence[str]) -> bytes:
    """Return JSON of a choice's report: ``lead`` is HTML, ``tables`` by name have rows, cell by cell in the
    order of their columns (a measure is its value, ends and n), and the link of each row; ``students`` in the
    order of their colours."""
    tables = {table.name: table for section in report.sections for table in section.tables}
    tables |= {} if report.front is None else {FRONT: report.front}
    return msgspec.json.encode(
        {
            "lead": _first_screen(report, students),
            "status": report.shown_names.text(escape_line(report.facts[0])),
            "tables": {name: _choice_table(tables.get(name)) for name in _FOLLOWING},
        }
    )


def _choice_table(table: ReportTable | None) -> dict[str, Any]:
    if table is None:
        return {"rows": [], "links": []}
    rows = [
        [_choice_cell(cell, column) for cell, column in zip(row, table.columns, strict=True)]
        for row in table.rows
    ]
    return {"rows": rows, "links": [table.links.get(at) for at in range(len(rows))] if table.links else []}


def _choice_cell(cell: Cell, column: ReportColumn) -> Any:
    if isinstance(cell, Measured):
        return list(_rounded(cell, column)[:4])
    if isinstance(cell, float):
        return _rounded(Measured(cell, None, None, None, None), column).value
    return escape_line(cell) if isinstance(cell, str) else cell


def _rounded(cell: Measured, column: ReportColumn) -> Measured:
    """Round a measure as far as its text stays the same."""
    text = format_cell(cell, column.kind)
    for decimals in _DECIMALS:
        value, low, high = (None if end is None else round(end, decimals) for end in cell[:3])
        rounded = Measured(value, low, high, cell.n, cell.missing)
        if format_cell(rounded, column.kind) == text:
            return rounded
    return cell


def _first_screen(report: Report, students: Sequence[str]) -> str:
    """Return the sentences and the forest of students with which a page opens, as HTML; ``students``: in the
    order of their colours."""
    values = {"report": report, "shown": report.shown_names, "students": students}
    return str(page_template("first_screen.html").make_module(values).lead())  # type: ignore[attr-defined]


# --- Scripts, styles and templates


@cache
def _joined(names: tuple[tuple[str, str], ...]) -> str:
    """Our files, each by its package, as one text that no parser of HTML ends early."""
    text = "\n".join((files(package) / name).read_text(encoding="utf-8") for package, name in names)
    return f'"use strict";\n(() => {{\n{text}\n}})();' if names[0][1].endswith(".js") else text


def script_hash(text: str) -> str:
    """Of a script or style, as a content security policy names it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@cache
def page_template(name: str, folder: str = "site") -> jinja2.Template:
    """A page of ours, by its file's name in a ``folder`` of `coeval.reports`; all texts in it are escaped."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("coeval.reports", folder),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "numbers": _sentence_pieces,
        "names": _names_with_figures,
        "opening": _opening,
        "texts": _texts,
        "forest": _forest,
        "plain": escape_line,
    }
    return environment.get_template(name)


def _sentence_pieces(
    said: Sentence, names: Collection[str], report: Report
) -> Iterator[tuple[str, str, str]]:
    """A sentence in pieces, each with where it leads, of a figure that a table has, and the name that it
    stands for, if any."""
    pieces = [
        (is_number, text, name)
        for piece, name in report.shown_names.pieces(said.text)
        for is_number, text in ([(False, piece)] if name else _split_numbers(piece, names))
    ]
    numbers = {text: _figures(text) for is_number, text, _ in pieces if is_number}
    places: dict[str, str] = {}
    for row in _rows_of(said, report) if numbers else ():
        places |= {text: row.table for text, figures in numbers.items() if row.figures >= figures}
        numbers = {text: figures for text, figures in numbers.items() if text not in places}
        if not numbers:
            break
    usual = said.anchor if said in report.lead else ""
    for is_number, text, name in pieces:
        yield places.get(text, usual) if is_number else "", text, name


class _FigureRow(NamedTuple):
    table: str
    figures: frozenset[str]


def _rows_of(said: Sentence, report: Report) -> Iterator[_FigureRow]:
    """The rows that a sentence may speak of: those of whoever it names, in the table at its anchor, in that
    table's section and elsewhere; then all in the table at its anchor."""
    if not said.anchor:
        return
    tables = [(section, table) for section in report.sections for table in section.tables]
    home = next((section for section, table in tables if said.anchor in (section.anchor, table.name)), None)
    tables.sort(key=lambda one: (one[1].name != said.anchor, one[0] is not home))
    here = [table for section, table in tables if section is home or said in report.lead]
    for named in (True, False):
        for table in here:
            if not named and table.name != said.anchor:
                continue
            words = [at for at, column in enumerate(table.columns) if column.kind == "text"]
            heads = _figures(" ".join(column.title for column in table.columns))
            for texts in _texts(table):
                cells = [texts[at] for at in words]
                if not named or any(cell in said.text for cell in cells if _is_name(cell, report)):
                    figures = (text for at, text in enumerate(texts) if at not in words)
                    yield _FigureRow(table.name, heads | _figures(" ".join(figures)))


def _is_name(text: str, report: Report) -> bool:
    """Whether a cell names something: a word like ``items`` is also in sentences on other things."""
    return text in report.labels or not text.isalpha()


def _figures(text: str) -> frozenset[str]:
    """The numbers in a text, without signs and commas."""
    return frozenset(found.replace(",", "") for found in re.findall(r"\d[\d,]*(?:\.\d+)?", text))


def _split_numbers(sentence: str, names: Collection[str] = ()) -> list[tuple[bool, str]]:
    """A sentence in pieces, each with whether it is a number: those lead to where they are shown. What is
    part of one of the ``names`` is none."""
    pieces: list[tuple[bool, str]] = []
    end = 0
    reported = sorted((re.escape(name) for name in names if name in sentence), key=len, reverse=True)
    taken = [found.span() for found in re.finditer("|".join(reported), sentence)] if reported else []
    for found in _NUMBER.finditer(sentence):
        if any(begin < found.end() and found.start() < stop for begin, stop in taken):
            continue
        text = found.group().rstrip(".,")
        pieces += [(False, sentence[end : found.start()]), (True, text)]
        end = found.start() + len(text)
    return [*pieces, (False, sentence[end:])]


def _names_with_figures(report: Report) -> frozenset[str]:
    """Texts in the cells of its tables that hold a number among their words, as ``GPT 4.1 mini`` does."""
    cells = {
        escape_line(cell)
        for section in report.sections
        for table in section.tables
        for row in table.rows
        for cell in row
        if isinstance(cell, str) and len(cell) <= _LONGEST_NAME
    }
    return frozenset(text for text in cells if _NUMBER.search(text) and _LETTER.search(text))


def _opening(title: str) -> tuple[str, str]:
    """The first sentence of a picture's title, and the rest."""
    first, stop, rest = title.partition(". ")
    return first + stop.strip(), rest


class _ForestRow(NamedTuple):
    """The texts of its cells, and where in percent of the width its mark and interval lie."""

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


def _forest(table: ReportTable, students: Sequence[str]) -> _Forest:
    """A table of names and measures as marks on an axis from one ten of points to another; ``students`` in
    the order of their colours."""
    measures = [row[1] for row in table.rows if isinstance(row[1], Measured)]
    ends = [
        100 * (one.value or 0.0 if end is None else end) for one in measures for end in (one.low, one.high)
    ]
    least, most = 10 * floor(min(ends) / 10), 10 * ceil(max(ends) / 10)
    most = max(most, least + 10)

    def place(share: float) -> float:
        return round((100 * share - least) / (most - least) * 100, 2)

    rows = []
    for at, (row, texts) in enumerate(zip(table.rows, format_rows(table.columns, table.rows), strict=True)):
        one = row[1]
        value, low, high = one[:3] if isinstance(one, Measured) else (None, None, None)
        value = value or 0.0
        marks = (place(value), place(value if low is None else low), place(value if high is None else high))
        colour = students.index(str(row[0])) % _COLOURS
        rows.append(_ForestRow(texts, table.links.get(at, ""), colour, *marks))
    first = rows[0]
    return _Forest(
        tuple(f"{tick:g}" for tick in (least, (least + most) / 2, most)),
        (first.low, round(first.high - first.low, 2)),
        rows,
    )


def _texts(table: ReportTable) -> list[list[str]]:
    return format_rows(table.columns, table.initial_rows[:_MOST_ROWS])
