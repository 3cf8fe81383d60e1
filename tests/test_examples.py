"""Every example of the repository is a valid experiment file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli.invoked import Command

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


@pytest.mark.process
def test_the_education_example_runs_on_items_of_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, coeval: Command
) -> None:
    """Example 3 of the configuration guide, with simulated models in the place of OpenAI's."""
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "examples" / "education.yaml").read_text(encoding="utf-8")
    [command] = [line for line in text.splitlines() if line.startswith("#   coeval ingest science.jsonl")]
    flags = [*command.removesuffix("\\").split()[4:], *text.splitlines()[5].removeprefix("#").split()]
    (tmp_path / "education.yaml").write_text(text.replace("interface: openai", "interface: simulated"))
    bands, kinds = ("grade_3_5", "grade_6_8", "grade_9_10"), ("factual", "conceptual", "procedural")
    rows = [
        {
            "question": f"Question {n}?",
            "choices": ["ice", "steam", "sand", "salt"],
            "key": "ABCD"[n % 4],
            "grade_band": bands[n % 3],
            "knowledge_type": kinds[n // 3 % 3],
        }
        for n in range(40)
    ]
    (tmp_path / "science.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    place = flags.index("--config") + 1
    assert flags[place] == "examples/education.yaml"
    flags[place] = "education.yaml"
    taken = coeval("ingest", "science.jsonl", *flags)
    assert taken.code == 0, taken.err
    assert "sampling.total of arc_science_reasoning is 30: the first 30 are used." in taken.out
    ended = coeval("run", "--config", "education.yaml")
    assert ended.code == 0, ended.err
    for student in ("gpt-4o-mini", "gpt-4o"):
        _, table = ended.out.split("\nScores", 1)  # above it a sentence says who leads
        row = next(line.split() for line in table.splitlines() if line.split()[:1] == [student])
        assert row[4:6] == ["60", "0"]  # n and failed, after the score and its interval
    lines = (tmp_path / "eval_runs" / "education-benchmark-v1" / "phase4_responses").glob("arc_*.jsonl")
    assert [len(path.read_text().splitlines()) for path in lines] == [30, 30]


NAIVE = "Score by each factor of this rubric:\n{rubric}\n{scale}\n\nAnswer: {response}\n\n{answer_format}"
ORDERS = {"order", "new-instructions", "forged-end", "forged-turn", "authority", "hidden-comment"}


@pytest.mark.parametrize(("template", "obeyed"), [(None, False), (NAIVE, True)])
def test_injections_talk_a_judge_round_through_a_naive_template_and_not_through_ours(
    template: str | None, obeyed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, coeval: Command
) -> None:
    """The simulated judge obeys what stands outside the answer's block, which a forged end does not reach."""
    monkeypatch.chdir(tmp_path)
    Path("examples").symlink_to(ROOT / "examples")
    text = Path("examples/judge_injections.yaml").read_text(encoding="utf-8")
    text = text.replace("interface: openai", "interface: simulated").replace("temperature: 0", "gullible: 1")
    if template is not None:
        library = json.dumps({"evaluate_single": template})
        text = text.replace("    items:\n", f"    prompt_library: {library}\n    items:\n")
    Path("attack.yaml").write_text(text)
    ran = coeval("run", "--config", "attack.yaml")
    assert ran.code == 0, ran.err
    [file] = Path("runs/judge-injections/phase5_evaluations").glob("*.jsonl")
    scores = [json.loads(line) for line in file.read_text().splitlines()]
    best = {
        record["datapoint_id"].rpartition("__")[2]
        for record in scores
        if record["student_model_id"] == "injected" and {*record["scores"].values()} == {"High"}
    }
    assert len(scores) == 40
    assert (best >= ORDERS) == obeyed
    named = ("--students", "injected,without", "--fail-if-worse", "0%")
    assert coeval("compare", "runs/judge-injections", *named).code == (4 if obeyed else 0)
