"""A leg from its file to answers on disk, over a real server."""

from __future__ import annotations

from pathlib import Path

import pytest
from legs import LegProcess, a_leg, answers, good_ids, left_of

pytestmark = pytest.mark.slow


def test_a_leg_asks_its_server_and_leaves_nothing(tmp_path: Path) -> None:
    leg = a_leg(tmp_path, runs=2)
    process = LegProcess(leg)
    record = process.record()
    result = process.result()
    assert (result.end, result.starts) == ("done", 1)
    assert [(t.task, t.run, t.prompts, t.answers) for t in result.tasks] == [
        ("ifeval", 0, 12, 12),
        ("ifeval", 1, 12, 12),
    ]
    assert good_ids(leg) == sorted(str(n) for n in range(12))
    assert {line["model"] for line in answers(leg)} == {"/ckpt/step_10@10"}
    assert left_of(record) == []
