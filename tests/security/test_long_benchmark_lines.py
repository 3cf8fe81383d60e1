"""A benchmark's folder with lines that no answer is: they are owed again, and the rest is scored."""

from __future__ import annotations

from pathlib import Path

import pytest

from coeval.benchmarks.benchmark import Answer
from coeval.benchmarks.run.task_folder import TaskFolder, first_answer
from coeval.store.jsonl import Appender

LONG = 40 << 20
DAMAGE = {
    "no JSON": b"x" * LONG,
    "no UTF-8": b'{"id":"\xff\xfe"}',
    "very deep": b"[" * 100_000,
    "endless digits": b'{"id":"b","attempts":1' + b"0" * 5000 + b"}",
    "a long record of nothing": b'{"more":"' + b"x" * LONG + b'"}',
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_the_answers_around_a_damaged_line_are_read(tmp_path: Path, damage: bytes) -> None:
    folder = TaskFolder(tmp_path)
    for key in ("a", "c"):
        file = Appender(folder.responses)
        file.append(Answer(id=key, model="m", recipe="r", response=key))
        file.close()
        if key == "a":
            with folder.responses.open("ab") as out:
                out.write(damage + b"\n")
    assert first_answer(folder.responses) is not None
    assert set(folder.answers(None)) == {"a", "c"}
    told = f"{folder.responses} has 1 damaged line; what is lost by that is asked for again"
    assert list(folder.remarks()) == [told]
