"""A run's reference answers, judged by its own rubric: the steps of docs/measures.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from aiohttp.test_utils import TestServer
from cli.eval_process import finish, start
from pipeline.experiments import Lab, model, task

import coeval
from coeval.simulation.server import make_app
from coeval.simulation.simulated_model import SimulatedModel
from coeval.simulation.traits import parse_model_option

pytestmark = pytest.mark.slow

PAGE = Path(__file__).resolve().parents[2] / "docs" / "measures.md"


async def test_what_the_page_says_gives_every_reference_a_score(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(here)
    lab = Lab(here, [model("ann")], [task(total=4)], id="quickstart")
    assert (await lab.arun()).exit_code == 0
    [snippet] = re.findall(r"```python\n(.*?reference_response.*?)```", PAGE.read_text(), re.DOTALL)
    exec(compile(snippet, str(PAGE), "exec"), {})  # noqa: S102 - the page's own words
    judge = SimulatedModel(parse_model_option("fair:noise=0.1", {}))
    async with TestServer(make_app([judge])) as server:
        how = ["--tasks", "coeval:runs/quickstart", "--model", "reference", "--judge-only"]
        url = f"http://127.0.0.1:{server.port}/v1"
        judged = ["--judge-model", "fair", "--judge-base-url", url, "--output-dir", "references"]
        ended = await finish(await start(here, *how, *judged))
    assert ended.code == 0, ended
    scores = coeval.open_run("references").table("scores").filter("metric = 'mean_score' AND value <= 1")
    assert len(scores.fetchall()) == 4
