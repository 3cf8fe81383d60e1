"""One run of `coeval` whose student and judge go by the batch jobs of a provider: a process of its own, from
the file to the table, beside the same run asked live."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli.batched_interfaces import BATCHED, KEY, TOTAL, Batched, requests_of_jobs
from cli.coeval_process import called
from cli.invoked import Ended

pytestmark = pytest.mark.slow


@pytest.fixture(params=[*BATCHED.values()], ids=[*BATCHED])
def batched(request: pytest.FixtureRequest) -> Batched:
    chosen: Batched = request.param
    return chosen


def _records(folder: Path, phase: str) -> dict[str, dict[str, Any]]:
    lines = [line for path in (folder / phase).glob("*.jsonl") for line in path.read_text().splitlines()]
    found = {record["id"]: record for record in map(json.loads, lines)}
    assert len(found) == len(lines)
    return found


async def test_a_student_and_a_judge_by_batches(batched: Batched, tmp_path: Path) -> None:
    """Each its own job; records as of the live run; half its price; nothing left behind, no key anywhere."""
    async with batched.serve() as host:
        ended: dict[bool, Ended] = {}
        for batch in (True, False):
            file = batched.file(tmp_path, host, batch=batch)
            ended[batch] = await called(
                tmp_path, "run", "--config", file, "--log-level", "DEBUG", env=batched.env
            )
            assert ended[batch].code == 0, ended[batch].err
        assert [len(job) for job in requests_of_jobs(host)] == [TOTAL, TOTAL]
    runs = tmp_path / "runs"
    for phase in ("phase4_responses", "phase5_evaluations"):
        of_batch, of_live = _records(runs / "batched", phase), _records(runs / "live", phase)
        assert len(of_batch) == TOTAL
        for key, record in of_batch.items():
            live = of_live[key]
            assert record["recipe"] == live["recipe"]
            assert record.get("scores") == live.get("scores")
            assert record["usage"]["cost_usd"] == pytest.approx(live["usage"]["cost_usd"] / 2)
    assert not (runs / "batched" / "batches").exists()
    assert not (runs / "batched" / "pending_batches.json").exists()
    table = await called(tmp_path, "results", "--run", runs / "batched", env=batched.env)
    assert "student" in table.out
    kept = [path.read_text() for path in runs.rglob("*") if path.is_file()]
    assert KEY not in "\n".join([ended[True].out, ended[True].err, *kept])
