"""Files that survive: replaced whole, appended line by line, mended without losing a byte."""

from __future__ import annotations

import errno
import json
import os
import random
from pathlib import Path

import msgspec
import pytest

from coeval.core.errors import StoreError
from coeval.store.jsonl import (
    Appender,
    cut_torn_tail,
    read_json,
    read_torn_tail,
    read_whole_lines,
    set_lines_and_tail_aside,
    write_bytes_atomic,
    write_json_atomic,
)
from coeval.store.record_index import ItemPart, RecordFiles


class Row(msgspec.Struct, frozen=True):
    id: str


def refuse(number: int) -> object:
    def refused(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    return refused


@pytest.mark.parametrize("tail", [b"", b"x", b'{"id": "no end"', b'{"id": "\xff"}', b"z" * (1 << 21)])
def test_only_the_torn_tail_is_cut_off(tmp_path: Path, tail: bytes) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"id":"a"}\n' + tail)
    assert read_torn_tail(path) == tail
    cut_torn_tail(path)
    assert path.read_bytes() == b'{"id":"a"}\n'


@pytest.mark.parametrize("tail", [b'{"id":"b"}', b'{"id":"b"} \r', b"  ", b'\n{"id":"b"}'])
def test_a_whole_last_line_needs_no_newline(tmp_path: Path, tail: bytes) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"id":"a"}\n' + tail)
    before = ["a", "b"] if tail.strip() else ["a"]
    assert read_torn_tail(path) == b""
    cut_torn_tail(path)
    assert ids(path) == before
    file = Appender(path)
    file.append(Row("c"))
    file.close()
    assert ids(path) == [*before, "c"]
    assert path.read_bytes() == b'{"id":"a"}\n' + tail + b'\n{"id":"c"}\n'


def ids(path: Path) -> list[str]:
    return [json.loads(line.text)["id"] for line in read_whole_lines(path)]


def test_a_whole_last_line_is_not_set_aside_with_others(tmp_path: Path) -> None:
    path, aside = tmp_path / "a.jsonl", tmp_path / "aside.jsonl"
    path.write_bytes(b'{"id":"a"}\n{"id":"b"}')
    set_lines_and_tail_aside(path, {0}, aside)
    assert (path.read_bytes(), aside.read_bytes()) == (b'{"id":"b"}', b'{"id":"a"}\n')


def test_a_file_that_is_one_torn_line_is_cut_to_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"id')
    cut_torn_tail(path)
    assert path.read_bytes() == b""
    assert read_torn_tail(tmp_path / "absent.jsonl") == b""
    cut_torn_tail(tmp_path / "absent.jsonl")
    assert not (tmp_path / "absent.jsonl").exists()


def test_lines_have_their_offsets_and_torn_or_blank_ones_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"one\n\n  \ntwo\nthr")
    assert [(line.offset, line.text) for line in read_whole_lines(path)] == [(0, b"one\n"), (8, b"two\n")]


def test_lines_set_aside_are_kept_and_the_others_stay_byte_for_byte(tmp_path: Path) -> None:
    path, aside = tmp_path / "a.jsonl", tmp_path / "aside" / "a.jsonl"
    path.write_bytes(b"one\n\xff\xfe\n\ntwo \r\nthree\nto")
    set_lines_and_tail_aside(path, {4, 14}, aside)
    assert path.read_bytes() == b"one\n\ntwo \r\n"
    assert aside.read_bytes() == b"\xff\xfe\nthree\nto"
    assert {p.name for p in tmp_path.iterdir()} == {"a.jsonl", "aside"}


def test_a_crash_before_the_replacement_leaves_the_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"one\ntwo\n")
    monkeypatch.setattr(Path, "replace", refuse(errno.EROFS))
    with pytest.raises(StoreError, match="make it writable"):
        set_lines_and_tail_aside(path, {4}, tmp_path / "aside.jsonl")
    assert path.read_bytes() == b"one\ntwo\n"
    assert {p.name for p in tmp_path.iterdir()} == {"a.jsonl", "aside.jsonl"}


@pytest.mark.parametrize(
    ("number", "way_out"),
    [
        (errno.ENOSPC, "free some space and run again with continue_run=True"),
        (errno.EDQUOT, "free some space"),
        (errno.EFBIG, "ulimit -f"),
        (errno.EROFS, "choose another storage_folder"),
        (errno.EIO, "Input/output error"),
    ],
)
def test_a_refused_write_leaves_the_old_file_and_names_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, way_out: str
) -> None:
    path = tmp_path / "a.json"
    write_json_atomic(path, {"old": 1})
    monkeypatch.setattr("os.fsync", refuse(number))
    with pytest.raises(StoreError, match=way_out) as caught:
        write_json_atomic(path, {"new": 2})
    assert str(path) in str(caught.value)
    assert read_json(path) == {"old": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


@pytest.mark.parametrize("data", [b"", b'{"half":', b'{"a":"\xff"}', b"\x00" * 16])
def test_what_is_no_json_is_said_to_be_damaged(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "a.json"
    write_bytes_atomic(path, data)
    with pytest.raises(StoreError, match=r"is damaged.*move it away or restore it"):
        read_json(path)


def test_a_part_of_a_line_that_cannot_be_taken_back_is_never_appended_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.jsonl"
    file = Appender(path)
    file.append(Row("one"))
    write = os.write

    def five_at_a_time(descriptor: int, data: bytes) -> int:
        if len(data) <= 5:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, bytes(data[:5]))

    with monkeypatch.context() as full:
        full.setattr("os.write", five_at_a_time)
        full.setattr("os.ftruncate", refuse(errno.EIO))
        with pytest.raises(StoreError, match="disk"):
            file.append(Row("two"))
    with pytest.raises(StoreError, match="disk"):
        file.append(Row("three"))
    file.close()
    assert path.read_bytes() == b'{"id":"one"}\n{"id":"two'[: 13 + 10]


def test_a_write_in_two_pieces_is_a_whole_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = Appender(tmp_path / "a.jsonl")
    write = os.write
    with monkeypatch.context() as slow:
        slow.setattr("os.write", lambda fd, data: write(fd, bytes(data[:4])))
        file.append(Row("one"))
    file.append(Row("two"))
    file.close()
    assert (tmp_path / "a.jsonl").read_bytes() == b'{"id":"one"}\n{"id":"two"}\n'


def item(n: int, size: int = 10) -> bytes:
    return f'{{"id":"t__a__{n}","task_id":"t","teacher_model_id":"a","prompt":"{"x" * size}"}}\n'.encode()


def positions(files: RecordFiles, path: Path, instead: dict[Path, list[bytes]] | None = None) -> list[int]:
    return [position for position, _ in files.read_parts([path], ItemPart, lines_by_path=instead or {})]


def test_lines_of_a_file_in_any_order(tmp_path: Path) -> None:
    path = tmp_path / "items.jsonl"
    lines = [item(n, 200_000 if n == 7 else n) for n in range(2_000)]
    path.write_bytes(b"".join(lines))
    files = RecordFiles()
    places = list(zip(positions(files, path), lines, strict=True))
    assert all(files.read_line(position) == line for position, line in places)
    random.Random(1).shuffle(places)
    assert all(files.read_line(position) == line for position, line in places)


def test_a_line_that_was_written_since_is_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "items.jsonl"
    path.write_bytes(item(1) + item(2)[:-5])
    files = RecordFiles()
    (first,) = positions(files, path)
    assert files.read_line(first) == item(1)
    path.write_bytes(item(1) + item(2) + item(3))
    assert [files.read_line(first + len(item(1)) * n) for n in range(3)] == [item(1), item(2), item(3)]


def test_lines_are_read_from_their_file_once_it_holds_them(tmp_path: Path) -> None:
    path, lines = tmp_path / "items.jsonl", [item(n, n) for n in range(50)]
    files = RecordFiles()
    places = positions(files, path, {path: list(lines)})
    assert files.read_line(places[7]) == lines[7]
    written = [line.replace(b"x", b"y") for line in lines]
    path.write_bytes(b"".join(written))
    files.forget_replacements()
    assert [files.read_line(position) for position in places] == written
