"""What `coeval analyze` says of judges that were asked: of a run, one of them twice; of an output folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from aiohttp.test_utils import TestServer
from cli.eval_process import finish, start
from cli.invoked import Command
from pipeline.experiments import Lab, model, task

from coeval.benchmarks.assets import Library, Presence
from coeval.benchmarks.task_registry import kind_of
from coeval.simulation.server import make_app
from coeval.simulation.simulated_model import SimulatedModel
from coeval.simulation.traits import parse_model_option


def test_a_judge_under_two_names_is_asked_everything_twice(here: Path, coeval: Command) -> None:
    judges = [
        model("one", "judge", model="same"),
        model("again", "judge", model="same"),
        model("other", "judge"),
    ]
    lab = Lab(here, [model("ann", "teacher", "student"), *judges], [task(total=12)])
    assert lab.run().exit_code == 0
    found = json.loads(coeval("analyze", "judges", "--run", lab.path, "--format", "json").out)["judges"]
    pair = json.loads(coeval("analyze", "agreement", "--run", lab.path, "--format", "json").out)["agreement"]
    assert found["one"]["consistency"]["count"] == 24
    assert found["one"]["consistency"]["spa"] == pair["again|one"]["spa"]
    assert found["one"]["consistency"] == found["again"]["consistency"]
    assert found["one"]["ci95"]["consistency"]["spa"] == pytest.approx(pair["again|one"]["ci95"]["spa"])
    assert found["other"]["consistency"] is None
    assert found["one"]["bias"]["position"]["value"] is None, "a run shows no pairs"
    assert "itself" in coeval("analyze", "judges", "--run", lab.path).out


@pytest.mark.slow
async def test_the_place_that_a_judge_likes_is_told_of_an_output_folder(
    tmp_path: Path, coeval: Command
) -> None:
    library = Library()
    if any(library.presence(name)[0] is Presence.ABSENT for name in kind_of("arena-hard").assets):
        pytest.skip("needs Arena-Hard's data: coeval datasets fetch arena-hard")
    texts = ("base:skill=0.6", "fair:noise=0.1", "lean:noise=0.1,position_bias=0.2")
    models = [SimulatedModel(parse_model_option(text, {})) for text in texts]
    async with TestServer(make_app(models)) as server:
        url = f"http://127.0.0.1:{server.port}/v1"
        for judge in ("fair", "lean"):
            how = ["--tasks", "arena-hard", "--model", "base", "--base-url", url, "--max-examples", "150"]
            ended = await finish(await start(tmp_path, *how, "--judge-model", judge, "--output-dir", "out"))
            assert ended.code == 0, ended
    found = json.loads(coeval("analyze", "--run", tmp_path / "out", "--format", "json").out)
    lean, fair = (found["judges"][name]["bias"]["position"] for name in ("lean", "fair"))
    assert lean["ci95"][0] > 0.2
    assert fair["ci95"][0] < 0.15
    assert lean["value"] > fair["value"] + 0.1
    assert found["agreement"]["fair|lean"]["count"] == 300
    assert "lean gives an answer 0." in " ".join(found["findings"])
    shown = coeval("analyze", "judges", "--run", tmp_path / "out").out
    assert "position" in shown
    refused = coeval("analyze", "coverage", "--run", tmp_path / "out")
    assert refused.code == 1
    assert "which have no coverage" in refused.err
