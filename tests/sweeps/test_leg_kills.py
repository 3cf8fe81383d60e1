"""`kill -9` at seeded moments: of a leg's server, its guard, the leg, and leg and guard at once."""

from __future__ import annotations

import os
import random
import signal
import time
from functools import partial
from pathlib import Path

import pytest
from legs import LegProcess, a_leg, answers, at_least, gone, good_ids, odd, parent_of

from coeval.sweeps.server_process import ServerRecord, end_leftovers

pytestmark = pytest.mark.slow

PROMPTS = 400
KILLS = ("server", "guard", "leg", "leg and guard") * 5


def kill(victim: str, process: LegProcess, record: ServerRecord) -> None:
    guard = parent_of(record.group)
    assert b"coeval.sweeps.guard" in Path(f"/proc/{guard}/cmdline").read_bytes()
    pids = {
        "server": [record.group],
        "guard": [guard],
        "leg": [record.leg],
        "leg and guard": [guard, record.leg],
    }
    for pid in pids[victim]:
        os.kill(pid, signal.SIGKILL)


def test_twenty_kills_cost_no_answer_and_leave_no_process(tmp_path: Path) -> None:
    draw = random.Random(15)
    kills = list(KILLS)
    draw.shuffle(kills)
    leg = a_leg(tmp_path, odd("family"), prompts=PROMPTS, starts=99, wait_s=0.01)
    process = LegProcess(leg)
    killed: list[ServerRecord] = []
    for number, victim in enumerate(kills):
        record = process.record([earlier.mark for earlier in killed])
        if draw.random() < 0.3:
            time.sleep(draw.uniform(0, 0.3))
        else:
            most = (PROMPTS - len(answers(leg))) // (len(kills) - number + 1)
            wanted = len(answers(leg)) + draw.randint(1, max(1, most))
            process.until(partial(at_least, leg, wanted), f"{wanted} answers")
        kill(victim, process, record)
        killed.append(record)
        if victim in ("server", "guard"):
            process.until(partial(gone, record), "its server was gone")
        else:
            assert process.end() == -signal.SIGKILL
            if victim == "leg":
                assert gone(record)
            process = LegProcess(leg)
    assert process.result().end == "done"
    assert end_leftovers(leg.folder.parent) == []
    assert good_ids(leg) == sorted(str(n) for n in range(PROMPTS))
    assert len(answers(leg)) == PROMPTS
    assert all(gone(record) for record in killed)
