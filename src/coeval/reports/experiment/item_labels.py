"""What people read in place of an item's id: its number and the first words of its prompt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from coeval.analysis.readers.run_reader import RunReader
from coeval.core.plain import plain
from coeval.core.records import SEPARATOR, id_fields, item_number
from coeval.reports.content import ReportSection

# Of a prompt: enough to know it again, in a cell beside figures.
_WORDS, _CHARACTERS = 6, 44
_NAME = "item"


def item_labels(reader: RunReader, sections: Iterable[ReportSection]) -> dict[str, str]:
    """Label each item that a table of the sections names; raises as `RunReader.texts`.

    No two labels are alike: teachers number their items each for itself, so that a number that several have
    stands with its teacher's name; an item that would look like another keeps its id.
    """
    items = {
        str(row[place])
        for section in sections
        for table in section.tables
        for place, column in enumerate(table.columns)
        if column.name == _NAME
        for row in table.rows
    }
    numbers = Counter(item_number(item) for item in items)
    texts = reader.texts(sorted(items)) if items else {}
    found: dict[str, str] = {}
    for item in sorted(items):
        text = texts.get(item)
        words = _opening(text.prompt or "") if text is not None else ""
        of = f" {id_fields(item)[1]}" if numbers[item_number(item)] > 1 and item.count(SEPARATOR) > 1 else ""
        found[item] = plain(f"{_number(item)}{of} {words}".rstrip())
    alike = Counter(found.values())
    return {item: label for item, label in found.items() if alike[label] == 1}


def _number(item: str) -> str:
    """``#17``, or of an item of the user's own ``#`` and its own id."""
    number = item_number(item)
    return f"#{number}" if number is not None else f"#{item.rpartition(SEPARATOR)[2]}"


def _opening(prompt: str) -> str:
    """The first words of a prompt, in one line."""
    words = prompt.split()
    shown = " ".join(words[:_WORDS])
    cut = len(words) > _WORDS or len(shown) > _CHARACTERS
    return f"“{shown[:_CHARACTERS].rstrip()}{'…' if cut else ''}”" if shown else ""
