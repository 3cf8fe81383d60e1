"""A whole file: all problems at once and in order, inheriting, what the typed config answers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import ValidationError

from coeval.core.errors import ConfigError
from coeval.pipeline.config.load_file import load_config, read_config
from coeval.pipeline.config.schema import ModelConfig

Check = Callable[[str], list[str]]

TEN_MISTAKES = """\
models:
  - name: a__b
    intrface: openai
    roles: [teachr]
  - name: b
    interface: opnai
    roles: [student, judge]
tasks:
  - name: t
    description: d
    target_attributes: {x: [1, 2], y: z}
    sampling: {target: [3, 1], total: -2}
    rubric: {clarity: 5}
experiment:
  id: e
  storage_folder: runs
  quota: {b: {max_call: 1}}
  probe_mode: never
"""


def test_ten_mistakes_are_ten_lines_in_order(check: Check) -> None:
    problems = check(TEN_MISTAKES)
    assert [tuple(p.split("  ")[:3]) for p in problems] == [
        ("e.yaml:2", "models[0].name", "V-04"),
        ("e.yaml:3", "models[0].intrface", "V-18"),
        ("e.yaml:4", "models[0].roles[0]", "V-05"),
        ("e.yaml:6", "models[1].interface", "V-06"),
        ("e.yaml:11", "tasks[0].target_attributes.y", "V-20"),
        ("e.yaml:12", "tasks[0].sampling.target", "V-21"),
        ("e.yaml:12", "tasks[0].sampling.total", "V-21"),
        ("e.yaml:13", "tasks[0].rubric.clarity", "V-20"),
        ("e.yaml:17", "experiment.quota.b.max_call", "V-18"),
        ("e.yaml:18", "experiment.probe_mode", "V-15"),
    ]


def test_where_a_word_may_stand_for_a_mapping_both_are_named(check: Check) -> None:
    problems = check("tasks: [{rubric: [accuracy], target_attributes: atuo}]\n")
    assert any("use a mapping (factor: criterion), auto | extend" in problem for problem in problems)
    assert any("did you mean 'auto'? use a mapping (name: [values]), auto" in problem for problem in problems)


@pytest.mark.parametrize(
    "text",
    [
        "models: 3\ntasks: x\nexperiment: []\n",
        "models: [1, {name: {}}]\nexperiment: {quota: 3}\n",
        "tasks: [[], {sampling: 3, rubric: [], target_attributes: 4}]\n",
        "models: {a: b}\ntasks: [{name: t, prompt_library: 3}]\n",
        "experiment: {phases: [], batch: {openai: 3}}\n",
        "models: [{name: a, parameters: 3, role_parameters: {judge: 4}, roles: [[]]}]\nother: 1\n",
        "experiment: {id: a, storage_folder: 3, resume_from: 4}\n",
        "{}",
    ],
)
def test_any_shape_of_data_is_refused_with_lines(check: Check, text: str) -> None:
    problems = check(text)
    assert problems
    assert all(p.startswith("e.yaml:") and len(p.split("  ")) >= 4 and "\n" not in p for p in problems)


def test_a_credential_is_never_shown(check: Check, valid: str) -> None:
    (problem,) = check(valid.replace("roles: [judge]", "roles: [judge]\n    access_key: 123456789"))
    assert "models[1].access_key  V-20" in problem
    assert "123456789" not in problem


def test_defaults_are_as_printed_in_the_guide(folder: Path, valid: str) -> None:
    (folder / "e.yaml").write_text(valid)
    config = load_config("e.yaml")
    experiment, task = config.experiment, config.tasks[0]
    assert (experiment.probe_mode, experiment.probe_on_fail) == ("full", "abort")
    assert (experiment.estimate_cost, experiment.estimate_samples) == (False, 2)
    assert (experiment.log_level, experiment.generation_retries) == ("INFO", 2)
    assert experiment.mode("evaluation") == "New"
    assert (task.evaluation_mode, task.nuanced_attributes, task.store_nuanced) == ("single", {}, False)
    assert task.sampling.nuance == (0, 0)
    assert [model.name for model in config.with_role("teacher")] == ["large"]


def test_one_number_is_a_pair_and_values_are_text(folder: Path, valid: str) -> None:
    text = valid.replace("tone: [plain]", "tone: [3.10, true, 7]").replace("target: [1, 2]", "target: [1]")
    (folder / "e.yaml").write_text(text)
    task = load_config("e.yaml").tasks[0]
    assert task.sampling.target == (1, 1)
    assert task.target_attributes == {"length": ["short", "long"], "tone": ["3.10", "true", "7"]}


def inheriting(valid: str, source: str) -> str:
    return valid[valid.index("experiment:") :].replace("exp-1", "exp-2") + f"  resume_from: {source}\n"


@pytest.mark.parametrize("source", ["exp-1", "runs/exp-1"])
def test_absent_sections_come_from_the_source(folder: Path, valid: str, source: str) -> None:
    run = folder / "runs" / "exp-1"
    run.mkdir(parents=True)
    (run / "config.yaml").write_text(valid.replace("roles: [judge]", "roles: [judge]\n    access_key: '***'"))
    (folder / "e.yaml").write_text(inheriting(valid, source))
    loaded = read_config("e.yaml")
    assert [model.name for model in loaded.config.models] == ["large", "small"]
    assert loaded.config.models[1].access_key is None
    assert loaded.data["tasks"][0]["name"] == "news"
    assert loaded.lines.find(("tasks", 0, "name")) == (str(Path("runs/exp-1/config.yaml")), 11)


def test_prompts_of_models_that_left_are_not_inherited(check: Check, folder: Path, valid: str) -> None:
    prompts = (
        "    prompts_may_omit: [input, target_attributes]\n"
        "    prompt_library: {test: a, test.large: b, test.gone: c, sample.v1.5: d}\n    rubric:"
    )
    tasks = valid[valid.index("tasks:") : valid.index("experiment:")].replace("    rubric:", prompts)
    models = valid[: valid.index("  - name: small")] + "  - {name: v1.5, interface: openai, roles: [judge]}\n"
    gone = "  - {name: gone, interface: openai, roles: [judge]}\n"
    run = folder / "runs" / "exp-1"
    run.mkdir(parents=True)
    (run / "config.yaml").write_text(models + gone + tasks + valid[valid.index("experiment:") :])
    assert check(models + inheriting(valid, "exp-1")) == []
    (task,) = load_config("e.yaml").tasks
    assert task.prompt_library == {"test": "a", "test.large": "b", "sample.v1.5": "d"}
    (problem,) = check(models + tasks + inheriting(valid, "exp-1"))  # written here, it is a mistake
    assert "tasks[0].prompt_library.test.gone  V-24" in problem


def test_a_mistake_in_an_inherited_section_names_its_own_file(check: Check, folder: Path, valid: str) -> None:
    run = folder / "runs" / "exp-1"
    run.mkdir(parents=True)
    (run / "config.yaml").write_text(valid.replace("total: 5", "total: 0"))
    (problem,) = check(inheriting(valid, "exp-1"))
    assert problem.startswith(f"{Path('runs/exp-1/config.yaml')}:15  tasks[0].sampling.total  V-21")


def test_sections_that_nobody_gives_are_v_01(check: Check, folder: Path, valid: str) -> None:
    alone = valid[valid.index("experiment:") :]
    assert [p.split("  ")[1:3] for p in check(alone)] == [["models", "V-01"], ["tasks", "V-01"]]
    assert [p.split("  ")[2] for p in check(inheriting(valid, "exp-1"))] == ["V-10"]
    (folder / "runs" / "exp-1").mkdir(parents=True)
    (problem,) = check(inheriting(valid, "exp-1"))
    assert "V-10  runs/exp-1 is not a run: it holds neither meta.json nor any artifacts; name one" in problem
    (folder / "runs" / "exp-1" / "config.yaml").write_text("experiment: {}")
    assert [p.split("  ")[2] for p in check(inheriting(valid, "exp-1"))] == ["V-01", "V-01"]


@pytest.mark.parametrize("path", [r"a\0b", r"~\0", r"a\nb", r"a\x9bb", r"~\ud800"])
def test_a_path_holds_no_control_character(check: Check, valid: str, path: str) -> None:
    (problem,) = check(valid.replace("storage_folder: runs", f'storage_folder: "{path}"'))
    assert "  experiment.storage_folder  V-20  " in problem
    resuming = f'experiment: {{id: e, storage_folder: runs, resume_from: "{path}"}}'
    (problem,) = check(resuming)  # what it would have supplied is not missing besides
    assert "  experiment.resume_from  V-20  " in problem


def test_resume_can_be_given_beside_the_file(folder: Path, valid: str) -> None:
    run = folder / "runs" / "exp-1"
    run.mkdir(parents=True)
    (run / "config.yaml").write_text(valid)
    (folder / "e.yaml").write_text(inheriting(valid, "gone"))
    assert read_config("e.yaml", resume_from="exp-1").config.experiment.resume_from == "exp-1"
    with pytest.raises(ConfigError, match="V-10"):
        read_config("e.yaml")


def test_our_parameters_and_the_providers_part_ways() -> None:
    model = ModelConfig(
        name="m",
        interface="openai",
        roles=["student", "judge"],
        parameters={
            "temperature": 0.7,
            "top_k": 5,
            "base_url": "http://host/v1",
            "timeout_s": 30,
            "system_prompt": "Be brief.",
            "extra_body": {"a": 1},
            "structured_output": False,
            "skill": 1,
        },
        role_parameters={"judge": {"temperature": 0.0, "max_tokens": 9, "system_prompt": "Be fair."}},
        access_key="k",
    )
    spec = model.spec()
    assert (spec.model, spec.base_url, spec.timeout_s, spec.access_key) == ("m", "http://host/v1", 30, "k")
    assert (spec.structured_output, spec.extra_body, spec.options) == (False, {"a": 1}, {})
    assert model.sampling("student").to_dict() == {"temperature": 0.7, "top_k": 5, "skill": 1}
    assert model.sampling("judge").to_dict() == {"temperature": 0.0, "top_k": 5, "skill": 1, "max_tokens": 9}
    assert (model.system_prompt("student"), model.system_prompt("judge")) == ("Be brief.", "Be fair.")


def test_what_only_the_interface_knows_is_an_option() -> None:
    simulated = ModelConfig(
        name="s",
        interface="simulated",
        roles=["judge"],
        parameters={"skill": 0.5, "family": "f", "temperature": 1},
    )
    assert simulated.spec().options == {"skill": 0.5, "family": "f"}
    assert simulated.sampling("judge").to_dict() == {"temperature": 1}
    local = ModelConfig(
        name="l",
        interface="huggingface",
        roles=["judge"],
        parameters={"device": "cuda:0", "max_new_tokens": 5},
    )
    assert local.spec().options == {"device": "cuda:0"}
    assert local.sampling("judge").to_dict() == {"max_tokens": 5}


def test_a_config_does_not_change(folder: Path, valid: str) -> None:
    (folder / "e.yaml").write_text(valid)
    with pytest.raises(ValidationError, match="frozen"):
        load_config("e.yaml").experiment.id = "other"
