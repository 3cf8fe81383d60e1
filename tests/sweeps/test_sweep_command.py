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


async def test_what_is_planned_shown_and_left_undone(tmp_path: Path) -> None:
    """A dry run writes nothing; what a phase left out is made up for; the status is told from disk."""
    sweeping = Sweeping(tmp_path)
    sweeping.trained(30, 80)
    ended = await sweeping.run("--dry-run")
    assert ended.code == 0, ended
    assert "2 checkpoints (steps 30, 80), 2 with something owed, 2 server starts" in ended.out
    assert [line.split() for line in ended.out.splitlines() if line.startswith("ifeval")] == [
        ["ifeval", "4", "24", "0"]
    ]
    assert not sweeping.out.exists()

    ended = await sweeping.run("--no-inference", "--no-plot")
    assert (ended.code, sweeping.concluded()) == (0, []), ended
    ended = await sweeping.run("--no-plot", "--steps", "80")
    assert (ended.code, len(sweeping.concluded())) == (0, 2), ended
    assert not (sweeping.out / "plots").exists()
    ended = await sweeping.run("--status")
    assert ["30", "0/0"] in [line.split() for line in ended.out.splitlines()]
    assert ["80", "2/2"] in [line.split() for line in ended.out.splitlines()]
    assert "1 of 2 checkpoints complete" in ended.out

    ended = await sweeping.run("--log-dir", tmp_path / "logs")
    assert ended.code == 0, ended
    assert len(sweeping.concluded()) == 4, "those of step 80 are not done again"
    assert (sweeping.out / "plots" / "curves.html").exists()
    assert (sweeping.out / "step_30" / "ifeval" / "summary_agg.json").exists()
    assert "simulated models at" in (tmp_path / "logs" / "step_30.server.log").read_text()
