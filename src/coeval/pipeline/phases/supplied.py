"""The items that benchmark teachers and tables supply: checked line by line before a run starts.

A file is read as it was written and then stands as records. What cannot be used is a problem, what is only
worth a look a remark; each names file and line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from coeval.core.errors import ConfigError, UsageError
from coeval.core.records import item_prefix
from coeval.core.regular_files import read_file_bytes
from coeval.core.text import join_names, pluralize
from coeval.pipeline.config.draft import OWN_ITEMS, ItemSource, list_item_writers, locate_item_files
from coeval.pipeline.config.items_section import Items
from coeval.pipeline.config.schema import Config, TaskConfig
from coeval.pipeline.phases.answer_file import AnswerFile
from coeval.pipeline.phases.item_file import (
    ITEM_FORM,
    ItemFile,
    item_map,
    made_item,
    refuse_flawed,
    source_of,
)
from coeval.pipeline.plan.run_plan import Plan
from coeval.store.jsonl import replace_file
from coeval.store.legacy import is_legacy
from coeval.store.rundir import RunDir, move_to_replaced
from coeval.tables.documents import CutDocuments, read_documents
from coeval.tables.harvest import Harvest, ItemOrigin, Selection, draw_sample, read_origins, write_origin
from coeval.tables.item_map import ItemMap
from coeval.tables.source_bytes import hash_file
from coeval.tables.table_source import TableSource

# --- Items from a table: ``tasks[].items``


def table_items(file: ItemFile, folder: RunDir) -> ItemFile:
    """Read the items of a task: those in the run's folder while they are what its table gives, else the
    table's rows, as many as are used, which are to be put there (``file.rewritten``). A table that is gone
    leaves those that are there."""
    items = file.source.task.items
    if items is None:  # nobody but a task with a table has such a file
        return file.read()
    needed, chosen = item_map(items), _selection(items, file.source.task.sampling.most)
    origins = read_origins(folder).get(file.source.task.name, {}).get(file.source.teacher, [])
    before = origins[-1] if origins and file.path.exists() else None
    try:
        source = source_of(items)
        files = [hash_file(path) for path in source.files] if before is not None else []
    except UsageError as error:
        if before is None:
            file.flaws.append(str(error))
            return file
        file.said.append(f"the items that were taken on {before.taken_at} are used: {error}")
        return file.read()
    if before is not None and before.matches(files, needed, chosen):
        return file.read()
    _take(file, source, needed, chosen, skip_bad=items.skip_bad)
    if before is not None and not before.matches(files, needed, before.selection):
        file.changed_since = before.taken_at
        file.said.append(
            f"{items.path}, or what is taken out of it, has changed since {before.taken_at}: "
            f"{pluralize(before.items, 'item')} then, {len(file.ids):,} now"
        )
    return file


def _selection(items: Items, most: int | None) -> Selection:
    """No more rows are read than are used; of a sample all are."""
    if items.sample is not None or most is None:
        return Selection(items.limit, items.sample, items.seed)
    return Selection(min(most, items.limit or most))


def _take(file: ItemFile, source: TableSource, needed: ItemMap, chosen: Selection, *, skip_bad: bool) -> None:
    names = (file.source.task.name, file.source.teacher)
    prefix, harvest = item_prefix(*names), Harvest(source.open_tables(), needed)
    for found in draw_sample(harvest.read_items(chosen.read_limit), chosen):
        made = made_item(found.item, prefix, names, found.place)
        file.add(made.line, made.item, found.line)
    file.rewritten = True
    (file.said if skip_bad else file.flaws).extend(harvest.describe_problems())
    if skip_bad and harvest.flawed:
        file.said.append(f"{source.name}: {pluralize(harvest.flawed, 'row')} without an item left out")
    if not file.ids and not file.flaws:
        unwanted = f"; {harvest.unwanted:,} do not meet `where`" if harvest.unwanted else ""
        file.flaws.append(f"{source.name}: of {pluralize(harvest.rows, 'row')} none makes an item{unwanted}")
    file.said += [f"{source.name}: {sentence}" for sentence in harvest.describe_gaps(chosen)]
    file.origin = ItemOrigin.from_harvest(source, harvest, chosen, len(file.ids))


# Of a warning, which is one line or two.
_NAMED = 6


@dataclass(frozen=True, slots=True)
class Supply:
    """The files of all benchmark teachers of a configuration; ``absent`` are those that are not there.
    ``answers`` are the files of students whose answers exist, ``documents`` those of tasks, by name."""

    files: list[ItemFile]
    absent: dict[Path, ItemSource]
    answers: list[AnswerFile] = field(default_factory=list)
    documents: dict[str, CutDocuments] = field(default_factory=dict)

    @property
    def rewritten(self) -> Mapping[Path, list[bytes]]:
        """The records of files that do not hold them yet as they are to stand."""
        items = {file.path: file.lines for file in self.files if file.rewritten}
        return items | {file.path: file.lines for file in self.answers if file.rewritten}

    def remarks(self) -> Iterator[str]:
        for path, source in self.absent.items():
            yield (
                f"there are no items in {path} yet, and the run will not start without; "
                f"counted as {source.task.sampling.total:,}"
            )
        for file in self.files:
            yield from file.said
            yield from file.remarks.format_lines(file.path)
            yield from _untold_labels(file)
            if file.missing:
                total = f"the {file.source.task.sampling.total:,} items that sampling.total asks for"
                yield f"{file.path} holds {len(file.ids):,} of {total}"
        for answers in self.answers:
            yield from answers.said
        for documents in self.documents.values():
            yield from documents.omissions

    def refuse_flawed(self) -> None:
        """Raises ConfigError where lines cannot be used as items or answers; it names them."""
        refuse_flawed(self.files)
        if flaws := [flaw for file in self.answers for flaw in file.flaws]:
            raise ConfigError(flaws)

    def need_items(self) -> None:
        """
        Raises UsageError: somebody supplies nothing; it names the file to be written.
        """
        empty = self.absent | {file.path: file.source for file in self.files if not file.ids}
        if empty:
            names = "\n".join(f"  {path} ({s.teacher} for task {s.task.name})" for path, s in empty.items())
            raise UsageError(
                f"there are no items in\n{names}\nPut them there: `coeval ingest TABLE --config FILE` takes "
                "them out of CSV, JSON lines, Parquet or a named benchmark; or write them there, "
                f"{ITEM_FORM}."
            )

    @property
    def changes(self) -> bool:
        """Whether items stand in the run's folder that a table replaces now."""
        return any(file.origin is not None and file.path.exists() for file in self.files)

    def changed_tables(self) -> dict[str, str]:
        """By task, the table that is another one since items or answers were taken out of it, in words."""
        changed = {
            file.task: f"answers of {file.student} in {file.table}, which have changed"
            for file in self.answers
            if file.changed
        }
        return changed | {
            file.source.task.name: _changed_table(items, file.changed_since)
            for file in self.files
            if file.changed_since and (items := file.source.task.items) is not None
        }

    def put(self, folder: RunDir) -> None:
        """Write what is to stand otherwise than it was written into the run's folder. What the rows of a
        table replace moves to ``replaced/``."""
        for answers in self.answers:
            if answers.rewritten:
                if answers.changed:
                    move_to_replaced(folder, [answers.path])
                with replace_file(answers.path) as target:
                    target.writelines(answers.lines)
        for file in self.files:
            if file.rewritten:
                task, teacher = file.source.task.name, file.source.teacher
                place = folder.datapoints(task, teacher)
                taken = file.origin is not None and place.exists()
                if taken and not b"".join(file.lines).startswith(read_file_bytes(place)):
                    move_to_replaced(folder, [place])
                with replace_file(place) as target:
                    target.writelines(file.lines)
                if file.origin is not None:
                    write_origin(folder, (task, teacher), file.origin)

    def forget(self) -> None:
        """Drop lines and ids, once they are put: a million of them would stay as long as the run."""
        for file in self.files:
            file.ids.clear()
            file.lines.clear()
        for answers in self.answers:
            answers.lines.clear()


def _untold_labels(file: ItemFile) -> Iterator[str]:
    """The labels whose values no prompt of students names."""
    task, declared = file.source.task, file.source.task.target_attributes
    if task.output_description.strip() or any(key.split(".")[0] == "test" for key in task.prompt_library):
        return
    for label, values in file.label_values.items():
        if isinstance(declared, dict) and label not in declared:
            yield (
                f"the students of {task.name} are not told which values {label} has "
                f"({join_names(sorted(values), _NAMED)}): name them in its output_description, or declare "
                "them in target_attributes"
            )


def _changed_table(items: Items, since: str) -> str:
    said = f"rows of {items.path}: it, or what is taken out of it, has changed since {since}"
    if items.id is not None:
        return said
    return (
        f"{said}. Its rows have no id and are numbered, so that one put in between moves all below it to "
        "other numbers; `items.id: COLUMN` avoids that from the start of a run on"
    )


class ShortSupply(NamedTuple):
    """A benchmark teacher's file that holds fewer items than its task asks for; no model makes them. So it is
    with a table that holds fewer answers of a ``student`` than there are items. ``gone``: the file was taken
    out of a table, and is not there."""

    path: Path
    task: str
    missing: int
    total: int = 0
    student: str = ""
    gone: bool = False

    @property
    def way_out(self) -> str:
        if self.gone:
            return (
                f"their file {self.path} is missing, and coeval run --continue writes it again, with no call"
            )
        if self.student:
            return f"add {pluralize(self.missing, 'answer')} of {self.student} to {self.path}"
        lines = pluralize(self.missing, "line")
        there = self.total - self.missing
        return (
            f"add {lines} to {self.path} (docs/items.md), or set sampling.total of {self.task} to {there:,}"
        )


def with_found_labels(config: Config, supply: Supply) -> Config:
    """The configuration with the values of labels that it does not declare as the items have them, sorted; of
    tasks that are supplied with all their items."""
    found: dict[str, dict[str, set[str]]] = {}
    for file in supply.files:
        values = found.setdefault(file.source.task.name, {})
        for label, of in file.label_values.items():
            values.setdefault(label, set()).update(of)
    return config.model_copy(
        update={"tasks": [_with_labels(config, task, found.get(task.name, {})) for task in config.tasks]}
    )


def _with_labels(config: Config, task: TaskConfig, found: Mapping[str, set[str]]) -> TaskConfig:
    declared = task.target_attributes
    if not isinstance(declared, dict) or list_item_writers(config, task):
        return task
    undeclared = {label: sorted(values) for label, values in found.items() if label not in declared}
    return task.model_copy(update={"target_attributes": {**declared, **undeclared}}) if undeclared else task


def short_supplies(plan: Plan, folder: RunDir) -> list[ShortSupply]:
    """The files that hold too few items for the plan, in its order."""
    short, origins = [], read_origins(folder)
    for setup in plan.setups:
        task, total = setup.task.name, setup.task.sampling.most or 0
        for teacher, missing in plan.unsupplied(setup).items():
            path, taken = folder.datapoints(task, teacher), origins.get(task, {}).get(teacher)
            if teacher == OWN_ITEMS and taken and not path.exists():
                short.append(ShortSupply(path, task, taken[-1].items, total, gone=True))
            elif missing:
                short.append(ShortSupply(path, task, missing, total))
    return short


def short_answers(unanswered: Mapping[tuple[str, str], int], config: Config) -> list[ShortSupply]:
    """The tables that hold too few answers, by task and student."""
    return [
        ShortSupply(_table_of(config, task, student), task, missing, student=student)
        for (task, student), missing in unanswered.items()
    ]


def _table_of(config: Config, task: str, student: str) -> Path:
    """Where the answers of a student to a task are taken from."""
    items = next(each.items for each in config.tasks if each.name == task)
    if items is not None and student in items.responses:
        return Path(items.path)
    return Path(next(each.responses.path for each in config.students if each.name == student))


def stored_supply(config: Config, folder: RunDir) -> Supply:
    """What lies in the run's folder, whatever has become of the tables that it was taken out of."""
    supply = Supply([], {})
    for path, source in locate_item_files(config, folder).items():
        if path.exists():
            supply.files.append(ItemFile(path, source).read())
        else:
            supply.absent[path] = source
    return supply


def read_supply(config: Config, folder: RunDir, taken: RunDir | None = None) -> Supply:
    """Read what lies in the run's folder; where there is nothing, in the one that phase 3 is taken over from.
    A table that the file names is read where it is not the one that the items there were taken out of.

    An older layout is read where it is converted. Documents that are gone leave the items made from them.
    """
    supply = Supply([], {}, documents=dict(_documents(config, folder)))
    for path, source in locate_item_files(config, folder).items():
        if source.teacher == OWN_ITEMS:
            supply.files.append(table_items(ItemFile(path, source), folder))
            continue
        theirs = taken.datapoints(source.task.name, source.teacher) if taken is not None else path
        found = next((place for place in (path, theirs) if place.exists()), None)
        if found is None:
            supply.absent[path] = source
        elif found == path or taken is None or not is_legacy(taken.path):
            supply.files.append(ItemFile(found, source).read())
    return supply


def _documents(config: Config, folder: RunDir) -> Iterator[tuple[str, CutDocuments]]:
    """Raises UsageError: they cannot be read, and no item of the task was made from them yet."""
    for task in config.tasks:
        if (section := task.documents) is None:
            continue
        writers = list_item_writers(config, task)
        try:
            found = read_documents(Path(section.path), section.chunk)
        except UsageError as error:
            if any(folder.datapoints(task.name, teacher).exists() for teacher in writers):
                continue
            raise UsageError(f"tasks.{task.name}.documents: {error}") from None
        if len(found.passages) < section.per_item:
            raise UsageError(
                f"tasks.{task.name}.documents.per_item is {section.per_item}, and {section.path} makes "
                f"{pluralize(len(found.passages), 'passage')} only"
            )
        yield task.name, found
