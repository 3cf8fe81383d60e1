"""Tables in Markdown, for a pull request, in LaTeX, for a paper, and in HTML, for a notebook; foreign text
marks up nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from coeval.analysis.measures.measure_tree import Measured
from coeval.core.html_table import html_lines, html_table
from coeval.core.plain import plain
from coeval.reports.content import ReportTable, cell_text

# --- Markdown

_MARKUP = re.compile(r"([\\`*_|<>\[\]{}~#&!])")


def escaped(text: str) -> str:
    """Foreign text that marks nothing up in Markdown."""
    return _MARKUP.sub(r"\\\1", plain(text))


def as_markdown(table: ReportTable) -> str:
    """Headings and rows, and the note below; figures stand to the right."""
    lines = [
        f"| {' | '.join(escaped(column.title) for column in table.columns)} |",
        f"| {' | '.join('---' if column.kind == 'text' else '---:' for column in table.columns)} |",
        *(f"| {' | '.join(cells)} |" for cells in _rows(table, escaped, str, "**{}**")),
    ]
    return "\n".join(lines + (["", escaped(table.note)] if table.note else []))


# --- HTML


def as_html(table: ReportTable) -> str:
    """Title, headings and rows, and the note below. A column in which no row has anything is left out."""
    columns = [(at, table.columns[at]) for at in table.places_in_use]
    rows = ([cell_text(row[at], column.kind) for at, column in columns] for row in table.rows)
    found = html_table(table.title, [column.on_terminal for _, column in columns], rows)
    return found + html_lines([table.note] * bool(table.note))


# --- LaTeX

# What begins a command, a group, a comment or the like. Brackets and stars behind ``\\`` are its arguments;
# other signs are missing from TeX's usual fonts, or stand for something else in them.
_LATEX = {
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    **{sign: f"{{{sign}}}" for sign in "[]*\"'`-"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "−": "$-$",
    "–": "--",
    "×": r"$\times$",
}


def in_latex(text: str) -> str:
    """Foreign text that is no command of LaTeX, in one line."""
    shown = "".join(_LATEX.get(sign, sign) for sign in plain(text))
    return re.sub(r"(?<=\w)\{-\}(?=\w)", "-", shown)  # a hyphen within a word may end a line


def as_latex(table: ReportTable, label: str) -> str:
    """For ``booktabs``, with the note as caption, and a ``label``."""
    figures = "".join("l" if column.kind == "text" else "r" for column in table.columns)
    lines = [r"% \usepackage{booktabs}", r"\begin{table}", r"\centering"]
    lines += [rf"\begin{{tabular}}{{{figures}}}", r"\toprule"]
    lines += [rf"{' & '.join(in_latex(column.title) for column in table.columns)} \\", r"\midrule"]
    lines += [
        rf"{' & '.join(cells)} \\" for cells in _rows(table, in_latex, _figure_in_latex, r"\textbf{{{}}}")
    ]
    lines += [r"\bottomrule", r"\end{tabular}", rf"\caption{{{in_latex(table.note)}}}"]
    return "\n".join([*lines, rf"\label{{{label}}}", r"\end{table}"])


def _figure_in_latex(text: str) -> str:
    """The brackets of an interval are no argument behind a figure."""
    return re.sub(r"[^\[\], ]+", lambda part: in_latex(part[0]), text)


def _rows(
    table: ReportTable, words: Callable[[str], str], figure: Callable[[str], str], bold: str
) -> Iterator[list[str]]:
    """Cells in the medium: of one that is ``bold``, the figure before its interval is."""
    for at, row in enumerate(table.rows):
        cells = []
        for place, (cell, column) in enumerate(zip(row, table.columns, strict=True)):
            text = cell_text(cell, column.kind)
            value, gap, rest = text.partition(" ") if isinstance(cell, Measured) else (text, "", "")
            mark = words if column.kind == "text" else figure
            value, rest = mark(value), mark(rest)
            shown = bold.format(value) if (at, place) in table.bold else value
            cells.append(shown + gap + rest)
        yield cells
