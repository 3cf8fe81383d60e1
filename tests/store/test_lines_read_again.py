"""Records that are read again: by position, in any order, of files and of lines that stand in their place."""

from __future__ import annotations

import random
from pathlib import Path

from coeval.store.record_index import ItemPart, RecordFiles


def item(n: int, size: int = 10) -> bytes:
    return f'{{"id":"t__a__{n}","task_id":"t","teacher_model_id":"a","prompt":"{"x" * size}"}}\n'.encode()


def positions(files: RecordFiles, path: Path, instead: dict[Path, list[bytes]] | None = None) -> list[int]:
    return [position for position, _ in files.lines([path], ItemPart, instead=instead or {})]


def test_lines_of_a_file_in_any_order(tmp_path: Path) -> None:
    path = tmp_path / "items.jsonl"
    lines = [item(n, 200_000 if n == 7 else n) for n in range(2_000)]
    path.write_bytes(b"".join(lines))
    files = RecordFiles()
    places = list(zip(positions(files, path), lines, strict=True))
    assert all(files.line(position) == line for position, line in places)
    random.Random(1).shuffle(places)
    assert all(files.line(position) == line for position, line in places)


def test_a_line_that_was_written_since_is_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "items.jsonl"
    path.write_bytes(item(1) + item(2)[:-5])
    files = RecordFiles()
    (first,) = positions(files, path)
    assert files.line(first) == item(1)
    path.write_bytes(item(1) + item(2) + item(3))
    assert [files.line(first + len(item(1)) * n) for n in range(3)] == [item(1), item(2), item(3)]


def test_lines_are_read_from_their_file_once_it_holds_them(tmp_path: Path) -> None:
    path, lines = tmp_path / "items.jsonl", [item(n, n) for n in range(50)]
    files = RecordFiles()
    places = positions(files, path, {path: list(lines)})
    assert files.line(places[7]) == lines[7]
    written = [line.replace(b"x", b"y") for line in lines]
    path.write_bytes(b"".join(written))
    files.written()
    assert [files.line(position) for position in places] == written
