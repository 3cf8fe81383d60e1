"""Runs of models in this process: loaded once, and refused before anything is made where they cannot be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fakes.tiny_model import tiny_model
from pipeline.experiments import Lab, model, task

from coeval.core.errors import UsageError
from coeval.core.model import ModelSpec
from coeval.models.local.local_transformers import TransformersEngine

pytestmark = pytest.mark.filterwarnings("default")


def lab(folder: Path, weights: object) -> Lab:
    """A student in this process beside a simulated teacher and judge."""
    local: dict[str, Any] = {
        "name": "tiny",
        "interface": "huggingface",
        "roles": ["student"],
        "parameters": {"model": str(weights), "device": "cpu", "max_new_tokens": 4, "temperature": 0},
    }
    return Lab(folder, [model("ann", "teacher", "judge"), local], [task(total=2)])


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The models whose weights were loaded, in order."""
    loaded: list[str] = []
    load = TransformersEngine.__init__

    def counted(self: TransformersEngine, spec: ModelSpec, device: str) -> None:
        loaded.append(spec.model)
        load(self, spec, device)

    monkeypatch.setattr(TransformersEngine, "__init__", counted)
    return loaded


@pytest.mark.slow
def test_weights_are_loaded_once(tmp_path: Path, loads: list[str]) -> None:
    weights = tiny_model(tmp_path / "tiny")
    run = lab(tmp_path, weights).run()
    assert run.exit_code == 0
    assert loads == [str(weights)]


@pytest.mark.parametrize("written", ["./typo", "../typo", "~/typo", "/nowhere/typo", "models/v2/typo"])
def test_a_folder_that_is_not_there_is_named_before_anything_is_made(
    tmp_path: Path, loads: list[str], written: str
) -> None:
    experiment = lab(tmp_path, written)
    with pytest.raises(UsageError, match=r"local model tiny: there is no folder ") as refused:
        experiment.run()
    assert written in str(refused.value)
    assert not experiment.path.exists()
    assert loads == []


def test_a_folder_without_a_model_is_no_model(tmp_path: Path, loads: list[str]) -> None:
    (tmp_path / "empty").mkdir()
    experiment = lab(tmp_path, tmp_path / "empty")
    with pytest.raises(UsageError, match=r"empty holds no config\.json"):
        experiment.run()
    assert not experiment.path.exists()
    assert loads == []
