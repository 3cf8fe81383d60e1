"""`coeval sweep` from checkpoints to scored samples, over servers that it starts itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from sweeping import Sweeping, judge_host, needs

pytestmark = pytest.mark.slow


async def test_checkpoints_are_served_asked_judged_and_scored_once(tmp_path: Path) -> None:
    needs("alpaca-eval/judge", "alpaca-eval/baseline")
    sweeping = Sweeping(tmp_path)
    sweeping.trained(30, 80)
    tasks = (
        "--tasks",
        "ifeval,alpaca-eval",
        "--n-samples",
        "ifeval=2",
        "--max-examples",
        "5",
        "--slots",
        "2",
    )
    async with judge_host() as judge:
        first = await sweeping.run(*tasks, *judge.flags)
        assert first.code == 0, first
        assert "6 of 6 jobs done" in first.out
        asked = judge.asked
        assert asked >= 10
        again = await sweeping.run(*tasks, *judge.flags)
    assert (again.code, judge.asked) == (0, asked), again
    done = [
        (step, task, run)
        for step in (30, 80)
        for task, run in (("alpaca-eval", 0), ("ifeval", 0), ("ifeval", 1))
    ]
    assert sweeping.concluded() == done
    for step, task, run in done:
        answers = sweeping.answers(step, task, run)
        assert len(answers) == 5
        assert {line["model"] for line in answers} == {
            f"{sweeping.checkpoints}/global_step_{step}/actor_hf@{step}"
        }
    assert sweeping.value(80, "alpaca-eval") > sweeping.value(30, "alpaca-eval")
    assert not list(sweeping.out.rglob("server.json")), "no server is left"
