"""The items that benchmark teachers supply: files of one's own, checked line by line before a run starts.

A file is read as it was written and then stands as records. What cannot be used is a problem, what is only
worth a look a remark; each names file and line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from coeval.core.errors import ConfigError, UsageError
from coeval.core.plain_file import open_file
from coeval.core.records import Datapoint
from coeval.core.text import numbered
from coeval.judging.label_values import normalise
from coeval.pipeline.config.item_sources import ItemSource, item_files
from coeval.pipeline.config.schema import Config, TaskConfig
from coeval.pipeline.phases.own_item import BOM, OwnItem, read_item
from coeval.pipeline.plan.run_plan import Plan
from coeval.store.jsonl import store_error, write_bytes_atomic
from coeval.store.legacy import is_legacy
from coeval.store.rundir import RunDir

_FORM = "one JSON object a line, with `id`, `prompt` and, if there is one, `reference_response`"
_HOW = f"{_FORM} (see docs/items.md)"
_LISTED = 5
_MOST = 20


class Told(dict[str, list[int]]):
    """What is said of a file's lines: each sentence with the numbers of its lines, from 1."""

    def note(self, sentence: str, number: int) -> None:
        self.setdefault(sentence, []).append(number)

    def of(self, path: Path) -> Iterator[str]:
        for sentence, (first, *others) in islice(self.items(), _MOST):
            listed = ", ".join(map(str, others[:_LISTED])) + (", …" if len(others) > _LISTED else "")
            lines = f"line {listed}" if len(others) == 1 else f"{len(others):,} more lines: {listed}"
            yield f"{path}:{first}: {sentence}" + (f" (also on {lines})" if others else "")
        if len(self) > _MOST:
            yield f"{path}: … and {len(self) - _MOST:,} more of the kind"


@dataclass(slots=True)
class ItemFile:
    """What one benchmark teacher supplies for one task.

    ``lines`` are its records as they are to stand, ``rewritten`` says that the file holds something else.
    ``ids`` maps each record's id to the line where it stood first.
    """

    path: Path
    source: ItemSource
    lines: list[bytes] = field(default_factory=list)
    rewritten: bool = False
    ids: dict[str, int] = field(default_factory=dict)
    problems: Told = field(default_factory=Told)
    remarks: Told = field(default_factory=Told)

    @property
    def missing(self) -> int:
        """How many items lack to the total that the task asks for."""
        return max(0, self.source.task.sampling.total - len(self.ids))

    def read(self) -> ItemFile:
        try:
            with open_file(self.path) as file:
                for number, text in enumerate(file, 1):
                    self._take(text, number)
        except OSError as error:
            raise store_error("read", self.path, error) from error
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
        self.lines.append(found.line)
        self.rewritten |= found.changed
        first = self.ids.setdefault(found.item.id, number)
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


@dataclass(frozen=True, slots=True)
class Supply:
    """The files of all benchmark teachers of a configuration; ``absent`` are those that are not there."""

    files: list[ItemFile]
    absent: dict[Path, ItemSource]

    @property
    def rewritten(self) -> Mapping[Path, list[bytes]]:
        """The records of files that do not hold them yet as they are to stand."""
        return {file.path: file.lines for file in self.files if file.rewritten}

    def remarks(self) -> Iterator[str]:
        for path, source in self.absent.items():
            yield (
                f"there are no items in {path} yet, and the run will not start without; "
                f"counted as {source.task.sampling.total:,}"
            )
        for file in self.files:
            yield from file.remarks.of(file.path)
            if file.missing:
                total = f"the {file.source.task.sampling.total:,} items that sampling.total asks for"
                yield f"{file.path} holds {len(file.ids):,} of {total}"

    def refuse_flawed(self) -> None:
        """
        Raises
        ------
        ConfigError
            lines cannot be used as items; it names them.
        """
        problems = [problem for file in self.files for problem in file.problems.of(file.path)]
        if problems:
            raise ConfigError([*problems, f"An item is {_HOW}."])

    def need_items(self) -> None:
        """
        Raises
        ------
        UsageError
            somebody supplies nothing; it names the file to be written.
        """
        empty = self.absent | {file.path: file.source for file in self.files if not file.ids}
        if empty:
            names = "\n".join(f"  {path} ({s.teacher} for task {s.task.name})" for path, s in empty.items())
            raise UsageError(f"there are no items in\n{names}\nWrite them there: {_HOW}.")

    def put(self, folder: RunDir) -> None:
        """Write what is to stand otherwise than it was written into the run's folder."""
        for file in self.files:
            if file.rewritten:
                place = folder.datapoints(file.source.task.name, file.source.teacher)
                write_bytes_atomic(place, b"".join(file.lines))


class ShortSupply(NamedTuple):
    """A benchmark teacher's file that holds fewer items than its task asks for; no model makes them."""

    path: Path
    task: str
    missing: int
    total: int

    @property
    def way_out(self) -> str:
        lines = numbered(self.missing, "line")
        there = self.total - self.missing
        return (
            f"add {lines} to {self.path} (docs/items.md), or set sampling.total of {self.task} to {there:,}"
        )


def short_supplies(plan: Plan, folder: RunDir) -> list[ShortSupply]:
    """The files that hold too few items for the plan, in its order."""
    short = []
    for setup in plan.setups:
        task, total = setup.task.name, setup.task.sampling.total
        for teacher, missing in plan.unsupplied(setup).items():
            if missing:
                short.append(ShortSupply(folder.datapoints(task, teacher), task, missing, total))
    return short


def read_supply(config: Config, folder: RunDir, taken: RunDir | None = None) -> Supply:
    """Read what lies in the run's folder; where there is nothing, in the one that phase 3 is taken over from.

    An older layout is read where it is converted.
    """
    supply = Supply([], {})
    for path, source in item_files(config, folder).items():
        theirs = taken.datapoints(source.task.name, source.teacher) if taken is not None else path
        found = next((place for place in (path, theirs) if place.exists()), None)
        if found is None:
            supply.absent[path] = source
        elif found == path or taken is None or not is_legacy(taken.path):
            supply.files.append(ItemFile(found, source).read())
    return supply
