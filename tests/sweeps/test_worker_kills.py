"""`kill -9` at seeded moments: of a worker's server, its guard, the worker, and worker and guard at once."""

from __future__ import annotations

import os
import random
import signal
import time
from functools import partial
from pathlib import Path

import pytest
from workers import WorkerProcess, a_worker, answers, at_least, gone, good_ids, odd, parent_of

from coeval.sweeps.server_process import ServerRecord, end_leftovers

pytestmark = pytest.mark.slow

PROMPTS = 400
KILLS = ("server", "guard", "worker", "worker and guard") * 5


def kill(victim: str, process: WorkerProcess, record: ServerRecord) -> None:
    guard = parent_of(record.group)
    assert b"coeval.sweeps.guard" in Path(f"/proc/{guard}/cmdline").read_bytes()
    pids = {
        "server": [record.group],
        "guard": [guard],
        "worker": [record.worker],
        "worker and guard": [guard, record.worker],
    }
    for pid in pids[victim]:
        os.kill(pid, signal.SIGKILL)


def test_twenty_kills_cost_no_answer_and_leave_no_process(tmp_path: Path) -> None:
    draw = random.Random(15)
    kills = list(KILLS)
    draw.shuffle(kills)
    worker = a_worker(tmp_path, odd("family"), prompts=PROMPTS, starts=99, wait_s=0.01)
    process = WorkerProcess(worker)
    killed: list[ServerRecord] = []
    for number, victim in enumerate(kills):
        record = process.record([earlier.mark for earlier in killed])
        if draw.random() < 0.3:
            time.sleep(draw.uniform(0, 0.3))
        else:
            most = (PROMPTS - len(answers(worker))) // (len(kills) - number + 1)
            wanted = len(answers(worker)) + draw.randint(1, max(1, most))
            process.until(partial(at_least, worker, wanted), f"{wanted} answers")
        kill(victim, process, record)
        killed.append(record)
        if victim in ("server", "guard"):
            process.until(partial(gone, record), "its server was gone")
        else:
            assert process.end() == -signal.SIGKILL
            if victim == "worker":
                assert gone(record)
            process = WorkerProcess(worker)
    assert process.result().end == "done"
    assert end_leftovers(worker.folder.parent) == []
    assert good_ids(worker) == sorted(str(n) for n in range(PROMPTS))
    assert len(answers(worker)) == PROMPTS
    assert all(gone(record) for record in killed)
