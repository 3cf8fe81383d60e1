"""Existing answers: tables of students that are not called, matched with the items of a run.

A student's file of phase 4 is made from its table at each start: a record for each item with an answer
there. So an added, changed or removed row is noticed, and its judgments are owed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

import msgspec

from coeval.core.errors import UsageError
from coeval.core.model import MAX_ANSWER_BYTES
from coeval.core.records import Response, is_good, item_prefix, response_id
from coeval.core.regular_files import open_file
from coeval.core.text import cut_to_bytes
from coeval.engine.model_work import Recipe
from coeval.pipeline.config.items_section import AnswerTable
from coeval.pipeline.config.schema import Config, TaskConfig
from coeval.pipeline.phases.item_file import build_item_map, find_item_source
from coeval.pipeline.plan.recipes import hash_answer_input
from coeval.store.jsonl import store_error
from coeval.store.record_index import NO_LINES, RecordFiles, RecordPart
from coeval.store.rundir import RunDir
from coeval.tables.harvest import Harvest
from coeval.tables.item_map import ItemMap
from coeval.tables.source_bytes import LineMessages
from coeval.tables.table_source import SourceChoice, TableSource, find_local_source

EXISTING_ANSWERS = Recipe.of({"interface": "answers that exist"})
"""The recipe of answers that nobody was asked for; what they say is noticed by what follows from them."""

_ENCODER = msgspec.json.Encoder()
_RESPONSE = "response"


def build_answer_map(table: AnswerTable) -> ItemMap:
    """Return which columns of a table of answers are read, and which identify rows."""
    return ItemMap(prompt=table.id or table.prompt or "", attributes={_RESPONSE: table.response}, id=table.id)


def find_answer_source(table: AnswerTable) -> TableSource:
    """Find the files of a table of answers; raises UsageError if there are none."""
    return find_local_source(
        SourceChoice(name=table.path, encoding=table.encoding, delimiter=table.delimiter)
    )


class AnsweredItem(RecordPart, frozen=True, kw_only=True):
    """The fields of an item by which its answers are found."""

    task_id: str
    teacher_model_id: str
    prompt: str | None = None

    @property
    def value(self) -> str | None:
        return self.prompt

    @property
    def own_id(self) -> str:
        """Return the id without task and teacher."""
        return self.id.removeprefix(item_prefix(self.task_id, self.teacher_model_id))


class ItemsOfTask(NamedTuple):
    """A task with its good items by id. ``read`` reads those of all tasks, when a table first needs them."""

    task: TaskConfig
    read: Callable[[], dict[str, dict[str, AnsweredItem]]]

    @property
    def items(self) -> dict[str, AnsweredItem]:
        return self.read().get(self.task.name, {})


def _read_items_by_task(
    task_names: Set[str], item_files: Iterable[Path], instead: Mapping[Path, list[bytes]]
) -> dict[str, dict[str, AnsweredItem]]:
    items_by_task: dict[str, dict[str, AnsweredItem]] = {}
    for _, item in RecordFiles().read_parts(item_files, AnsweredItem, lines_by_path=instead):
        if item.task_id in task_names and is_good(item):
            items_by_task.setdefault(item.task_id, {})[item.id] = item
    return items_by_task


@dataclass(slots=True)
class AnswerFile:
    """One student's answers to one task. ``lines`` are its records, unless the file holds them (not
    ``rewritten``); ``changed``: some will be gone. ``flaws`` stop a start; ``notes`` are for the user."""

    path: Path
    task: str
    student: str
    table: str
    lines: list[bytes] = field(default_factory=list)
    rewritten: bool = False
    changed: bool = False
    flaws: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def set_answers_and_compare_with_file(self, answers: Iterable[tuple[AnsweredItem, str]]) -> None:
        """Make the records, and compare them with those of the file."""
        self.lines = [_encode_record(item, self.student, answer) for item, answer in answers]
        try:
            with open_file(self.path) as file:
                for old, new in zip_longest(file, self.lines):
                    if old != new:
                        self.rewritten, self.changed = True, old is not None
                        break
        except FileNotFoundError:
            self.rewritten = bool(self.lines)
        except OSError as error:
            raise store_error("read", self.path, error) from error
        if not self.rewritten:
            self.lines.clear()  # the file holds them

    def keep_old_answers_or_note_flaw(self, error: UsageError) -> None:
        """Keep the file's answers if the table cannot be read; a flaw if there are none."""
        if self.path.exists():
            self.notes.append(f"the earlier answers of {self.student} are used: {error}")
        else:
            self.flaws.append(f"answers of {self.student}: {error}")


def _encode_record(item: AnsweredItem, student: str, answer: str) -> bytes:
    response = cut_to_bytes(answer, MAX_ANSWER_BYTES)
    record = Response(
        id=response_id(item.id, student),
        datapoint_id=item.id,
        task_id=item.task_id,
        teacher_model_id=item.teacher_model_id,
        student_model_id=student,
        input=item.prompt,
        response=response,
        recipe=EXISTING_ANSWERS.hash,
        input_hash=hash_answer_input(item.prompt or ""),
        truncated=len(response) < len(answer),
    )
    return _ENCODER.encode(record) + b"\n"


# --- Reading: from what students are said to have answered to files


def read_answer_files(
    config: Config, folder: RunDir, item_files: Iterable[Path], instead: Mapping[Path, list[bytes]] = NO_LINES
) -> list[AnswerFile]:
    """Read the tables of answers for the items in these files; ``instead`` as in `RecordFiles.lines`."""
    answered = {task.name: task for task in config.tasks if config.students_with_existing_answers(task)}
    read = cache(partial(_read_items_by_task, answered.keys(), item_files, instead))
    tasks = {name: ItemsOfTask(task, read) for name, task in answered.items()}
    files = {
        (task, student): AnswerFile(folder.responses(task, student), task, student, "")
        for task, task_items in tasks.items()
        for student in config.students_with_existing_answers(task_items.task)
    }
    for student in config.students:
        of_student = [
            (task_items, files[task, student.name])
            for task, task_items in tasks.items()
            if (task, student.name) in files
            and not ((items := task_items.task.items) and student.name in items.responses)
        ]
        _fill_from_answer_table(student.responses, of_student)
    for task_items in tasks.values():
        _fill_from_answer_columns(
            task_items, {name: file for (task, name), file in files.items() if task == task_items.task.name}
        )
    return list(files.values())


def _fill_from_answer_table(table: AnswerTable, targets: list[tuple[ItemsOfTask, AnswerFile]]) -> None:
    """Read a student's table once, and set the answers of each of its tasks."""
    if not targets:
        return
    for _, file in targets:
        file.table = table.path
    try:
        rows = _AnswerTableRows(find_answer_source(table), build_answer_map(table))
    except UsageError as error:
        for _, file in targets:
            file.keep_old_answers_or_note_flaw(error)
        return
    for task_items, file in targets:
        file.set_answers_and_compare_with_file(rows.match_answers_and_mark_rows(task_items))
    for task_items, _ in targets:
        rows.ignore_rows_of_omitted_items(task_items.task)
    targets[0][1].notes += rows.describe_problems_and_unused_rows()


class _TableAnswer(NamedTuple):
    answer: str
    path: Path
    line: int


class _AnswerTableRows:
    """The rows of a table of answers by the item's id, or by its prompt with single blanks."""

    def __init__(self, source: TableSource, needed: ItemMap) -> None:
        """Read all rows. Raises UsageError: a table cannot be read, or lacks a column."""
        self._by_id = needed.id is not None
        self._rows: dict[str, _TableAnswer] = {}
        self._twice: dict[Path, LineMessages] = {}
        self._used: set[str] = set()
        self._numbered = ""  # a task whose items have no ids of their own
        harvest = Harvest(source.open_tables(), needed)
        for row in harvest.read_items():
            answer = row.item.attributes.get(_RESPONSE)
            key = row.item.id if row.item.id is not None else _squeeze_blanks(row.item.prompt)
            if answer is None:
                continue
            first = self._rows.setdefault(key, _TableAnswer(answer, row.path, row.line))
            if (first.path, first.line) != (row.path, row.line):
                repeats = self._twice.setdefault(row.path, LineMessages())
                repeats.note(f"the prompt is already on line {first.line}; the first one counts", row.line)
        self._problems = harvest.describe_problems()

    def match_answers_and_mark_rows(self, task_items: ItemsOfTask) -> Iterator[tuple[AnsweredItem, str]]:
        if task_items.task.items is not None and task_items.task.items.id is None:
            self._numbered = task_items.task.name
        for item in task_items.items.values():
            key = self._find_key(item)
            if (row := self._rows.get(key)) is not None:
                self._used.add(key)
                yield item, row.answer

    def _find_key(self, item: AnsweredItem) -> str:
        if not self._by_id:
            return _squeeze_blanks(item.prompt or "")
        return item.id if item.id in self._rows else item.own_id

    def ignore_rows_of_omitted_items(self, task: TaskConfig) -> None:
        """Ignore rows of items that the task's table has, and ``items.limit`` and the like leave out."""
        if task.items is None or self._rows.keys() <= self._used:
            return
        whole = msgspec.structs.replace(build_item_map(task.items), where=())
        try:
            for row in Harvest(find_item_source(task.items).open_tables(), whole).read_items():
                self._used.add(row.own_id if self._by_id else _squeeze_blanks(row.item.prompt))
        except UsageError:
            return  # an unreadable table is reported with its items

    def describe_problems_and_unused_rows(self) -> Iterator[str]:
        """Say which rows are unused, by file and line, once all tasks were matched."""
        yield from self._problems
        unmatched: dict[Path, LineMessages] = {}
        for key, row in self._rows.items():
            if key not in self._used:
                what = "id" if self._by_id else "prompt"
                if self._by_id and self._numbered and self._used.isdisjoint(self._rows):
                    what += f"; rows of {self._numbered} are numbered: name their column of ids in items.id"
                unmatched.setdefault(row.path, LineMessages()).note(f"no item has this {what}", row.line)
        for path, reported in (*self._twice.items(), *unmatched.items()):
            yield from reported.format_lines(path)


def _squeeze_blanks(prompt: str) -> str:
    return " ".join(prompt.split())


def _fill_from_answer_columns(task_items: ItemsOfTask, files: Mapping[str, AnswerFile]) -> None:
    """Read existing answers from columns of the task's table of items."""
    items = task_items.task.items
    if items is None or not items.responses:
        return
    answers: dict[str, dict[str, str]] = {}
    student_files = [files[name] for name in items.responses]
    for file in student_files:
        file.table = items.path
    try:
        columns = msgspec.structs.replace(build_item_map(items), attributes=items.responses)
        for row in Harvest(find_item_source(items).open_tables(), columns).read_items():
            answers[row.own_id] = row.item.attributes
    except UsageError as error:
        for file in student_files:
            file.keep_old_answers_or_note_flaw(error)
        return
    for file in student_files:
        file.set_answers_and_compare_with_file(
            (item, answer)
            for item in task_items.items.values()
            if (answer := answers.get(item.own_id, {}).get(file.student)) is not None
        )
