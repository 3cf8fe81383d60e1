"""A file of items of one's own: read line by line, and each line told that cannot be used or looks odd."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path

from coeval.core.errors import ConfigError
from coeval.core.plain_file import open_file
from coeval.core.records import Datapoint
from coeval.judging.label_values import normalise
from coeval.pipeline.config.item_sources import ItemSource
from coeval.pipeline.config.schema import TaskConfig
from coeval.pipeline.phases.own_item import BOM, OwnItem, read_item
from coeval.store.jsonl import store_error
from coeval.tables.origin import ItemOrigin
from coeval.tables.table_row import Told

ITEM_FORM = (
    "one JSON object a line: `id`, `prompt` and, if there is one, `reference_response` (docs/items.md)"
)


@dataclass(slots=True)
class ItemFile:
    """What one benchmark teacher supplies for one task.

    ``lines`` are its records as they are to stand, ``rewritten`` says that the file holds something else.
    ``ids`` maps each record's id to the line where it stood first, ``label_values`` each label attribute to
    the values that items have. Where they were taken out of a table, ``origin`` tells of it,
    ``changed_since`` when they were before, if it (or what is taken) is another one since, ``flaws`` are
    its rows that make no item, and ``said`` is worth a look.
    """

    path: Path
    source: ItemSource
    lines: list[bytes] = field(default_factory=list)
    rewritten: bool = False
    ids: dict[str, int] = field(default_factory=dict)
    problems: Told = field(default_factory=Told)
    remarks: Told = field(default_factory=Told)
    label_values: dict[str, dict[str, None]] = field(default_factory=dict)
    origin: ItemOrigin | None = None
    changed_since: str = ""
    flaws: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    @property
    def missing(self) -> int:
        """How many items lack to the total that the task asks for."""
        return max(0, (self.source.task.sampling.most or 0) - len(self.ids))

    def wrong(self) -> list[str]:
        """What cannot be used, a sentence a line."""
        return [*self.flaws, *self.problems.of(self.path)]

    def add(self, line: bytes, item: Datapoint, number: int) -> int:
        """Take a record in; the line where its id stood first."""
        self.lines.append(line)
        for label in self.source.task.label_attributes:
            if (value := item.sampled_target_attributes.get(label)) is not None:
                self.label_values.setdefault(label, {})[value] = None
        return self.ids.setdefault(item.id, number)

    def read(self) -> ItemFile:
        try:
            with open_file(self.path) as file:
                for number, text in enumerate(file, 1):
                    self._take(text, number)
        except OSError as error:
            raise store_error("read", self.path, error) from error
        if not self.rewritten:
            self.lines.clear()  # the file holds them
        return self

    def _take(self, text: bytes, number: int) -> None:
        if text.startswith(BOM):
            self.rewritten = True
            self.remarks.note("a byte order mark is left out", number)
        if not text.removeprefix(BOM).strip():
            self.rewritten = True
            self.remarks.note("the line is blank", number)
            return
        found = read_item(text, self.source.task.name, self.source.teacher)
        if isinstance(found, str):
            self.problems.note(found, number)
            return
        self.rewritten |= found.changed
        first = self.add(found.line, found.item, number)
        if first != number:
            self.remarks.note(
                f"the id {found.item.id} stood on line {first} already; the last one counts", number
            )
        for remark in _remarks(found, self.source.task):
            self.remarks.note(remark, number)


def _remarks(found: OwnItem, task: TaskConfig) -> Iterator[str]:
    attributes, declared = found.item.sampled_target_attributes, task.target_attributes
    labels = tuple(task.label_attributes)
    for name in found.unused:
        yield f"the field `{name}` is not used" + _meant(name, labels)
    for label in labels:
        values = declared.get(label) if isinstance(declared, dict) else None
        if label not in attributes:
            without = f"the label {label} has no value in `sampled_target_attributes`, and is not compared"
            near = get_close_matches(label, attributes.keys() - {*labels}, n=1)
            yield f"{without}; {near[0]} has one: is {label} meant?" if near else without
        elif values is not None and normalise(attributes[label]) not in map(normalise, values):
            yield f"the label {label} is {attributes[label]}, which target_attributes does not declare"


@lru_cache
def _meant(name: str, labels: tuple[str, ...]) -> str:
    """What a field that no record has was probably meant to be: a label's value, or a field."""
    if near := get_close_matches(name, labels, n=1):
        return f'; values of labels stand in `sampled_target_attributes`: {{"{near[0]}": …}}'
    near = get_close_matches(name, Datapoint.__struct_fields__, n=1)
    return f"; is `{near[0]}` meant?" if near else ""


def refuse_flawed(files: Iterable[ItemFile]) -> None:
    """
    Raises
    ------
    ConfigError
        lines cannot be used as items; it names them.
    """
    flawed = [(file, wrong) for file in files if (wrong := file.wrong())]
    if flawed:
        written = any(not file.flaws for file, _ in flawed)
        how = [f"An item is {ITEM_FORM}."] if written else []
        raise ConfigError([*(sentence for _, wrong in flawed for sentence in wrong), *how])
