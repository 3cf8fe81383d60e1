"""Models under the names that hosts and hubs give them: slashes stay in names, and make no folders."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli.invoked import Command
from pipeline.experiments import Lab, listen, model, task

from coeval.pipeline.config.names import is_model_name

QWEN, PHI, DEEP = "Qwen/Qwen2.5-7B-Instruct", "microsoft/Phi-4", "deepseek-ai/DeepSeek-V3-0324"


@pytest.fixture
def lab(here: Path) -> Lab:
    students = [model(QWEN, "student"), {**model("m/x-1", "student"), "variants": {"terse": {}, "kind": {}}}]
    return Lab(here, [model(PHI, "teacher"), *students, model(DEEP, "judge")], [task(total=2)])


@pytest.mark.process
def test_a_run_of_them_goes_on_is_shown_and_stays_in_its_folder(
    lab: Lab, coeval: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = coeval("run", "--config", lab.file, "--only-models", f"{PHI},{QWEN},{DEEP}")
    assert first.code == 0, first.err
    assert "nobody/x" in coeval("run", "--config", lab.file, "--continue", "--only-models", "nobody/x").err
    assert lab.counts() == (2, 6, 6)
    requested = listen(monkeypatch)
    assert lab.run(continue_run=True).exit_code == 0
    assert requested.requests == []
    names = {path.name for path in lab.path.glob("phase*/*.jsonl")}
    assert "story.Qwen~Qwen2.5-7B-Instruct.responses.jsonl" in names
    assert "story.microsoft~Phi-4.deepseek-ai~DeepSeek-V3-0324.evaluations.jsonl" in names
    assert not [path for path in lab.path.glob("phase*/*") if path.is_dir()]
    item = f"story__{PHI}__00001"
    shown = coeval("show", "--run", lab.path, "--id", item, "--student", QWEN).out
    assert item in shown
    assert QWEN in shown
    assert coeval("repair", "--run", lab.path, "--dry-run").code == 0


@pytest.mark.parametrize("name", ["/a", "a/", "a//b", "../a", "a/../b", "a/.", "a\\b", "~", ""])
def test_a_name_leads_nowhere(name: str) -> None:
    assert not is_model_name(name)
