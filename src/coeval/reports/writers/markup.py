"""Tables in Markdown, for a pull request, in LaTeX, for a paper, and in HTML, for a notebook; foreign text
marks up nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from coeval.analysis.measures.measure_tree import Measured
from coeval.core.html_table import html_lines, html_table
from coeval.core.plain import escape_line
from coeval.reports.content import ReportTable, format_cell

# --- Markdown

_MARKUP = re.compile(r"([\\`*_|<>\[\]{}~#&!])")


def escape_markdown(text: str) -> str:
    """Escape foreign text so that it marks up nothing in Markdown."""
    return _MARKUP.sub(r"\\\1", escape_line(text))


def as_markdown(table: ReportTable) -> str:
    """Write headings and rows, and the note below; figures are aligned to the right."""
    lines = [
        f"| {' | '.join(escape_markdown(column.title) for column in table.columns)} |",
        f"| {' | '.join('---' if column.kind == 'text' else '---:' for column in table.columns)} |",
        *(f"| {' | '.join(cells)} |" for cells in _format_rows(table, escape_markdown, str, "**{}**")),
    ]
    return "\n".join(lines + (["", escape_markdown(table.note)] if table.note else []))


# --- HTML


def as_html(table: ReportTable) -> str:
    """Write title, headings and rows, and the note below, without columns that are empty in all rows."""
    columns = [(at, table.columns[at]) for at in table.terminal_columns]
    rows = ([format_cell(row[at], column.kind) for at, column in columns] for row in table.rows)
    html = html_table(table.title, [column.terminal_heading for _, column in columns], rows)
    return html + html_lines([table.note] * bool(table.note))


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


def escape_latex(text: str) -> str:
    """Escape foreign text so that it is no command of LaTeX."""
    escaped = "".join(_LATEX.get(sign, sign) for sign in escape_line(text))
    return re.sub(r"(?<=\w)\{-\}(?=\w)", "-", escaped)  # a hyphen within a word may end a line


def as_latex(table: ReportTable, label: str) -> str:
    """Write the table for ``booktabs``, with the note as caption, and a ``label``."""
    figures = "".join("l" if column.kind == "text" else "r" for column in table.columns)
    lines = [r"% \usepackage{booktabs}", r"\begin{table}", r"\centering"]
    lines += [rf"\begin{{tabular}}{{{figures}}}", r"\toprule"]
    lines += [rf"{' & '.join(escape_latex(column.title) for column in table.columns)} \\", r"\midrule"]
    lines += [
        rf"{' & '.join(cells)} \\"
        for cells in _format_rows(table, escape_latex, _escape_latex_figure, r"\textbf{{{}}}")
    ]
    lines += [r"\bottomrule", r"\end{tabular}", rf"\caption{{{escape_latex(table.note)}}}"]
    return "\n".join([*lines, rf"\label{{{label}}}", r"\end{table}"])


def _escape_latex_figure(text: str) -> str:
    """Escape all but the brackets of an interval, which are no argument behind a figure."""
    return re.sub(r"[^\[\], ]+", lambda part: escape_latex(part[0]), text)


def _format_rows(
    table: ReportTable, escape_text: Callable[[str], str], escape_figure: Callable[[str], str], bold: str
) -> Iterator[list[str]]:
    """Yield the escaped cells of each row; ``bold`` formats a bold cell's figure, without its interval."""
    for row_index, row in enumerate(table.rows):
        cells = []
        for index, (cell, column) in enumerate(zip(row, table.columns, strict=True)):
            text = format_cell(cell, column.kind)
            value, gap, interval = text.partition(" ") if isinstance(cell, Measured) else (text, "", "")
            escape = escape_text if column.kind == "text" else escape_figure
            value = bold.format(escape(value)) if (row_index, index) in table.bold else escape(value)
            cells.append(value + gap + escape(interval))
        yield cells
