"""Answers that exist: tables of students whom nobody asks, held against the items of a run.

A student's file of phase 4 is made of its table at each start: one record for each item that has an answer
there. So a row that is added, changed or taken away is noticed, and judgments that no longer follow are owed.
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
from coeval.pipeline.phases.item_file import item_map, source_of
from coeval.pipeline.plan.recipes import answer_input
from coeval.store.jsonl import store_error
from coeval.store.record_index import NO_LINES, RecordFiles, RecordPart
from coeval.store.rundir import RunDir
from coeval.tables.harvest import Harvest
from coeval.tables.item_map import ItemMap
from coeval.tables.source_bytes import LineMessages
from coeval.tables.table_source import SourceChoice, TableSource, find_local_source

GIVEN = Recipe.of({"interface": "answers that exist"})
"""The recipe of answers that nobody was asked for; what they say is noticed by what follows from them."""

_ENCODER = msgspec.json.Encoder()
_RESPONSE = "response"


def answer_map(table: AnswerTable) -> ItemMap:
    """Say which columns of a table of answers are read, and how rows are told apart."""
    return ItemMap(prompt=table.id or table.prompt or "", attributes={_RESPONSE: table.response}, id=table.id)


def answer_source(table: AnswerTable) -> TableSource:
    """Find the files of a table of answers; raises UsageError where there are none."""
    return find_local_source(
        SourceChoice(name=table.path, encoding=table.encoding, delimiter=table.delimiter)
    )


class AskedItem(RecordPart, frozen=True, kw_only=True):
    """What is read of an item to find its answers."""

    task_id: str
    teacher_model_id: str
    prompt: str | None = None

    @property
    def value(self) -> str | None:
        return self.prompt


class ItemsOfTask(NamedTuple):
    """A task with its items by id: those that are good, as they are to stand. ``read`` reads those of all
    tasks, where there is a table to hold against them."""

    task: TaskConfig
    read: Callable[[], dict[str, dict[str, AskedItem]]]

    @property
    def items(self) -> dict[str, AskedItem]:
        return self.read().get(self.task.name, {})


def _items_by_task(
    tasks: Set[str], items_in: Iterable[Path], instead: Mapping[Path, list[bytes]]
) -> dict[str, dict[str, AskedItem]]:
    found: dict[str, dict[str, AskedItem]] = {}
    for _, item in RecordFiles().lines(items_in, AskedItem, instead=instead):
        if item.task_id in tasks and is_good(item):
            found.setdefault(item.task_id, {})[item.id] = item
    return found


@dataclass(slots=True)
class AnswerFile:
    """The answers of one student to one task. ``lines`` are its records as they are to stand, ``rewritten``
    says that the file holds others, ``changed`` that some of these would be gone. ``flaws`` end a start,
    ``said`` is worth a look."""

    path: Path
    task: str
    student: str
    table: str
    lines: list[bytes] = field(default_factory=list)
    rewritten: bool = False
    changed: bool = False
    flaws: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def stand(self, answers: Iterable[tuple[AskedItem, str]]) -> None:
        """Make the records, and compare them with those of the file."""
        self.lines = [_record(item, self.student, answer) for item, answer in answers]
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

    def without(self, error: UsageError) -> None:
        """Go on with the answers that are there where the table cannot be read; a flaw without any."""
        if self.path.exists():
            self.said.append(f"the answers of {self.student} that were taken before are used: {error}")
        else:
            self.flaws.append(f"answers of {self.student}: {error}")


def _record(item: AskedItem, student: str, answer: str) -> bytes:
    response = cut_to_bytes(answer, MAX_ANSWER_BYTES)
    record = Response(
        id=response_id(item.id, student),
        datapoint_id=item.id,
        task_id=item.task_id,
        teacher_model_id=item.teacher_model_id,
        student_model_id=student,
        input=item.prompt,
        response=response,
        recipe=GIVEN.hash,
        input_hash=answer_input(item.prompt or ""),
        truncated=len(response) < len(answer),
    )
    return _ENCODER.encode(record) + b"\n"


# --- Reading: from what students are said to have answered to files


def read_answer_files(
    config: Config,
    folder: RunDir,
    items_in: Iterable[Path],
    instead: Mapping[Path, list[bytes]] = NO_LINES,
) -> list[AnswerFile]:
    """Read the tables of answers for the items of these files; ``instead`` as `RecordFiles.lines` has it."""
    answered = {task.name: task for task in config.tasks if config.students_with_answers(task)}
    read = cache(partial(_items_by_task, answered.keys(), items_in, instead))
    tasks = {name: ItemsOfTask(task, read) for name, task in answered.items()}
    files = {
        (task, student): AnswerFile(folder.responses(task, student), task, student, "")
        for task, of in tasks.items()
        for student in config.students_with_answers(of.task)
    }
    for student in config.students:
        of_student = [
            (tasks[task], files[task, student.name])
            for task in tasks
            if (task, student.name) in files and not _of_items(tasks[task].task, student.name)
        ]
        _from_table(student.responses, of_student)
    for of in tasks.values():
        _from_items(of, {name: file for (task, name), file in files.items() if task == of.task.name})
    return list(files.values())


def _of_items(task: TaskConfig, student: str) -> bool:
    """Whether the table of the items holds the student's answers too."""
    return task.items is not None and student in task.items.responses


def _from_table(table: AnswerTable, wanted: list[tuple[ItemsOfTask, AnswerFile]]) -> None:
    """Read a student's table once, and give each of its tasks the answers to its items."""
    if not wanted:
        return
    for _, file in wanted:
        file.table = table.path
    try:
        given = _Given.read(answer_source(table), answer_map(table))
    except UsageError as error:
        for _, file in wanted:
            file.without(error)
        return
    for of, file in wanted:
        file.stand(given.answers(of))
    for of, _ in wanted:
        given.pass_over(of.task)
    wanted[0][1].said += given.remarks()


class _GivenRow(NamedTuple):
    answer: str
    path: Path
    line: int


class _Given:
    """The rows of a table of answers by the item's own id, or by its prompt with single blanks."""

    def __init__(self, *, by_id: bool) -> None:
        self._by_id = by_id
        self._rows: dict[str, _GivenRow] = {}
        self._twice: dict[Path, LineMessages] = {}
        self._used: set[str] = set()
        self._problems: list[str] = []
        self._numbered = ""  # a task whose items have no ids of their own

    @classmethod
    def read(cls, source: TableSource, needed: ItemMap) -> _Given:
        """Read all rows. Raises UsageError: a table cannot be read, or lacks a column."""
        given = cls(by_id=needed.id is not None)
        harvest = Harvest(source.open_tables(), needed)
        for found in harvest.read_items():
            answer = found.item.attributes.get(_RESPONSE)
            key = found.item.id if found.item.id is not None else _single_blanks(found.item.prompt)
            if answer is None:
                continue
            first = given._rows.setdefault(key, _GivenRow(answer, found.path, found.line))
            if (first.path, first.line) != (found.path, found.line):
                told = given._twice.setdefault(found.path, LineMessages())
                told.note(f"the prompt stood on line {first.line} already; the first one counts", found.line)
        given._problems = harvest.describe_problems()
        return given

    def answers(self, of: ItemsOfTask) -> Iterator[tuple[AskedItem, str]]:
        if of.task.items is not None and of.task.items.id is None:
            self._numbered = of.task.name
        for item in of.items.values():
            key = self._key(item)
            if (row := self._rows.get(key)) is not None:
                self._used.add(key)
                yield item, row.answer

    def _key(self, item: AskedItem) -> str:
        if not self._by_id:
            return _single_blanks(item.prompt or "")
        return (
            item.id
            if item.id in self._rows
            else item.id.removeprefix(item_prefix(item.task_id, item.teacher_model_id))
        )

    def pass_over(self, task: TaskConfig) -> None:
        """Do not tell of rows whose item the task's table has, and ``items.limit`` and the like leave out."""
        if task.items is None or self._rows.keys() <= self._used:
            return
        whole = msgspec.structs.replace(item_map(task.items), where=())
        try:
            for found in Harvest(source_of(task.items).open_tables(), whole).read_items():
                own = found.item.id if found.item.id is not None else f"{found.place:05d}"
                self._used.add(own if self._by_id else _single_blanks(found.item.prompt))
        except UsageError:
            return  # that the table cannot be read is told of its items

    def remarks(self) -> Iterator[str]:
        """Say which rows are not used, by file and line; once all tasks have taken their answers."""
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


def _single_blanks(prompt: str) -> str:
    return " ".join(prompt.split())


def _from_items(of: ItemsOfTask, files: Mapping[str, AnswerFile]) -> None:
    """Take the answers that stand in the table of a task's items, in columns of its students."""
    items = of.task.items
    if items is None or not items.responses:
        return
    answers: dict[str, dict[str, str]] = {}
    wanted = [files[name] for name in items.responses]
    for file in wanted:
        file.table = items.path
    try:
        columns = msgspec.structs.replace(item_map(items), attributes=items.responses)
        for found in Harvest(source_of(items).open_tables(), columns).read_items():
            own = found.item.id if found.item.id is not None else f"{found.place:05d}"
            answers[own] = found.item.attributes
    except UsageError as error:
        for file in wanted:
            file.without(error)
        return
    for file in wanted:
        file.stand(
            (item, answer)
            for item in of.items.values()
            if (answer := answers.get(_own_id(item), {}).get(file.student)) is not None
        )


def _own_id(item: AskedItem) -> str:
    return item.id.removeprefix(item_prefix(item.task_id, item.teacher_model_id))
