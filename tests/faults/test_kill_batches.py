"""`kill -9` at any moment of a batch: every request is sent once, every result collected and booked once."""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from fakes.moments import forks
from fakes.openai_batches import OpenAiBatchHost, openai_batches
from fakes.openai_chat import Answer
from fakes.threaded import in_a_thread
from pipeline.experiments import Lab, model, task

KEY = "sk-batches-5512-aa31-9f04"
KILLS = 50
TOTAL = 12


def _lab(folder: Path, host: OpenAiBatchHost) -> Lab:
    judge: dict[str, Any] = {
        "name": "gpt",
        "interface": "openai",
        "roles": ["judge"],
        "parameters": {"model": "gpt-4o-mini", "base_url": host.url, "max_tokens": 200},
    }
    settings = {
        "batch": {"openai": {"evaluation": True}},
        "batch_poll_s": [0.01, 0.05],
        "probe_mode": "disable",
    }
    return Lab(
        folder, [model("ann", "teacher"), model("ben", "student"), judge], [task(total=TOTAL)], settings
    )


def _account(lab: Lab) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((lab.path / "usage.json").read_text())["models"]["gpt"]
    return {name: found[name] for name in ("requests", "input_tokens", "output_tokens", "cost_usd", "jobs")}


def _forget(host: OpenAiBatchHost) -> None:
    host.jobs.clear()
    host.asked.clear()
    host.endings.clear()


@pytest.mark.slow
def test_fifty_kills_send_each_request_once(tmp_path: Path) -> None:
    draw = random.Random(12)
    with in_a_thread(openai_batches(keys=[KEY])) as host, forks(OPENAI_API_KEY=KEY) as commands:
        host.says = lambda _: Answer('{"plot": "High", "style": "Low"}')
        host.states = ("validating", "in_progress", "completed")
        (tmp_path / "undisturbed").mkdir()
        undisturbed = _lab(tmp_path / "undisturbed", host)
        file = undisturbed.file
        whole = commands.run("coeval", "run", "--config", file, below=undisturbed.path)
        assert whole.code == 0, whole.said
        expected = _account(undisturbed)
        assert (expected["requests"], expected["jobs"]) == (TOTAL, {})
        moments = sorted(draw.sample(range(1, whole.moments + 1), min(KILLS, whole.moments)))
        jobs: Counter[int] = Counter()
        for moment in moments:
            _forget(host)
            shutil.rmtree(tmp_path / "killed", ignore_errors=True)
            (tmp_path / "killed").mkdir()
            lab = _lab(tmp_path / "killed", host)
            killed = commands.run("coeval", "run", "--config", lab.file, below=lab.path, at=moment)
            jobs[len(host.jobs)] += 1
            if killed.code == 0:
                continue  # the last moments differ from run to run
            goes_on = ["--continue"] if (lab.path / "meta.json").exists() else []
            ended = commands.run("coeval", "run", "--config", lab.file, *goes_on, below=lab.path)
            assert ended.code == 0, f"moment {moment}: {killed.said}\n{ended.said}"
            sent = Counter(item[0] for job in host.jobs.values() for item in job.items)
            assert len(sent) == TOTAL, f"moment {moment}"
            assert set(sent.values()) == {1}, f"moment {moment} of {whole.moments}: {sent}"
            assert len(lab.records("evaluation")) == len(lab.lines("evaluation")) == TOTAL
            assert _account(lab) == expected, f"moment {moment}"
            assert not (lab.path / "pending_batches.json").exists()
        assert {0, 1} <= set(jobs), jobs
