"""Every example of the repository is a valid experiment file."""

from __future__ import annotations

from pathlib import Path

import pytest

from coeval.pipeline.config.load_file import load_config
from coeval.pipeline.config.schema import Config

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = sorted([*(ROOT / "examples").glob("*.yaml"), *(ROOT / "benchmark").glob("*.yaml")])
RESUMING = {"summarise-v2.yaml", "summarise-v5.yaml"}


@pytest.fixture
def summarise_v1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working directory in which summarise-v1 has been run."""
    run = tmp_path / "eval_runs" / "summarise-v1"
    run.mkdir(parents=True)
    (run / "config.yaml").write_bytes((ROOT / "examples" / "summarise-v1.yaml").read_bytes())
    monkeypatch.chdir(tmp_path)


def example(name: str) -> Config:
    return load_config(ROOT / "examples" / name)


def test_the_examples_of_both_guides_are_here() -> None:
    assert {path.name for path in EXAMPLES} > RESUMING
    assert len(EXAMPLES) >= 13


@pytest.mark.usefixtures("summarise_v1")
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_is_valid(path: Path) -> None:
    config = load_config(path)
    assert config.models
    assert config.tasks


@pytest.mark.usefixtures("summarise_v1")
def test_the_resuming_examples_inherit() -> None:
    assert [model.name for model in example("summarise-v2.yaml").models] == ["gpt4o"]
    added = example("summarise-v5.yaml")
    assert [model.name for model in added.with_role("student")] == ["llama3-8b"]
    assert added.tasks == example("summarise-v1.yaml").tasks


@pytest.mark.parametrize("name", ["quickstart.yaml", "local_smoke_test.yaml"])
def test_a_newcomer_needs_no_key(name: str) -> None:
    assert {model.interface for model in example(name).models} == {"simulated"}


def test_the_quickstart_knows_the_true_ranking() -> None:
    config = example("quickstart.yaml")
    skills = {model.name: model.spec().options["skill"] for model in config.models}
    assert skills == {"sim-large": 0.85, "sim-medium": 0.6, "sim-small": 0.35}
    assert all(model.roles == ["teacher", "student", "judge"] for model in config.models)
    assert any(task.label_attributes for task in config.tasks)


def test_the_commented_block_of_the_smoke_test_works(tmp_path: Path) -> None:
    """The local model that the file shows is valid once its comment signs are taken away."""
    lines = (ROOT / "examples" / "local_smoke_test.yaml").read_text().splitlines()
    start = lines.index("  # - name: qwen2p5-1b5")
    for index in range(start, lines.index("", start)):
        lines[index] = lines[index].replace("# ", "", 1)
    (tmp_path / "e.yaml").write_text("\n".join(lines))
    model = load_config(tmp_path / "e.yaml").models[-1]
    assert (model.interface, model.spec().options) == ("huggingface", {"device": "auto"})


def test_the_medium_benchmark_makes_12_400_calls() -> None:
    config = load_config(ROOT / "benchmark" / "medium_benchmark.yaml")
    teachers, students, judges = (len(config.with_role(role)) for role in ("teacher", "student", "judge"))
    items = sum(teachers * (task.sampling.most or 0) for task in config.tasks)
    assert items + students * items + judges * students * items == 12_400
    for task in config.tasks:
        assert isinstance(task.rubric, dict)
        assert isinstance(task.target_attributes, dict)
        assert task.evaluation_mode == "single"
