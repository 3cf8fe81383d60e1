"""Items and answers that people supply: checked line by line before a run starts, and written into its
folder.

A line that cannot be used is a flaw or problem, an odd one a remark; each names file and line.
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
from coeval.pipeline.config.draft import OWN_ITEMS, ItemSource, list_models_writing_items, locate_item_files
from coeval.pipeline.config.items_section import Items
from coeval.pipeline.config.schema import Config, TaskConfig
from coeval.pipeline.phases.answer_file import AnswerFile
from coeval.pipeline.phases.item_file import ITEM_FORM, ItemFile, build_item, build_item_map, find_item_source
from coeval.pipeline.plan.run_plan import Plan
from coeval.store.jsonl import replace_file
from coeval.store.legacy import is_legacy
from coeval.store.rundir import RunDir, move_to_replaced
from coeval.tables.documents import CutDocuments, read_documents
from coeval.tables.harvest import Harvest, ItemOrigin, Selection, read_origins, sample_if_set, write_origin
from coeval.tables.item_map import ItemMap
from coeval.tables.source_bytes import hash_file
from coeval.tables.table_source import TableSource

# --- Items from a table: ``tasks[].items``


def read_run_or_changed_items(file: ItemFile, folder: RunDir) -> ItemFile:
    """Read the items of a task: the run's own file while it matches the table, else as many rows as are used,
    which are then to be written there (``file.rewritten``). If the table is gone, existing items stay."""
    items = file.source.task.items
    if items is None:  # nobody but a task with a table has such a file
        return file.read()
    needed, chosen = build_item_map(items), _choose_rows(items, file.source.task.sampling.max_items)
    origins = read_origins(folder).get(file.source.task.name, {}).get(file.source.teacher, [])
    before = origins[-1] if origins and file.path.exists() else None
    try:
        source = find_item_source(items)
        files = [hash_file(path) for path in source.files] if before is not None else []
    except UsageError as error:
        if before is None:
            file.flaws.append(str(error))
            return file
        file.notes.append(f"the items imported on {before.taken_at} are used: {error}")
        return file.read()
    if before is not None and before.matches(files, needed, chosen):
        return file.read()
    _read_rows(file, source, needed, chosen, skip_bad=items.skip_bad)
    if before is not None and not before.matches(files, needed, before.selection):
        file.changed_since = before.taken_at
        file.notes.append(
            f"{items.path}, or what is imported from it, has changed since {before.taken_at}: "
            f"{pluralize(before.items, 'item')} then, {len(file.ids):,} now"
        )
    return file


def _choose_rows(items: Items, max_items: int | None) -> Selection:
    """Choose the rows to read: no more than are used, but all to draw a sample."""
    if items.sample is not None or max_items is None:
        return Selection(items.limit, items.sample, items.seed)
    return Selection(min(max_items, items.limit or max_items))


def _read_rows(
    file: ItemFile, source: TableSource, needed: ItemMap, chosen: Selection, *, skip_bad: bool
) -> None:
    """Read the selected rows of a table as items of the file."""
    task, teacher = file.source.task.name, file.source.teacher
    prefix, harvest = item_prefix(task, teacher), Harvest(source.open_tables(), needed)
    for row in sample_if_set(harvest.read_items(chosen.read_limit), chosen):
        made = build_item(row, prefix, task, teacher)
        file.add_record_and_find_first_line(made.line, made.item, row.line)
    file.rewritten = True
    (file.notes if skip_bad else file.flaws).extend(harvest.describe_problems())
    if skip_bad and harvest.flawed:
        file.notes.append(f"{source.name}: {pluralize(harvest.flawed, 'row')} without an item left out")
    if not file.ids and not file.flaws:
        unwanted = f"; {harvest.unwanted:,} do not meet `where`" if harvest.unwanted else ""
        file.flaws.append(f"{source.name}: none of {pluralize(harvest.rows, 'row')} makes an item{unwanted}")
    file.notes += [f"{source.name}: {sentence}" for sentence in harvest.describe_few_or_partial_items(chosen)]
    file.origin = ItemOrigin.from_harvest(source, harvest, chosen, len(file.ids))


# Of a warning, which is one line or two.
_NAMED = 6


@dataclass(frozen=True, slots=True)
class Supply:
    """Supplied items of benchmark teachers (``absent``: none yet), existing answers, documents by task."""

    files: list[ItemFile]
    absent: dict[Path, ItemSource]
    answers: list[AnswerFile] = field(default_factory=list)
    documents: dict[str, CutDocuments] = field(default_factory=dict)

    @property
    def unwritten_lines(self) -> Mapping[Path, list[bytes]]:
        """Return the records that files are to hold and do not hold yet."""
        items = {file.path: file.lines for file in self.files if file.rewritten}
        return items | {file.path: file.lines for file in self.answers if file.rewritten}

    def list_remarks(self) -> Iterator[str]:
        """Yield what users should know of missing, odd or incomplete supplied items and answers."""
        for path, source in self.absent.items():
            yield (
                f"there are no items in {path} yet, and the run will not start without them; "
                f"counted as {source.task.sampling.total:,}"
            )
        for file in self.files:
            yield from file.notes
            yield from file.remarks.format_lines(file.path)
            yield from _describe_labels_hidden_from_students(file)
            if file.missing:
                total = f"the {file.source.task.sampling.total:,} items that sampling.total requires"
                yield f"{file.path} holds {len(file.ids):,} of {total}"
        for answers in self.answers:
            yield from answers.notes
        for documents in self.documents.values():
            yield from documents.omissions

    def refuse_flawed_lines(self) -> None:
        """Raise ConfigError if lines cannot be used as items or answers; it names them."""
        problems = {file.path: [*file.problems.format_lines(file.path)] for file in self.files}
        flaws = [sentence for file in self.files for sentence in (*file.flaws, *problems[file.path])]
        if any(problems.values()):
            flaws.append(f"An item is {ITEM_FORM}.")
        if flaws := flaws or [flaw for file in self.answers for flaw in file.flaws]:
            raise ConfigError(flaws)

    def refuse_teachers_without_items(self) -> None:
        """Raise UsageError if a teacher supplies nothing; it names the file to be written."""
        empty = self.absent | {file.path: file.source for file in self.files if not file.ids}
        if empty:
            names = "\n".join(f"  {path} ({s.teacher} for task {s.task.name})" for path, s in empty.items())
            raise UsageError(
                f"there are no items in\n{names}\nPut them there: `coeval ingest TABLE --config FILE` takes "
                "them out of CSV, JSON lines, Parquet or a named benchmark; or write them there, "
                f"{ITEM_FORM}."
            )

    def describe_changed_tables_by_task(self) -> dict[str, str]:
        """Describe by task the tables that have changed since items or answers were read from them."""
        changed = {
            file.task: f"answers of {file.student} in {file.table}, which have changed"
            for file in self.answers
            if file.changed
        }
        return changed | {
            file.source.task.name: _describe_changed_table(items, file.changed_since)
            for file in self.files
            if file.changed_since and (items := file.source.task.items) is not None
        }

    def write_items_and_answers(self, folder: RunDir) -> None:
        """Write changed items and answers into the run's folder; what they replace moves to ``replaced/``."""
        for answers in self.answers:
            if answers.rewritten:
                if answers.changed:
                    move_to_replaced(folder, [answers.path])
                with replace_file(answers.path) as target:
                    target.writelines(answers.lines)
        for file in self.files:
            if file.rewritten:
                task, teacher = file.source.task.name, file.source.teacher
                target_path = folder.datapoints(task, teacher)
                is_copied = file.origin is not None and target_path.exists()
                if is_copied and not b"".join(file.lines).startswith(read_file_bytes(target_path)):
                    move_to_replaced(folder, [target_path])
                with replace_file(target_path) as target:
                    target.writelines(file.lines)
                if file.origin is not None:
                    write_origin(folder, (task, teacher), file.origin)

    def drop_lines(self) -> None:
        """Clear lines and ids once they are written: a million of them would stay as long as the run."""
        for file in self.files:
            file.ids.clear()
            file.lines.clear()
        for answers in self.answers:
            answers.lines.clear()


def _describe_labels_hidden_from_students(file: ItemFile) -> Iterator[str]:
    """Name labels whose values no prompt of students names."""
    task, declared = file.source.task, file.source.task.target_attributes
    if task.output_description.strip() or any(key.split(".")[0] == "test" for key in task.prompt_library):
        return
    for label, values in file.label_values.items():
        if isinstance(declared, dict) and label not in declared:
            yield (
                f"the students of {task.name} are not shown the values of {label} "
                f"({join_names(sorted(values), _NAMED)}): name them in its output_description, or declare "
                "them in target_attributes"
            )


def _describe_changed_table(items: Items, since: str) -> str:
    sentence = f"rows of {items.path}: it, or what is imported from it, has changed since {since}"
    if items.id is not None:
        return sentence
    return (
        f"{sentence}. Its rows have no id and are numbered, so that one put in between moves all below it to "
        "other numbers; `items.id: COLUMN` avoids that from the start of a run on"
    )


class ShortSupply(NamedTuple):
    """A file of supplied items that holds fewer than its task asks for, or of a ``student``'s answers with
    fewer than there are items. ``gone``: it was copied from a table, and is missing."""

    path: Path
    task: str
    missing: int
    total: int = 0
    student: str = ""
    gone: bool = False

    @property
    def remedy(self) -> str:
        if self.gone:
            return f"their file {self.path} is missing; resuming the run rewrites it, without a call"
        if self.student:
            return f"add {pluralize(self.missing, 'answer')} of {self.student} to {self.path}"
        lines = pluralize(self.missing, "line")
        existing = self.total - self.missing
        lower = f"set sampling.total of {self.task} to {existing:,}"
        return f"add {lines} to {self.path} (docs/items.md), or {lower}"


def declare_item_labels(config: Config, supply: Supply) -> Config:
    """Declare label values of the items, sorted, in tasks that have supplied items only."""
    values_by_task: dict[str, dict[str, set[str]]] = {}
    for file in supply.files:
        values = values_by_task.setdefault(file.source.task.name, {})
        for label, texts in file.label_values.items():
            values.setdefault(label, set()).update(texts)
    return config.model_copy(
        update={
            "tasks": [
                _declare_labels(config, task, values_by_task.get(task.name, {})) for task in config.tasks
            ]
        }
    )


def _declare_labels(config: Config, task: TaskConfig, values_by_label: Mapping[str, set[str]]) -> TaskConfig:
    declared = task.target_attributes
    if not isinstance(declared, dict) or list_models_writing_items(config, task):
        return task
    undeclared = {label: sorted(values) for label, values in values_by_label.items() if label not in declared}
    return task.model_copy(update={"target_attributes": {**declared, **undeclared}}) if undeclared else task


def find_short_supplies(plan: Plan, folder: RunDir) -> list[ShortSupply]:
    """List the files that hold too few items for the plan, in its order."""
    short, origins = [], read_origins(folder)
    for setup in plan.setups:
        task, total = setup.task.name, setup.task.sampling.max_items or 0
        for teacher, missing in plan.count_unsupplied_items(setup).items():
            path, item_origins = folder.datapoints(task, teacher), origins.get(task, {}).get(teacher)
            if teacher == OWN_ITEMS and item_origins and not path.exists():
                short.append(ShortSupply(path, task, item_origins[-1].items, total, gone=True))
            elif missing:
                short.append(ShortSupply(path, task, missing, total))
    return short


def list_short_answer_tables(unanswered: Mapping[tuple[str, str], int], config: Config) -> list[ShortSupply]:
    """List the tables that hold too few answers, by task and student."""
    return [
        ShortSupply(_locate_answer_table(config, task, student), task, missing, student=student)
        for (task, student), missing in unanswered.items()
    ]


def _locate_answer_table(config: Config, task: str, student: str) -> Path:
    items = next(entry.items for entry in config.tasks if entry.name == task)
    if items is not None and student in items.responses:
        return Path(items.path)
    return Path(next(entry.responses.path for entry in config.students if entry.name == student))


def read_stored_supply(config: Config, folder: RunDir) -> Supply:
    """Read supplied items from the run's folder alone, whatever has become of their tables."""
    supply = Supply([], {})
    for path, source in locate_item_files(config, folder).items():
        if path.exists():
            supply.files.append(ItemFile(path, source).read())
        else:
            supply.absent[path] = source
    return supply


def read_supply(config: Config, folder: RunDir, source_run: RunDir | None = None) -> Supply:
    """Read supplied items from the run's folder, else from the run that phase 3 inherits from; tables if they
    have changed. An older layout is read when it is converted. If documents are gone, their items stay."""
    supply = Supply([], {}, documents=dict(_read_documents_by_task(config, folder)))
    for path, source in locate_item_files(config, folder).items():
        if source.teacher == OWN_ITEMS:
            supply.files.append(read_run_or_changed_items(ItemFile(path, source), folder))
            continue
        theirs = source_run.datapoints(source.task.name, source.teacher) if source_run is not None else path
        existing = next((path_ for path_ in (path, theirs) if path_.exists()), None)
        if existing is None:
            supply.absent[path] = source
        elif existing == path or source_run is None or not is_legacy(source_run.path):
            supply.files.append(ItemFile(existing, source).read())
    return supply


def _read_documents_by_task(config: Config, folder: RunDir) -> Iterator[tuple[str, CutDocuments]]:
    """Read the documents of tasks. Raises UsageError: they cannot be read, and no item was made yet."""
    for task in config.tasks:
        if (section := task.documents) is None:
            continue
        writers = list_models_writing_items(config, task)
        try:
            cut = read_documents(Path(section.path), section.chunk)
        except UsageError as error:
            if any(folder.datapoints(task.name, teacher).exists() for teacher in writers):
                continue
            raise UsageError(f"tasks.{task.name}.documents: {error}") from None
        if len(cut.passages) < section.per_item:
            raise UsageError(
                f"tasks.{task.name}.documents.per_item is {section.per_item}, and {section.path} makes "
                f"{pluralize(len(cut.passages), 'passage')} only"
            )
        yield task.name, cut
