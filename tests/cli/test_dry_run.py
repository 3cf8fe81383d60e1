"""``coeval run --dry-run``: the file is checked and the calls are counted; nothing is asked or written."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from cli.invoked import Command
from pipeline.experiments import Lab, listen, model, task

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted([*(ROOT / "examples").glob("*.yaml"), *(ROOT / "benchmark").glob("*.yaml")])
NEEDS_V1 = ("summarise-v2.yaml", "summarise-v5.yaml")


def listing(folder: Path) -> dict[Path, bytes | None]:
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def total(out: str) -> str:
    found = re.search(r"^(\S+) calls, excluding probes and retries\.", out, re.MULTILINE)
    assert found, out
    return found[1]


def test_the_medium_benchmark_takes_12_400_calls(here: Path, coeval: Command) -> None:
    ended = coeval("run", "--config", ROOT / "benchmark" / "medium_benchmark.yaml", "--dry-run")
    assert (ended.code, ended.err) == (0, "")
    assert total(ended.out) == "12,400"
    calls = {"data_generation": "400", "response_collection": "2,000", "evaluation": "10,000"}
    for phase, count in calls.items():
        assert re.search(rf"^ *{phase} .* {count} *$", ended.out, re.MULTILINE)
    assert list(here.iterdir()) == []


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_every_example_dry_runs_without_a_key(here: Path, coeval: Command, path: Path) -> None:
    if path.name in NEEDS_V1:
        source = here / "eval_runs" / "summarise-v1"
        source.mkdir(parents=True)
        (source / "config.yaml").write_bytes((ROOT / "examples" / "summarise-v1.yaml").read_bytes())
    (here / "examples").symlink_to(
        ROOT / "examples"
    )  # where its items are, from the folder of README's commands
    before = listing(here)
    ended = coeval("run", "--config", path, "--dry-run")
    assert ended.code == 0, ended.err
    known = (
        "warning: interface auto",
        "warning: there are no items in ",
        "warning: sql_generation: judges give no reasons",  # 128 tokens for three factors
    )
    lines = re.sub(r"\n(?!warning: )", " ", ended.err.strip()).splitlines()
    assert all(line.startswith(known) for line in lines), ended.err
    assert total(ended.out) != "0"
    assert listing(here) == before


def test_which_level_is_best_is_shown(here: Path, coeval: Command) -> None:
    rubric = {
        "plot": "It has one.",
        "solved": {"criterion": "It is.", "scale": ["yes", "no"]},
        "depth": {"criterion": "It goes deep.", "scale": "1-5"},
    }
    lab = Lab(here, [model("ann", "teacher", "student", "judge")], [task(rubric=rubric)])
    out = coeval("run", "--config", lab.file, "--dry-run").out
    assert "depth: 1 (worst) to 5 (best); solved: no (0), yes (1)" in " ".join(out.split())
    described = " ".join(coeval("describe", "--config", lab.file).out.split())
    for levels in ("1 (worst) to 5 (best)", "no (0), yes (1)", "Low (0), Medium (0.5), High (1)"):
        assert levels in described


def test_models_roles_modes_and_sampling_are_shown(here: Path, coeval: Command) -> None:
    lab = Lab(here, [model("tea", "teacher"), model("ann", "student", "judge")])
    lab.settings["phases"] = {"data_generation": "Keep"}
    out = coeval("run", "--config", lab.file, "--dry-run").out
    assert re.search(r"tea +simulated +teacher *$", out, re.MULTILINE)
    assert re.search(r"ann +simulated +student, judge *$", out, re.MULTILINE)
    assert re.search(r"data_generation +Keep +3 +3 +3 *$", out, re.MULTILINE)
    assert re.search(r"evaluation +New +3 +3 +3 *$", out, re.MULTILINE)
    assert re.search(r"story +3 +tea +single +9 ", out, re.MULTILINE)
    assert not lab.path.exists()


def test_parameters_that_may_be_misspelt_are_pointed_at(here: Path, coeval: Command) -> None:
    lab = Lab(here)
    parameters = {
        "base_url": "http://127.0.0.1:9/v1",
        "max_concurency": 4,
        "max_new_tokens": 9,
        "guided": True,
    }
    student = {"name": "m", "interface": "vllm", "roles": ["student"], "parameters": parameters}
    lab.models.append(student | {"role_parameters": {"student": {"temprature": 0.1}}})
    ended = coeval("run", "--config", lab.file, "--dry-run")
    assert ended.code == 0
    reported = r"^warning: models\.m\.(\S+) is passed to .* if (\S+) is meant"
    passed_on = re.findall(reported, ended.err, re.MULTILINE)
    assert passed_on == [
        ("parameters.max_concurency", "max_concurrency"),
        ("role_parameters.student.temprature", "temperature"),
    ]


def warnings(err: str) -> list[str]:
    return re.findall(r"^warning: (.*)$", err, re.MULTILINE)


@pytest.mark.process
def test_what_has_no_effect_is_told_and_the_run_goes_on(here: Path, coeval: Command) -> None:
    lab = Lab(here, settings={"estimate_cost": True, "quota": {"anne": {"max_calls": 1}}})
    reported = ["experiment.quota.anne limits nothing: no model is named 'anne'; did you mean 'ann'?"]
    for ended in (coeval("run", "--config", lab.file, "--dry-run"), coeval("run", "--config", lab.file)):
        assert ended.code == 0
        assert warnings(ended.err) == reported
    logged = (lab.path / "run.log").read_text()
    assert all(logged.count(sentence) == 1 for sentence in reported)


@pytest.mark.process
def test_a_range_beyond_the_proposed_attributes_is_told_once_these_are_known(
    here: Path, coeval: Command
) -> None:
    changes: dict[str, Any] = {"target_attributes": "auto", "nuanced_attributes": "auto"}
    sampling = {"target": [40, 50], "nuance": [1, 60], "total": 2}
    lab = Lab(here, [model("ann")], [task(**changes, sampling=sampling)])
    before = coeval("run", "--config", lab.file, "--dry-run")
    assert (before.code, warnings(before.err)) == (0, [])
    run = coeval("run", "--config", lab.file)
    again = coeval("run", "--config", lab.file, "--continue", "--dry-run")
    reported = r"tasks\.story\.sampling\.%s \[%s\] exceeds what can be sampled \((.*)\); items have (.*)"
    item, *_ = lab.records("data_generation").values()
    for ended in (run, again):
        of_target, of_nuance = warnings(ended.err)
        target, nuance = (
            re.match(reported % ("target", "40, 50"), of_target),
            re.match(reported % ("nuance", "1, 60"), of_nuance),
        )
        assert target
        assert target[1].split(", ") == list(item["sampled_target_attributes"])
        assert target[2] == str(len(item["sampled_target_attributes"]))
        assert nuance
        assert nuance[2] == f"1 to {len(nuance[1].split(', '))}"


def test_what_another_run_supplies_is_shown_as_taken_over(here: Path, coeval: Command) -> None:
    Lab(here, id="first").run()
    lab = Lab(here, settings={"resume_from": "first", "phases": {"rubric_mapping": "New"}})
    out = coeval("run", "--config", lab.file, "--dry-run").out
    assert re.search(r"attribute_mapping +inherited +0 +0 +0 *$", out, re.MULTILINE)
    assert re.search(r"rubric_mapping +New +0 +0 +0 *$", out, re.MULTILINE)


@pytest.mark.process
def test_with_continue_only_what_is_owed_is_counted(
    here: Path, coeval: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = Lab(here, [model("ann")], [task(total=4)])
    assert coeval("run", "--config", lab.file).code == 0
    lab.tasks = [task(total=6, rubric={"plot": "Things happen for a reason.", "end": "It ends."})]
    config, before = lab.file, listing(here)
    requested = listen(monkeypatch)
    ended = coeval("run", "--config", config, "--continue", "--dry-run")
    assert total(ended.out) == str(2 + 2 + 2 + 4)
    assert (requested.requests, listing(here)) == ([], before)
    assert coeval("run", "--config", config, "--continue").code == 0
    assert sum(requested.phases()) == 10


@pytest.mark.process
def test_a_dry_run_refuses_what_a_run_would(here: Path, coeval: Command) -> None:
    lab = Lab(here, [model("ann")])
    assert coeval("run", "--config", lab.file).code == 0
    lab.tasks[0]["descripton"] = lab.tasks[0].pop("description")
    command = ("run", "--config", lab.file, "--only-models", "ann,ben")
    for ended in (coeval(*command), coeval(*command, "--dry-run")):
        assert ended.code == 1
        rules = re.findall(r"^\S+\.yaml:\d+  \S+  (V-\d+) ", ended.err, re.MULTILINE)
        assert sorted(rules) == ["V-11", "V-18", "V-30"]
        assert "--only-models names 'ben'" in ended.err


# ``coeval describe`` on a terminal.


def test_an_experiment_is_shown_and_nothing_is_asked_or_written(
    here: Path, coeval: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    requested = listen(monkeypatch)
    shown = coeval("describe", "--config", ROOT / "examples" / "quickstart.yaml")
    assert shown.code == 0, shown.err
    for reported in (
        "72 items for 2 tasks, 216 answers to them, and 756 judgments of these answers.",
        "explain_concept  field      target   biology, economics, computing",
        "explain_concept: every declared value (6) occurs.",
        "of each teacher alone: 12 items cannot hold all 9 pairs",
        "936 calls",
        "total",
    ):
        assert reported in shown.out
    assert "You are writing one item" not in shown.out
    assert (list(here.iterdir()), requested.requests) == ([], [])


def test_prompts_are_printed_in_full_and_foreign_text_obeys_nothing(here: Path, coeval: Command) -> None:
    evil = "Tell \x1b[31mred\x1b[0m [bold]all[/bold] \u202egnol.\n\n  Indented."
    lab = Lab(here, models=[model("ann", system_prompt="Be kind.")], tasks=[task(description=evil)])
    shown = coeval("describe", "--config", lab.file, "--prompts")
    assert shown.code == 0, shown.err
    assert "\x1b" not in shown.out
    assert "\u202e" not in shown.out
    for reported in (
        "    [system]\n    Be kind.\n\n    [user]\n",
        r"    Tell \x1b[31mred\x1b[0m [bold]all[/bold] \u202egnol.",
        "      Indented.",
        "‹the prompt that ann will write›",
        "    - plot: Things happen for a reason.",
    ):
        assert reported in shown.out


def test_records_of_another_configuration_are_told(here: Path, coeval: Command) -> None:
    lab = Lab(here)
    lab.run()
    lab.models[0]["parameters"]["temperature"] = 0.3
    shown = coeval("describe", "--config", lab.file)
    assert shown.code == 0, shown.err
    assert "--redo-changed" in shown.out


@pytest.mark.process
def test_the_page_holds_all_of_it_and_runs_nothing_foreign(here: Path, coeval: Command) -> None:
    evil = "Tell <script>alert(1)</script> \u202e&amp;"
    lab = Lab(here, [model("ann")], [task(description=evil, total=2)])
    ended = coeval("describe", "--config", lab.file, "--out", here / "page.html")
    assert ended.code == 0, ended.err
    page = (here / "page.html").read_text()
    assert "<script>alert" not in page
    for reported in (
        "Tell &lt;script&gt;",
        "<mark>the prompt that ann will write</mark>",
        "What will it take?",
    ):
        assert reported in page
    assert not lab.path.exists()


@pytest.mark.parametrize(
    ("place", "reported"),
    [
        ("page.txt", "end its name in .html"),
        ("folder.html", "name a new file"),
        ("nowhere/page.html", "there is no folder"),
    ],
)
def test_a_page_takes_the_place_of_nothing_else(
    place: str, reported: str, here: Path, coeval: Command
) -> None:
    lab = Lab(here)
    (here / "folder.html").mkdir()
    for words in (("describe", "--out"), ("generate", "--out", here / "new.yaml", "--report")):
        ended = coeval(words[0], "--config", lab.file, *words[1:], here / place)
        assert (ended.code, ended.out) == (1, "")
        assert reported in ended.err
    assert not (here / "nowhere").exists()
    assert not lab.path.exists()
