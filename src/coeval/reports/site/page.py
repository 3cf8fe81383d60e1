"""A report as one self-contained page: text, tables, charts, data and scripts in a single file.

It asks no network for anything, and a browser that heeds its content security policy runs no script but
ours: the policy names them by their hashes. All texts of a report are escaped by the template, or lie in data
blocks.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
from collections.abc import Collection, Iterator, Sequence
from functools import cache
from importlib.resources import files
from typing import NamedTuple

import jinja2
from markupsafe import Markup

from coeval import __version__
from coeval.core.plain import plain
from coeval.reports.charts.chart_spec import with_labels
from coeval.reports.charts.theme import DARK, LIGHT, theme_config
from coeval.reports.content.cell_text import row_texts
from coeval.reports.content.report_content import Report, ReportTable, Sentence
from coeval.reports.experiment.score_blocks import ScoreBlocks
from coeval.reports.items.item_selection import ItemSelection
from coeval.reports.site.data_blocks import DataBlock, bytes_block, json_block, packed_block
from coeval.reports.site.vega_bundle import vega_script

__all__ = ["write_page"]

_SITE, _FILTERING, _ITEMS = "coeval.reports.site", "coeval.reports.site.filtering", "coeval.reports.items"
_SCRIPTS = (
    (_ITEMS, "answers.js"),
    (_ITEMS, "items.js"),
    (_ITEMS, "item_sources.js"),
    (_SITE, "blocks.js"),
    (_SITE, "address.js"),
    (_SITE, "cells.js"),
    (_FILTERING, "distributions.js"),
    (_FILTERING, "intervals.js"),
    (_FILTERING, "paired.js"),
    (_FILTERING, "standings.js"),
    (_FILTERING, "leader.js"),
    (_FILTERING, "filtered.js"),
    (_SITE, "tables.js"),
    (_SITE, "pictures.js"),
    (_FILTERING, "filters.js"),
    (_SITE, "page.js"),
)
_STYLES = ((_SITE, "page.css"), (_ITEMS, "items.css"))
_UNFILTERED = frozenset({"judges", "benchmark", "cost"})
"""Sections whose figures are those of the whole run, whatever is chosen."""
_MOST_ROWS = 60
"""Of a table that stand in the page's text; the others are shown when somebody asks for them."""
_NUMBER = re.compile(r"(?<![\w./:-])[±$−-]?\d[\d,.]*+(?:\s\[[^\]]*\])?(?![\w/-])")
_LETTER = re.compile(r"[^\W\d_]")
_LONGEST_NAME = 200
"""Characters: longer texts in cells are prompts and notes, which no sentence quotes."""


def write_page(
    report: Report,
    blocks: Sequence[DataBlock] = (),
    *,
    scores: ScoreBlocks | None = None,
    items: ItemSelection | None = None,
    served_at: str = "",
) -> bytes:
    """``blocks``: more data for the scripts that the page holds; ``scores``: those that its filters compute
    with; ``items``: those that can be read in it.

    ``served_at``: where the page asks for items in their place, an address at the server that it came from.
    """
    if items is not None:
        blocks = (*blocks, json_block("items", items))
    script, style = _joined(_SCRIPTS), _joined(_STYLES)
    vega = vega_script()
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src {_hash(script)} {_hash(gzip.decompress(vega).decode())}",
            f"style-src {_hash(style)}",
            "img-src data: blob:",
            *(["connect-src 'self'"] if served_at else []),
            "base-uri 'none'",
            "form-action 'none'",
        )
    )
    page = _template().render(
        report=report,
        policy=policy,
        style=Markup(style),  # noqa: S704  our own file
        script=Markup(script),  # noqa: S704  the same
        blocks=(_report_block(report), packed_block("vega", vega), *_of_scores(scores), *blocks),
        has_scores=scores is not None,
        whole=_UNFILTERED,
        version=__version__,
        has_items=items is not None or bool(served_at),
        served_at=served_at,
    )
    return page.encode("utf-8", "replace")


def _of_scores(scores: ScoreBlocks | None) -> Iterator[DataBlock]:
    if scores is not None:
        yield json_block("design", scores.design)
        yield bytes_block("levels", scores.levels)
        yield bytes_block("teachers", scores.teachers)
        yield bytes_block("members", scores.members)


def _report_block(report: Report) -> DataBlock:
    """What charts and tables are drawn of."""
    tables = [table for section in report.sections for table in section.tables]
    return json_block(
        "report",
        {
            "title": report.title,
            "students": [row[0] for table in tables for row in table.rows if table.name == "students"],
            "tables": {
                table.name: {
                    "title": table.title,
                    "columns": [
                        {"name": column.name, "title": column.title, "kind": column.kind}
                        for column in table.columns
                    ],
                    "rows": table.records(),
                    "links": {str(place): link for place, link in table.links.items()},
                }
                for table in tables
            },
            "pictures": {
                picture.name: {"table": picture.table, "spec": with_labels(picture.spec, report.labels)}
                for section in report.sections
                for picture in section.pictures
            },
            "themes": {"light": theme_config(LIGHT), "dark": theme_config(DARK)},
        },
    )


@cache
def _joined(names: tuple[tuple[str, str], ...]) -> str:
    """Our files, each by its package, as one text that no parser of HTML ends early."""
    text = "\n".join((files(package) / name).read_text(encoding="utf-8") for package, name in names)
    return f'"use strict";\n(() => {{\n{text}\n}})();' if names[0][1].endswith(".js") else text


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["numbers"] = _split_numbers
    environment.filters["names"] = _names_with_figures
    environment.filters["opening"] = _opening
    environment.filters["texts"] = _texts
    environment.filters["answers"] = _answers
    text = (files("coeval.reports.site") / "page.html").read_text(encoding="utf-8")
    return environment.from_string(text)


def _split_numbers(sentence: str, names: Collection[str] = ()) -> list[tuple[bool, str]]:
    """A sentence in pieces, each with whether it is a number: those lead to where they are shown. What is
    part of one of the ``names`` is none."""
    pieces: list[tuple[bool, str]] = []
    end = 0
    told = sorted((re.escape(name) for name in names if name in sentence), key=len, reverse=True)
    taken = [found.span() for found in re.finditer("|".join(told), sentence)] if told else []
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
        plain(cell)
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


class _LeadAnswer(NamedTuple):
    """Sentences of the lead that answer one question."""

    question: str
    anchor: str
    sentences: list[Sentence]


def _answers(report: Report) -> list[_LeadAnswer]:
    """The lead below its first sentence, in the order of the questions; what leads to no section of its own
    stands first, without a question."""
    questions = {section.anchor: section.question for section in report.sections}
    groups = {anchor: _LeadAnswer(question, anchor, []) for anchor, question in {"": "", **questions}.items()}
    for said in report.lead[1:]:
        groups[said.anchor if said.anchor in questions else ""].sentences.append(said)
    return [group for group in groups.values() if group.sentences]


def _texts(table: ReportTable) -> list[list[str]]:
    return row_texts(table.columns, table.rows[:_MOST_ROWS])
