"""`coeval compare` on outputs that `eval-framework` made of simulated models, whose skill is known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestServer
from cli.eval_process import finish, start
from cli.invoked import Command

from coeval.benchmarks.assets import Library, Presence
from coeval.benchmarks.task_registry import kind_of
from coeval.simulation.server import make_app
from coeval.simulation.simulated_model import SimulatedModel
from coeval.simulation.traits import parse_model_option

pytestmark = pytest.mark.slow

CHECKPOINTS = ("base:skill=0.60", "again:skill=0.60", "tuned:skill=0.63", "strong:skill=0.80")


async def test_what_is_said_of_checkpoints_is_what_was_planted(tmp_path: Path, coeval: Command) -> None:
    library = Library()
    if any(library.presence(name)[0] is Presence.ABSENT for name in kind_of("ifeval").assets):
        pytest.skip("needs IFEval's prompts: coeval datasets fetch ifeval")
    models = [SimulatedModel(parse_model_option(text, {})) for text in CHECKPOINTS]
    async with TestServer(make_app(models)) as server:
        for text in CHECKPOINTS:
            name = text.partition(":")[0]
            how = ["--tasks", "ifeval", "--model", name, "--output-dir", name]
            ended = await finish(
                await start(tmp_path, *how, "--base-url", f"http://127.0.0.1:{server.port}/v1")
            )
            assert ended.code == 0, ended

    def headline(other: str) -> dict[str, Any]:
        shown = coeval("compare", tmp_path / "base", tmp_path / other, "--json")
        assert shown.code == 0, shown.err
        found: dict[str, Any] = json.loads(shown.out)["comparisons"][0]
        assert (found["n"], found["missing"]) == (541, 0)
        return found

    equal, tuned, strong = (headline(name) for name in ("again", "tuned", "strong"))
    assert "are statistically tied" in equal["sentence"]
    assert equal["ci95"][0] < 0 < equal["ci95"][1]
    per_skill = strong["difference"] / 0.2
    assert tuned["ci95"][0] < 0.03 * per_skill < tuned["ci95"][1], "where a step of 0.03 is to lie"
    if tuned["minimum_detectable"] > abs(tuned["difference"]):
        assert "base is better" not in tuned["sentence"]
    assert strong["sentence"].startswith("strong is better than base on ifeval by ")
    assert coeval("compare", tmp_path / "strong", tmp_path / "base", "--fail-if-worse", "2%").code == 4
    assert coeval("compare", tmp_path / "base", tmp_path / "strong", "--fail-if-worse", "2%").code == 0
