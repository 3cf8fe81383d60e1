"""The journal: whatever is appended, torn, crashed and reopened, whole lines stay and the last wins."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from coeval.core.errors import StoreError
from coeval.core.records import Response, choose_counted, is_good
from coeval.store import jsonl as journal_module
from coeval.store.jsonl import Journal
from coeval.store.record_index import Index, RecordPart


class Row(RecordPart, frozen=True, omit_defaults=True):
    text: str = ""

    @property
    def value(self) -> str:
        return self.text


class Note(msgspec.Struct, frozen=True):
    file: str
    torn: bytes


class Seen(msgspec.Struct, frozen=True):
    size: int
    good: bool = True


def note(path: Path, torn: bytes) -> Note:
    return Note(path.name, torn)


def seen(row: Row) -> Seen:
    return Seen(len(row.text), is_good(row))


def index_of(*paths: Path) -> Index[Seen]:
    index: Index[Seen] = Index()
    index.read(paths, Row, seen)
    return index


def notes_in(path: Path) -> list[Note]:
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    return [msgspec.json.decode(line, type=Note) for line in lines if line.endswith(b"\n")]


def crash(journal: Journal) -> None:
    """End a journal as a kill does: nothing is flushed, nothing closed in order."""
    if journal._syncing is not None:
        journal._syncing.cancel()
    for file in journal._files.values():
        os.close(file._fd)
    journal._files.clear()


FILES = st.integers(0, 5)
NUMBERS = st.integers(0, 4)
TEXTS = st.text(max_size=30)


class AnySequence(RuleBasedStateMachine):
    """Any sequence of appends, crashes and reopenings, of six files of which three may be open."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr("os.fsync", lambda _: None)  # nothing pulls the plug here
        self.patch.setattr(journal_module, "_OPEN_FILES", 3)
        self.temporary = TemporaryDirectory()
        self.folder = Path(self.temporary.name)
        self.notes = self.folder / "notes.jsonl"
        self.rows: dict[str, str] = {}
        self.torn: list[Note] = []
        self.lying: dict[Path, bytes] = {}
        self.runner = asyncio.Runner()

    @initialize()
    def open(self) -> None:
        self.journal = Journal(self.notes, note)
        self.runner.run(self.journal.__aenter__())

    def path(self, file: int) -> Path:
        return self.folder / f"{file}.jsonl"

    @rule(file=FILES, number=NUMBERS, text=TEXTS)
    def append(self, file: int, number: int, text: str) -> None:
        path, row = self.path(file), Row(f"{file}-{number}", text=text)
        self.journal.append(path, row)
        self.rows[row.id] = text
        if torn := self.lying.pop(path, None):
            self.torn.append(Note(path.name, torn))
            if torn := self.lying.pop(self.notes, None):  # it was opened to keep the other's
                self.torn.append(Note(self.notes.name, torn))

    @rule(file=FILES, number=NUMBERS, text=TEXTS, cut=st.integers(0, 80))
    def kill_while_appending(self, file: int, number: int, text: str, cut: int) -> None:
        """The file then ends anywhere at or after its last whole line."""
        path = self.path(file)
        self.append(file, number, "so that its tail is whole before the next line is begun")
        crash(self.journal)
        line = msgspec.json.encode(Row(f"{file}-{number}", text=text)) + b"\n"
        with path.open("ab") as end:
            end.write(line[:cut])
        if cut >= len(line) - 1:  # the record is whole, with or without its newline
            self.rows[f"{file}-{number}"] = text
        elif cut:
            self.lying[path] = line[:cut]
        self.open()

    @rule(cut=st.integers(1, 20))
    def kill_while_noting(self, cut: int) -> None:
        if self.notes in self.lying or not self.notes.exists():
            return
        crash(self.journal)
        line = msgspec.json.encode(Note("x", b"y" * 20))[:cut]
        with self.notes.open("ab") as end:
            end.write(line)
        self.lying[self.notes] = line
        self.open()

    @rule(file=FILES, text=TEXTS, taken=st.integers(0, 40))
    def append_to_a_full_disk(self, file: int, text: str, taken: int) -> None:
        self.append(file, 0, "opens the file")
        with pytest.MonkeyPatch.context() as full:
            full.setattr("os.write", disk_that_takes(taken))
            try:
                self.journal.append(self.path(file), Row(f"{file}-0", text=text))
            except StoreError:
                return
        self.rows[f"{file}-0"] = text

    @rule()
    def close_and_open(self) -> None:
        self.runner.run(self.journal.__aexit__(None, None, None))
        self.open()

    @invariant()
    def every_whole_record_is_there_and_the_last_wins(self) -> None:
        index = index_of(*(self.path(file) for file in range(6)))
        assert index.damaged == []
        assert {key: index.load(key, Row).text for key in index} == self.rows

    @invariant()
    def what_was_torn_is_kept(self) -> None:
        assert sorted(notes_in(self.notes), key=repr) == sorted(self.torn, key=repr)

    def teardown(self) -> None:
        crash(self.journal)
        self.runner.close()
        self.patch.undo()
        self.temporary.cleanup()


AnySequence.TestCase.settings = settings(max_examples=80, stateful_step_count=30)
test_any_sequence_of_appends_and_crashes_keeps_the_promise = AnySequence.TestCase


def disk_that_takes(room: int) -> Callable[[int, bytes], int]:
    write = os.write

    def partial(descriptor: int, data: bytes) -> int:
        nonlocal room
        if not room:
            raise OSError(errno.ENOSPC, "No space left on device")
        taken = write(descriptor, bytes(data[:room]))
        room -= taken
        return taken

    return partial


async def test_lines_are_synced_in_groups_and_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr("os.fsync", synced.append)
    async with Journal(tmp_path / "notes.jsonl", note) as journal:
        for n in range(journal_module.SYNC_RECORDS - 1):
            journal.append(tmp_path / "a.jsonl", Row(str(n), text=""))
        await turns()
        assert synced == []
        journal.append(tmp_path / "a.jsonl", Row("the one that makes a group", text=""))
        while not synced:  # noqa: ASYNC110  the sync runs in a thread, and tells nobody
            await asyncio.sleep(0)
        journal.append(tmp_path / "a.jsonl", Row("last", text=""))
    assert len(synced) == 2


async def turns() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


async def test_a_sync_that_fails_stops_the_next_append(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("os.fsync", broken)
    journal = Journal(tmp_path / "notes.jsonl", note)
    await journal.__aenter__()
    with pytest.raises(StoreError, match=r"cannot sync .*a\.jsonl: Input/output error"):
        await append_for_ever(journal, tmp_path / "a.jsonl")
    with pytest.raises(StoreError, match=r"cannot sync .*a\.jsonl: Input/output error"):
        await journal.__aexit__(None, None, None)


async def append_for_ever(journal: Journal, path: Path) -> None:
    while True:  # the sync runs beside it
        journal.append(path, Row("x", text=""))
        await asyncio.sleep(0)


async def test_the_last_line_of_the_notes_themselves_may_be_torn(tmp_path: Path) -> None:
    notes, other = tmp_path / "notes.jsonl", tmp_path / "a.jsonl"
    notes.write_bytes(b'{"file":"a')
    other.write_bytes(b'{"id":"x","te')
    async with Journal(notes, note) as journal:
        journal.append(other, Row("y", text="whole"))
    assert notes_in(notes) == [Note("notes.jsonl", b'{"file":"a'), Note("a.jsonl", b'{"id":"x","te')]
    assert index_of(other).load("y", Row) == Row("y", text="whole")
    assert other.read_bytes().count(b"\n") == 1


async def test_a_torn_line_that_cannot_be_kept_is_not_cut_off(tmp_path: Path) -> None:
    (tmp_path / "notes.jsonl").mkdir()  # nothing can be written there
    torn = tmp_path / "a.jsonl"
    torn.write_bytes(b'{"id":"x"')
    async with Journal(tmp_path / "notes.jsonl", note) as journal:
        with pytest.raises(StoreError, match=r"notes\.jsonl"):
            journal.append(torn, Row("y", text=""))
    assert torn.read_bytes() == b'{"id":"x"'


def test_a_damaged_line_is_left_out_and_remembered(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"id":"x","text":"1"}\n{"id":\n\xff\n\n{"id":"y","text":"2"}\n')
    index = index_of(path)
    assert list(index) == ["x", "y"]
    assert index.damaged == [(path, 22), (path, 29)]


def test_a_record_whose_unread_part_is_damaged_names_the_way_out(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"id":"x","text":"\xff"}\n')
    index: Index[Seen] = Index()
    index.read([path], RecordPart, lambda _: Seen(0))
    with pytest.raises(StoreError, match=r"the record x is damaged.*see `coeval repair`"):
        index.load("x", Row)


def test_lines_may_be_left_out_by_their_offset(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"id":"x","text":"1"}\n{"id":"x","text":"22"}\n')
    index: Index[Seen] = Index()
    index.read([path], Row, lambda row: Seen(len(row.text)), {path: [22]})
    assert index.get("x") == Seen(1)


@given(st.lists(st.tuples(st.sampled_from("xyz"), st.booleans()), max_size=12))
def test_good_counts_before_failed_and_else_the_last(history: list[tuple[str, bool]]) -> None:
    """An index and the records themselves agree on it, whatever came in which order."""
    statuses: dict[bool, Literal["ok", "failed"]] = {True: "ok", False: "failed"}
    about: dict[str, Any] = dict.fromkeys(
        ("datapoint_id", "task_id", "teacher_model_id", "student_model_id"), ""
    )
    records = [
        Response(**about, response="", id=key, status=statuses[good], attempts=n, recipe=str(n))
        for n, (key, good) in enumerate(history, 1)
    ]
    expected = {}
    for key in dict.fromkeys(key for key, _ in history):
        good = [record for record in records if record.id == key and record.status == "ok"]
        expected[key] = (good or [record for record in records if record.id == key])[-1].recipe
    assert {key: record.recipe for key, record in choose_counted(records).items()} == expected
    with TemporaryDirectory() as folder:
        path = Path(folder) / "a.jsonl"
        path.write_bytes(msgspec.json.Encoder().encode_lines(records))
        index: Index[Seen] = Index()
        index.read([path], Response, lambda response: Seen(response.attempts, is_good(response)))
        assert {key: index.load(key, Response).recipe for key in index} == expected
        tried = {key: index.get(key) or Seen(0) for key in index}
        askings = {key: max(index.attempts_after_good(key).made, tried[key].size) for key in index}
    assert askings == {key: record.attempts for key, record in choose_counted(records).items()}
