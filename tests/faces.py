"""What each face of a result folder shows: its tables and sentences, and the figures in them by name.

A face is what somebody reads: a command's output, a page, a workbook, a file. Its tables are read back as
texts, and a cell is known by its heading, so that the same figure can be looked up in all faces.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html.parser import HTMLParser
from typing import Any, NamedTuple, TypeAlias

from openpyxl.workbook import Workbook

from coeval.core.shown_names import short_names
from coeval.reports.content import Report, ReportTable, format_rows


class FaceTable(NamedTuple):
    """A cell is text as it is printed, or a number where the face holds it unrounded."""

    title: str
    head: list[str]
    rows: list[list[Any]]


class Face(NamedTuple):
    name: str
    tables: Sequence[FaceTable]
    sentences: Sequence[str] = ()


# --- Reading faces


def of_terminal(name: str, text: str) -> Face:
    """Tables are blocks of lines whose columns are two blanks apart; all else is sentences."""
    tables: list[FaceTable] = []
    sentences: list[str] = []
    before, table = "", None
    for line in text.splitlines():
        cells = re.split(r" {2,}", line.strip())
        if re.fullmatch(r"[─━ ]+", line) and line.strip():
            continue
        if len(cells) > 1 and table is not None and len(cells) == len(table.head):
            table.rows.append(list(cells))
        elif len(cells) > 1:
            titled = before if table is None or table.rows else "  ".join(table.head)
            table = FaceTable(titled, cells, [])
            tables.append(table)
        else:
            table = None if len(cells) < 2 else table
            before = line.strip()
            if before:
                sentences.append(before.removeprefix("- "))
    return Face(name, [each for each in tables if each.rows], sentences)


def of_markdown(name: str, text: str) -> Face:
    tables: list[FaceTable] = []
    sentences: list[str] = []
    before, table = "", None
    for line in text.splitlines():
        plain = re.sub(r"\\([\\`*_{}\[\]()#+.!|~<>-])", "\0\\1", line)
        if line.startswith("|"):
            cells = [cell.strip().replace("\0", "") for cell in re.split(r"(?<!\0)\|", plain)[1:-1]]
            if table is None:
                table = FaceTable(before, cells, [])
                tables.append(table)
            elif not all(re.fullmatch(r":?-+:?", cell) for cell in cells):
                table.rows.append(list(cells))
        elif line.strip():
            table, before = None, plain.replace("\0", "").strip("# ")
            sentences.append(re.sub(r"^- |\*\*", "", before))
        else:
            table = None
    return Face(name, tables, sentences)


def of_latex(name: str, text: str) -> Face:
    """Each row is a line of its own."""
    lines = [re.sub(r"\\\\$", "", line).strip() for line in text.splitlines() if line.endswith(r"\\")]
    rows = [[re.sub(r"\\(.)", r"\1", cell.strip()) for cell in re.split(r"(?<!\\)&", line)] for line in lines]
    return Face(name, [FaceTable("", rows[0], [*rows[1:]])] if rows else [])


class _Markup(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tables: list[FaceTable] = []
        self.sentences: list[str] = []
        self._text: list[str] | None = None
        self._row: list[str] | None = None
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("script", "style", "svg", "template"):
            self._hidden += 1
        elif tag == "table":
            self.tables.append(FaceTable(dict(attrs).get("data-table") or "", [], []))
        elif tag == "tr":
            self._row = []
        elif tag in ("td", "th", "p", "li", "caption", "h1", "h2", "h3"):
            self._text = []

    def handle_endtag(self, tag: str) -> None:
        if tag in ("script", "style", "svg", "template"):
            self._hidden -= 1
        elif tag in ("td", "th") and self._text is not None and self._row is not None:
            self._row.append("".join(self._text).strip())
            self._text = None
        elif tag == "tr" and self._row is not None and self.tables:
            table = self.tables[-1]
            if table.head:
                table.rows.append(self._row)
            else:
                table.head.extend(self._row)
            self._row = None
        elif tag == "caption" and self._text is not None:
            table = self.tables[-1]
            self.tables[-1] = table._replace(title="".join(self._text) or table.title)
            self._text = None
        elif tag in ("p", "li") and self._text is not None:
            self.sentences.append(" ".join("".join(self._text).split()))
            self._text = None

    def handle_data(self, data: str) -> None:
        if self._text is not None and not self._hidden:
            self._text.append(data)


def of_html(name: str, text: str) -> Face:
    markup = _Markup()
    markup.feed(text)
    return Face(name, [table for table in markup.tables if table.rows], markup.sentences)


def of_report(name: str, report: Report) -> Face:
    def read(table: ReportTable) -> FaceTable:
        texts = format_rows(table.columns, table.rows)
        return FaceTable(
            table.title, [column.title for column in table.columns], [list(row) for row in texts]
        )

    tables = [table for section in report.sections for table in section.tables]
    tables += [report.front] if report.front is not None else []
    sentences = [*report.lead, *(said for section in report.sections for said in section.sentences)]
    return Face(name, [read(table) for table in tables], [said.text for said in sentences])


def of_workbook(name: str, book: Workbook) -> Face:
    """Each sheet is a table, whose interval is in columns of its own: ``Score, from``, ``Score, to``."""
    tables = []
    for sheet in book.worksheets[1:]:
        head, *rows = ([*row] for row in sheet.iter_rows(values_only=True))
        end = next((at for at, row in enumerate(rows) if all(cell is None for cell in row)), len(rows))
        tables.append(FaceTable(sheet.title, [str(cell or "") for cell in head], rows[:end]))
    summary = book.worksheets[0].iter_rows(values_only=True)
    return Face(name, tables, [str(cell) for row in summary for cell in row if isinstance(cell, str)])


# --- Figures by name

Key: TypeAlias = tuple[str, ...]
"""The figure's name, then whose it is, then where: a task, a part, or "" for all."""


class Printed(NamedTuple):
    """``places``: decimals that are printed; None: all. ``slack``: how far an end may be off that was ±."""

    value: float
    places: int | None = None
    slack: float = 0.0

    def agrees(self, other: Printed) -> bool:
        """Whether both may be roundings of one figure; equal where the same digits are printed."""
        if self.places == other.places is not None and not (self.slack or other.slack):
            return self.value == other.value
        rounding = sum(0.5 * 10.0**-each.places for each in (self, other) if each.places is not None)
        return abs(self.value - other.value) <= rounding + self.slack + other.slack + 1e-9


class Shown(NamedTuple):
    face: str
    figure: Printed | str

    def agrees(self, other: Shown) -> bool:
        if isinstance(self.figure, str) or isinstance(other.figure, str):
            return self.figure == other.figure
        return self.figure.agrees(other.figure)

    def __str__(self) -> str:
        number = self.figure
        if not isinstance(number, str):
            number = f"{number.value:.{6 if number.places is None else number.places}f}"
        return f"{number} ({self.face})"


Figures: TypeAlias = defaultdict[Key, list[Shown]]


class FolderNames(NamedTuple):
    """The whole names of a folder's models, which faces may shorten, and its tasks; those of labels alone."""

    models: tuple[str, ...]
    tasks: tuple[str, ...]
    labelled: frozenset[str] = frozenset()

    def key(self, key: Key) -> Key:
        """A task's score is its labels' accuracy where it has nothing else, the whole where it is alone."""
        name, *subject, where = key
        task = re.split(r" \(|/| · ", where)[0]
        if task in self.labelled:
            name, where = re.sub("^score", "accuracy", name), task
        return name, *subject, "" if self.tasks == (where,) else where

    def whole(self, text: object) -> str | None:
        """The one model that a text names; None where it names none."""
        if not isinstance(text, str) or text in self.models or not text.strip():
            return text or None  # type: ignore[return-value]
        named = [name for name in self.models if _is_short_for(text, name)]
        return named[0] if len(named) == 1 else None

    @property
    def short(self) -> dict[str, str]:
        """By each text under which sentences name a model, its whole name."""
        found = {text: name for name, text in short_names(self.models).items()}
        return {**found, **{name: name for name in self.models}}


def _is_short_for(text: str, name: str) -> bool:
    if "…" in text:
        return all(map(name.__contains__, text.split("…")))
    pieces, whole = text.split("@"), name.split("@")
    return len(pieces[0]) > 4 and len(pieces) == len(whole) and all(map(str.__contains__, whole, pieces))


HEADINGS = {
    "score": "score", "overall": "score", "mean of recorded": "mean recorded",
    "rank": "rank", "ranks": "rank",
    "n": "n", "items": "n", "failed": "failed", "missing": "missing",
    "difference": "difference", "b − a": "difference",
    "over items and judges": "difference over judges", "judges": "difference over judges",
    "least": "least", "detectable": "least",
    "p": "p", "p (holm)": "p", "p (holm), judges too": "p over judges",
    "cost": "cost", "cost_usd": "cost", "accuracy": "accuracy",
    "strength": "strength", "pairwise strength": "strength", "wins in 100": "strength",
    "$ per 1,000": "price", "$ per 1,000 answers": "price",
}  # fmt: skip
PARTS = (
    "tasks and factors", "attributes", "checks", "check",
    "scores by judge and student", "scores by teacher and student",
)  # fmt: skip
OF_PAIRS = {
    **{name: name for name in ("difference", "difference over judges", "p", "p over judges", "least")},
    "n": "n of pair",
}
SIDES = (
    {"row": "student", "column": "less", "task": "task"},
    {"comparison": "student", "baseline": "less", "level": "task"},
    {"student": "student", "against": "less", "difference": "difference"},
)
"""What tables of a comparison call two sides and the place."""
OTHER_FIGURES = re.compile(
    "Robust set|Cost by role|phases|Judges|How far|What|Length|Missing|Several answers|Levels|Where|"
    "Over all samples"
)
"""Titles of tables whose columns carry these names for something else: judges, other items, files."""
# Points: an interval that is written as ± may be a little lopsided.
_ASYMMETRY = 0.15
_NUMBER = r"[−-]?\d[\d,]*(?:\.\d+)?"


def number(text: str) -> Printed:
    digits = text.replace(",", "").replace("−", "-")
    return Printed(float(digits), len(digits.partition(".")[2]))


def cell_figures(name: str, cell: Any, scale: float = 1.0) -> Iterator[tuple[str, Printed | str]]:
    """The figures of a cell: a value, and the ends of its interval."""
    if cell is None or isinstance(cell, bool):
        return
    if isinstance(cell, int | float):
        yield name, Printed(cell * scale)
        return
    text = cell.strip().replace("%", "").replace("$", "")
    if name == "rank":
        if re.fullmatch(r"\d+(–\d+)?", text):
            yield name, text
    elif found := re.fullmatch(rf"<({_NUMBER})", text):
        least = number(found[1])
        yield name, Printed(least.value / 2, least.places, least.value / 2)
    elif found := re.fullmatch(rf"({_NUMBER})?(?: \[({_NUMBER}), ({_NUMBER})\])?", text):
        for end, part in zip(("", " low", " high"), found.groups(), strict=True):
            if part is not None:
                yield name + end, number(part)
    elif found := re.fullmatch(rf"({_NUMBER})? ?± ({_NUMBER})", text):
        half = number(found[2])
        yield f"{name} half", half
        if found[1] is not None:
            middle = number(found[1])
            yield name, middle
            for end, sign in (("low", -1), ("high", 1)):
                yield f"{name} {end}", Printed(middle.value + sign * half.value, middle.places, _ASYMMETRY)


def figures_of(face: Face, names: FolderNames) -> Figures:
    """All figures that a face's tables and sentences show."""
    found: Figures = defaultdict(list)
    for table in face.tables:
        for key, figure in _of_table(table, names):
            found[names.key(key)].append(Shown(face.name, figure))
            if re.fullmatch("difference(?: over judges half| half)?", key[0]) and isinstance(figure, Printed):
                gap = (key[0].replace("difference", "gap"), *key[1:])
                found[names.key(gap)].append(Shown(face.name, figure._replace(value=abs(figure.value))))
    for key, figure in _of_sentences(face.sentences, names):
        found[names.key(key)].append(Shown(f"{face.name}, sentence", figure))
    return found


VERDICT = re.compile(
    r"\b(leads by these judges|leads by this judge|leads|(?:statistically )?tied|is better than)\b"
)
_GAP = re.compile(rf"(?:gap|lead) is ({_NUMBER})(?: ± ({_NUMBER}))?|: ({_NUMBER}) ± ({_NUMBER}) points ahead")


def _of_sentences(sentences: Iterable[str], names: FolderNames) -> Iterator[tuple[Key, Printed | str]]:
    """Of the sentences that compare two students: their scores, the gap, the verdict's word."""
    whole = names.short
    one = "|".join(map(re.escape, sorted(whole, key=len, reverse=True)))
    named = re.compile(rf"(?<![\w./-])({one})(?![\w/-]|\.\w)")
    pair, where = "", ""
    for said in sentences:
        verdict, models = VERDICT.search(said), dict.fromkeys(whole[text] for text in named.findall(said))
        said, *judged = said.split("; allowing for other judges ±")  # a clause on the lead, or a sentence
        over = " over judges" if "allowing for other judges" in said else ""
        if verdict and len(models) > 1 and "points" in said:
            pair = "|".join(sorted([*models][:2]))
            where = next(
                (task for task in names.tasks if re.search(rf"\b[io]n {re.escape(task)}\b", said)), ""
            )
            yield ("verdict", pair, where), verdict[1]
            for text, score in re.findall(rf"({one})(?: \(| leads with )(\d+\.\d)\b", said):
                yield ("score", whole[text], where), number(score)
        elif not over:
            continue
        if pair and (gap := _GAP.search(said)):
            value, half = (gap[1], gap[2]) if gap[1] else (gap[3], gap[4])
            yield ("gap", pair, where), number(value)
            if half:
                yield (f"gap{over} half", pair, where), number(half)
            for clause in judged:
                yield ("gap over judges half", pair, where), number(re.findall(_NUMBER, clause)[0])


def _of_table(table: FaceTable, names: FolderNames) -> Iterator[tuple[Key, Printed | str]]:
    if OTHER_FIGURES.match(table.title):
        return
    table = _with_sides(table, names)
    heads = [head.strip().lower() for head in table.head]
    for sides in SIDES:
        if sides.keys() <= {*heads}:
            heads = [sides.get(head, head) for head in heads]
    if "less" in heads:
        yield from _pairs(table, heads, names)
    elif found := re.fullmatch(r"(.+): the others (?:less|−) (.+)", table.title):
        leader = names.whole(found[2])
        where = "" if found[1] == "Overall" else found[1]
        for row in table.rows:
            other = names.whole(row[0])
            if leader and other:
                yield from _of_pair(other, leader, where, dict(zip(heads[3:], row[3:], strict=True)))
                for model, head, cell in zip((leader, other), heads[1:], row[1:], strict=False):
                    name = "score of shared" if head.endswith(", shared") else "score"
                    yield from _named(name, (model, *_of_shared(name, leader, other), where), cell)
    elif (pair := next(filter(None, (_pair_in(head, names) for head in table.head)), None)) is not None:
        yield from _of_heads(table, pair, names)
    else:
        yield from _by_model(table, heads, names)


def _with_sides(table: FaceTable, names: FolderNames) -> FaceTable:
    """The same with the models in its headings that its title names: ``a: A  b: B``, or ``B − A``."""
    said = {}
    if sides := re.fullmatch(r"a: (.+)  b: (.+)", table.title):
        ends = {"a": sides[1], "b": sides[2], "b − a": f"{sides[2]} − {sides[1]}"}
        said = {**ends, **{f"{side}, shared": f"{ends[side]}, shared" for side in "ab"}}
    elif _pair_in(table.title, names):
        said = {"difference": table.title}
    return table._replace(head=[said.get(head, head) for head in table.head])


def _pair_in(heading: str, names: FolderNames) -> tuple[str, str] | None:
    """The two models of a column of differences."""
    first, minus, second = heading.partition(" − ")
    a, b = names.whole(first), names.whole(second)
    return (a, b) if minus and a and b else None


def _of_heads(
    table: FaceTable, pair: tuple[str, str], names: FolderNames
) -> Iterator[tuple[Key, Printed | str]]:
    """A table whose columns are two models and their difference, and whose rows are tasks and parts."""
    heads = ["difference" if _pair_in(head, names) else head.lower() for head in table.head]
    for row in table.rows:
        where = "" if row[0] == "overall" else row[0].replace(": ", " · ")
        yield from _of_pair(*pair, where, dict(zip(heads, row, strict=True)))
        for head, cell in zip(table.head, row, strict=True):
            bare = head.removesuffix(", shared")
            if (model := names.whole(bare)) is not None:
                name = "score" if bare == head else "score of shared"
                yield from _named(name, (model, *_of_shared(name, *pair), where), cell)


def _of_shared(name: str, first: str, second: str) -> Key:
    """The pair whose shared scores a mean is over; a score is of no pair."""
    return () if name == "score" else ("|".join(sorted((first, second))),)


def _pairs(table: FaceTable, heads: list[str], names: FolderNames) -> Iterator[tuple[Key, Printed | str]]:
    for row in table.rows:
        cells = dict(zip(heads, row, strict=True))
        first, second = names.whole(cells["student"]), names.whole(cells["less"])
        if first and second:
            yield from _of_pair(first, second, where := _where(cells), cells)
            for model, heading in ((first, "score, shared"), (second, "baseline score, shared")):
                shared = _of_shared("", first, second)
                yield from _named("score of shared", (model, *shared, where), cells.get(heading))


def _of_pair(
    first: str, second: str, where: str, cells: Mapping[str, Any]
) -> Iterator[tuple[Key, Printed | str]]:
    """A pair's figures, as the difference of its first name by the alphabet less the other."""
    sign, pair = (1 if first < second else -1), "|".join(sorted((first, second)))
    for heading, cell in cells.items():
        name = HEADINGS.get(heading)
        if name is None or name not in OF_PAIRS:
            continue
        parts = dict(cell_figures(name, cell))
        for end, word in (("low", "from"), ("high", "to")):
            if (value := cells.get(f"{heading}, {word}")) is not None:
                parts[f"{name} {end}"] = Printed(value)
        for part, figure in parts.items():
            shown = OF_PAIRS[name] + part.removeprefix(name)
            if isinstance(figure, Printed) and name.startswith("difference") and not part.endswith("half"):
                figure = figure._replace(value=sign * figure.value)
                shown = _turned(shown) if sign < 0 else shown
            yield ("difference" if shown == "difference over judges" else shown, pair, where), figure


def _turned(name: str) -> str:
    """The end of an interval that this one becomes where its sign is turned."""
    return re.sub(r"(?<= )(low|high)$", lambda end: {"low": "high", "high": "low"}[end[0]], name)


def _by_model(table: FaceTable, heads: list[str], names: FolderNames) -> Iterator[tuple[Key, Printed | str]]:
    whose = next((at for at, head in enumerate(heads) if head in ("student", "model", "name")), None)
    titled = re.match(r"Labels of (\S+):", table.title)
    for row in table.rows if whose is not None else ():
        cells = dict(zip(heads, row, strict=True))
        model = names.whole(row[whose or 0])
        subset = {"ranks", "task"} <= cells.keys() and cells.get("scores", "all scores") != "all scores"
        if model is None or subset:
            continue
        where = titled[1] if titled else _where(cells)
        unscored = any(cells.get(head, 0) in (None, "–") for head in ("score", "overall"))
        in_part = any(heading in cells for heading in PARTS)
        for heading, cell in cells.items():
            name, place = _of_heading(heading, where, names)
            if name is None or (name in OF_PAIRS and name != "n") or (name == "n" and (unscored or in_part)):
                continue
            for part, figure in cell_figures(name, cell):
                yield (part, model, place), figure
            for end, word in (("low", "from"), ("high", "to")):
                if (value := cells.get(f"{heading}, {word}")) is not None:
                    yield (f"{name} {end}", model, place), Printed(value)


def _of_heading(heading: str, where: str, names: FolderNames) -> tuple[str | None, str]:
    """A column's figure, and where: one that a task heads is the task's score, or its labels' accuracy."""
    for task in names.tasks:
        if found := re.fullmatch(rf"{re.escape(task.lower())}( \(labels\)|: \w+)?", heading):
            return ("accuracy" if found[1] else "score"), task
    return HEADINGS.get(heading), where


def _where(cells: Mapping[str, Any]) -> str:
    if part := next((cells[heading] for heading in PARTS if heading in cells), None):
        return str(part)
    task = cells.get("task")
    return "" if task in (None, "–", "", "overall") else str(task).replace(": ", " · ")


def _named(name: str, subject: Key, cell: Any) -> Iterator[tuple[Key, Printed | str]]:
    for part, figure in cell_figures(name, cell):
        yield (part, *subject), figure


def contradictions(found: Mapping[Key, Sequence[Shown]]) -> list[str]:
    """Figures of one name that differ, each with what its faces print."""
    lines = []
    for key, shown in found.items():
        first = shown[0]
        if others := [each for each in shown[1:] if not first.agrees(each)]:
            lines.append(f"{' / '.join(key)}: {first}; {'; '.join(dict.fromkeys(map(str, others)))}")
    return lines


# --- Files of JSON


def of_records(
    name: str, records: Iterable[Mapping[str, Any]], columns: Mapping[str, str], shares: Iterable[str] = ()
) -> Face:
    """``columns``: by heading, the field that holds it; ``shares`` are headings of shares of the scale."""
    whole = set(shares)
    rows = [
        [_in_points(record.get(field), heading in whole) for heading, field in columns.items()]
        for record in records
    ]
    return Face(name, [FaceTable("", [*columns], rows)])


def _in_points(value: Any, is_share: bool) -> Any:
    return 100 * value if is_share and value is not None else value
