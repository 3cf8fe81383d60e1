"""Whether a run may start in its folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from coeval.core.errors import ConfigError, UsageError
from coeval.pipeline.config import json_schema
from coeval.pipeline.config.load_file import load_config, read_config
from coeval.pipeline.config.resolve import resolve_models
from coeval.pipeline.config.schema import INTERFACES
from coeval.pipeline.run_options import RunOptions
from coeval.pricing.price_book import PriceBook
from coeval.pricing.pricing_file import Route


def start(text: str, **how: Any) -> list[str]:
    Path("e.yaml").write_text(text)
    try:
        read_config("e.yaml", start=RunOptions(**how))
    except ConfigError as error:
        return error.problems
    return []


@pytest.fixture
def run(folder: Path) -> Path:
    path = folder / "runs" / "exp-1"
    path.mkdir(parents=True)
    return path


def put(run: Path, name: str, *records: dict[str, str]) -> None:
    file = run / name
    file.parent.mkdir(exist_ok=True)
    file.write_text("".join(json.dumps(record) + "\n" for record in records))


def test_a_new_run_starts_where_nothing_stands(folder: Path, valid: str) -> None:
    assert start(valid) == []


def test_a_failed_start_is_not_a_run(run: Path, valid: str) -> None:
    (run / "probe_results.json").write_text("{}")
    (run / "cost_estimate.json").write_text("{}")
    (run / "phase3_datapoints").mkdir()
    assert start(valid) == []


def test_artifacts_of_a_new_phase_refuse_and_name_the_ways_out(run: Path, valid: str) -> None:
    put(run, "phase3_datapoints/news.large.datapoints.jsonl", {"teacher_model_id": "large"})
    put(run, "phase4_responses/news.large.responses.jsonl", {"teacher_model_id": "large"})
    (problem,) = start(valid)
    assert problem.startswith("e.yaml:19  experiment.id  V-11  ")
    for word in (
        "phase3_datapoints",
        "phase4_responses",
        "continue_run=True",
        "another id",
        "overwrite=True",
    ):
        assert word in problem
    assert start(valid, overwrite=True) == []
    phases = "storage_folder: runs\n  phases: {data_generation: Extend, response_collection: Model}"
    assert start(valid.replace("storage_folder: runs", phases)) == []


def test_items_of_ones_own_are_no_obstacle(run: Path, valid: str) -> None:
    """However they are written: the run that starts reads them."""
    arc = "  - {name: arc, interface: benchmark, roles: [teacher], parameters: {task: news}}\ntasks:"
    text = valid.replace("tasks:", arc)
    put(run, "phase3_datapoints/news.arc.datapoints.jsonl", {"id": "1", "prompt": "?"})
    assert start(text) == []
    (run / "phase3_datapoints/news.arc.datapoints.jsonl").write_text('{"id": 1, "pro')
    assert start(text) == []
    assert "V-11" in start(valid)[0]  # arc is no teacher of this one
    put(run, "phase3_datapoints/news.large.datapoints.jsonl", {"teacher_model_id": "large"})
    (problem,) = start(text)
    assert "V-11" in problem
    assert "news.large.datapoints.jsonl belongs to no benchmark teacher of this file" in problem
    assert "items are read from runs/exp-1/phase3_datapoints/news.arc.datapoints.jsonl" in problem
    (run / "meta.json").write_text("{}")
    assert "overwrite=True" in start(text)[0]


def test_continue_wants_the_run_it_names(run: Path, valid: str) -> None:
    (problem,) = start(valid, continue_run=True)
    assert problem.startswith("e.yaml:19  experiment.id  V-14  there is no run")
    meta = {"experiment_id": "other", "status": "running", "created_at": "", "updated_at": ""}
    (run / "meta.json").write_text(json.dumps(meta))
    (problem,) = start(valid, continue_run=True)
    assert "'other'" in problem
    (run / "meta.json").write_text(json.dumps(meta | {"experiment_id": "exp-1"}))
    assert start(valid, continue_run=True) == []
    (run / "meta.json").write_text("{")
    assert "V-14" in start(valid, continue_run=True)[0]


def test_what_hinders_a_start_is_told_together_with_every_mistake(run: Path, valid: str) -> None:
    put(run, "phase3_datapoints/news.large.datapoints.jsonl", {"teacher_model_id": "large"})
    text = valid.replace("name: small", "name: small\n    temprature: 1").replace("total: 5", "total: -2")
    problems = start(text, only_models=("large", "smal"))
    assert [tuple(problem.split("  ")[:3]) for problem in problems] == [
        ("e.yaml:1", "models", "V-30"),
        ("e.yaml:7", "models[1].temprature", "V-18"),
        ("e.yaml:16", "tasks[0].sampling.total", "V-21"),
        ("e.yaml:20", "experiment.id", "V-11"),
    ]
    assert "did you mean 'small'?" in problems[0]


@pytest.mark.parametrize("broken", ["id: ..", "id: a/b", "id: [1]", "storage_folder: 3", "phases: []"])
def test_a_start_is_not_looked_into_where_its_folder_is_not_known(run: Path, valid: str, broken: str) -> None:
    key = broken.partition(":")[0]
    lines = [line for line in valid.splitlines() if not line.startswith(f"  {key}:")]
    problems = start("\n".join([*lines, f"  {broken}"]))
    assert len(problems) == 1
    assert f"experiment.{key}" in problems[0]


# `interface: auto` bound to a host.


def auto(valid: str, model: str) -> str:
    return valid.replace(
        "interface: openai\n    roles: [j",
        f"interface: auto\n    parameters: {{model: {model}, top_p: 1}}\n    roles: [j",
    )


def prices(folder: Path) -> PriceBook:
    """Of a folder in which one model has prices that stay as they are."""
    (folder / "Config").mkdir(exist_ok=True)
    (folder / "Config" / "provider_pricing.yaml").write_text(
        "overrides:\n"
        "  deepseek-chat: {input_usd_per_mtok: 0.3, output_usd_per_mtok: 1.1}\n"
        "  deepseek/deepseek-chat: {input_usd_per_mtok: 0.2, output_usd_per_mtok: 0.9}\n"
        "  deepseek.v3-v1:0: {input_usd_per_mtok: 0.6, output_usd_per_mtok: 1.7}\n"
    )
    return PriceBook(folder)


def test_auto_takes_the_cheapest_host_with_a_credential(folder: Path, valid: str) -> None:
    (folder / "e.yaml").write_text(auto(valid, "deepseek/deepseek-chat"))
    resolved = resolve_models(load_config("e.yaml"), lambda host: host != "bedrock", prices(folder))
    large, small = resolved.config.models
    assert (large.interface, small.interface) == ("openai", "openrouter")
    assert small.spec().model == "deepseek/deepseek-chat"
    assert small.sampling("judge").to_dict() == {"top_p": 1}
    assert resolved.choices == (
        "model small: interface auto is openrouter, as deepseek/deepseek-chat ($0.20 in, $0.90 out per "
        "million tokens; deepseek: $0.30 in, $1.10 out per million tokens; no credential for bedrock)",
    )
    direct = resolve_models(load_config("e.yaml"), lambda host: host != "openrouter", prices(folder))
    assert (direct.config.models[1].interface, direct.config.models[1].spec().model) == (
        "deepseek",
        "deepseek-chat",
    )


def test_a_run_that_goes_on_stays_with_its_host(folder: Path, valid: str) -> None:
    (folder / "e.yaml").write_text(auto(valid, "deepseek-chat"))
    before = {"small": Route("deepseek", "deepseek-chat"), "large": Route("openai", "x")}

    def interface(*without: str) -> str:
        config = load_config("e.yaml")
        return (
            resolve_models(config, lambda host: host not in without, prices(folder), before)
            .config.models[1]
            .interface
        )

    assert interface() == "deepseek"
    assert interface("deepseek") == "openrouter"


def test_without_auto_nothing_is_asked(folder: Path, valid: str) -> None:
    (folder / "e.yaml").write_text(valid)
    config = load_config("e.yaml")

    def never(host: str) -> bool:
        raise AssertionError(host)

    assert resolve_models(config, never, PriceBook(folder)).config is config


def test_no_credential_names_hosts_and_variables(folder: Path, valid: str) -> None:
    (folder / "e.yaml").write_text(auto(valid, "gpt-4o"))
    with pytest.raises(UsageError, match=r"model 'small': .*OPENAI_API_KEY.*OPENROUTER_API_KEY"):
        resolve_models(load_config("e.yaml"), lambda host: False, PriceBook(folder))


# The JSON schema in the package is the one that the code makes.


def test_the_schema_file_is_current() -> None:
    assert json_schema.is_current(), "run python -m coeval.pipeline.config.json_schema"


def test_every_key_helps_in_an_editor() -> None:
    schema = json.loads(json_schema.build_schema_text())
    for name, section in schema["$defs"].items():
        for key, value in section["properties"].items():
            assert value.get("description"), f"{name}.{key} has no description"
    model = schema["$defs"]["ModelConfig"]
    assert model["properties"]["interface"]["enum"] == list(INTERFACES)
    assert model["additionalProperties"] is False
    assert schema["required"] == ["experiment"]


def test_check_tells_a_stale_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_schema, "SCHEMA_FILE", tmp_path / "s.json")
    assert json_schema.main(["--check"]) == 1
    assert json_schema.main([]) == 0
    assert json_schema.main(["--check"]) == 0
    (tmp_path / "s.json").write_text("{}")
    assert json_schema.main(["--check"]) == 1
