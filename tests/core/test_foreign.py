"""Foreign JSON: a value, or the one error; and the files that are read by it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coeval.core.errors import Misshapen, StoreError, Undecodable, UsageError
from coeval.core.foreign import convert, decode, decode_utf8, make_decoder
from coeval.models.keys import Keys
from coeval.models.metering.account_file import Terms
from coeval.models.metering.meter import Ledger
from coeval.pipeline.plan.count_plan import read_recipes
from coeval.store.rundir import RunDir

HOSTILE: dict[str, bytes] = {
    "no UTF-8": b'{"a": "\xff"}',
    "deep": b"[" * 100_000,
    "1e400": b"[1e400]",
    "endless digits": b"[1" + b"0" * 5000 + b"]",
    "a lone surrogate": rb'"\ud800"',
    "nothing": b"",
}


class Part(msgspec.Struct):
    id: str
    count: int = 0


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_what_cannot_be_held_is_undecodable(data: bytes) -> None:
    for kind in (Any, dict[str, Any], list[float]):
        with pytest.raises(Undecodable):
            decode(data, kind)


@given(st.binary() | st.text(alphabet='{}[]",:0123456789eE-.idcount\\ud8\ud800', max_size=40))
def test_whatever_is_read_is_a_value_or_that_error(data: bytes | str) -> None:
    for read in (decode, make_decoder(Part)):
        with suppress(Undecodable):
            read(data)


def test_another_shape_is_told_from_damage() -> None:
    with pytest.raises(Misshapen):
        decode(b'{"id": 1}', Part)
    with pytest.raises(Misshapen):
        convert({"id": 1}, Part)
    with pytest.raises(Undecodable, match="byte 3 is not UTF-8"):
        decode_utf8(b"ab\xff")


@pytest.mark.parametrize("data", [*HOSTILE.values(), b"3", b'{"x": 3}'])
def test_the_files_of_a_run_are_damaged_and_no_bug(tmp_path: Path, data: bytes) -> None:
    run = RunDir(tmp_path)
    for path in (run.meta, run.recipes):
        path.write_bytes(data)
    run.usage.write_bytes(b'{"models": ' + data + b"}")
    with pytest.raises(StoreError, match="is damaged"):
        run.read_meta()
    with pytest.raises(StoreError, match="is damaged"):
        read_recipes(run)
    with pytest.raises(StoreError, match="cannot be used"):
        Ledger(run.usage, {"m": Terms(3)})
    assert run.writer_pid() is None


@pytest.mark.process
@pytest.mark.parametrize(
    "text", [b"\xff", b"providers: " + b"[" * 50_000, b"providers: {a: 1" + b"0" * 5000 + b"}"]
)
def test_a_hostile_key_file_is_a_message(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "keys.yaml"
    path.write_bytes(text)
    path.chmod(0o600)
    with pytest.raises(UsageError, match=r"keys\.yaml"):
        Keys.load(path, env={}, cwd=tmp_path, home=tmp_path)
