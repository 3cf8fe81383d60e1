"""`eval-framework --tasks coeval:RUN`: a benchmark of one's own, put to any model."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from cli.eval_process import finish, start
from fakes.openai_chat import Answer, fake
from pipeline.experiments import Lab, model, quiz, task

from coeval.analysis.intervals import wilson


@pytest.mark.parametrize("judge", [[], ["--judge-model", "judge"]])
async def test_a_run_that_has_only_labels_shows_their_accuracy_and_asks_no_judge(
    tmp_path: Path, judge: list[str]
) -> None:
    lab = Lab(tmp_path, [model("ann")], [quiz(total=8)])
    await lab.arun()
    how = ["--tasks", f"coeval:{lab.path}", "--model", "m"]
    async with fake(reply=lambda _: Answer("red"), extra_fields={"top_k"}) as host:
        how += ["--base-url", host.url, *judge]
        ended = await finish(await start(tmp_path, *how))
        few = await finish(await start(tmp_path, *how, "--max-examples", 4, "--output-dir", "few"))
    assert (ended.code, few.code) == (0, 0), (ended, few)
    assert {body["model"] for body in host.bodies} == {"m"}
    items = lab.records("data_generation").values()
    share = wilson(sum(item["sampled_target_attributes"]["colour"] == "red" for item in items), 8)
    row = next(line.split() for line in ended.out.splitlines() if "label_accuracy quiz/colour" in line)
    assert re.search(r"^coeval-exp +8 scores +0$", ended.out, re.MULTILINE)
    assert "n: prompts; in a task's own line what it is scored by" in ended.out
    assert row[2:] == [f"{share.mean:.3f}", f"[{share.low:.3f},", f"{share.high:.3f}]", "8"]

    said = " ".join((ended.out + ended.err).split())
    assert "coeval-exp: its answers are compared with labels; no judge was asked" in said
    assert not re.search(r"judged|published", said)
    summary = json.loads((tmp_path / "outputs" / "coeval-exp" / "summary.json").read_text())
    assert (summary["judge"], summary["comparable"], summary["n_scored"]) == (None, True, 8)
    few_said = " ".join(few.out.split())
    assert "coeval-exp is not comparable with the run's own scores: only the first 4 of 8" in few_said


async def test_labels_stand_beside_what_is_judged(tmp_path: Path) -> None:
    lab = Lab(tmp_path, [model("ann")], [quiz(total=2), task(total=2)])
    await lab.arun()

    def reply(messages: list[dict[str, Any]]) -> Answer:
        judging = "plot" in messages[-1]["content"]
        return Answer('{"plot": "High", "style": "Low"}' if judging else "green")

    async with fake(reply=reply, extra_fields={"top_k"}) as host:
        ended = await finish(
            await start(tmp_path, "--tasks", f"coeval:{lab.path}", "--model", "m", "--base-url", host.url)
        )
    assert ended.code == 0, ended
    summary = json.loads((tmp_path / "outputs" / "coeval-exp" / "summary.json").read_text())
    assert list(summary["metrics"]) == ["mean_score", "label_accuracy quiz/colour"]
    assert (summary["n_expected"], summary["n_scored"]) == (6, 6), "4 factors and 2 labels"
    assert "published" not in ended.out
