"""Each rule by its number: the line, the path, and what the message offers."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from coeval.pipeline.config import rules

Check = Callable[[str], list[str]]


# Each case: what of the valid file is replaced, by what, and the one problem it must make.
CASES = [
    ("name: small", "name: large", 6, "models[1].name", "V-02", "models[0]"),
    ("roles: [judge]", "roles: [judge]\n    label: large", 9, "models[1].label", "V-02", "models[0]"),
    ("roles: [judge]", "roles: [judge]\n    label: 'a '", 9, "models[1].label", "V-02", "blank"),
    ("name: large", "name: a//b", 2, "models[0].name", "V-04", "letters"),
    ("name: large", "name: a__b", 2, "models[0].name", "V-04", "separates"),
    ("name: news", "name: _news", 10, "tasks[0].name", "V-04", "separates"),
    ("name: large", "name: 'été'", 2, "models[0].name", "V-04", "letters"),
    ("id: exp-1", "id: ..", 19, "experiment.id", "V-04", "letters"),
    ("id: exp-1", 'id: "x\\n"', 19, "experiment.id", "V-04", "letters"),
    ("name: small", "name: exact_match", 6, "models[1].name", "V-04", "reserved"),
    ("roles: [judge]", "roles: [judge, jugde]", 8, "models[1].roles[1]", "V-05", "'judge'"),
    ("roles: [judge]", "roles: []", 8, "models[1].roles", "V-05", "at least one"),
    ("roles: [judge]", "roles: judge", 8, "models[1].roles", "V-05", "not a list; write [judge]"),
    ("roles: [judge]", "roles: student, judge", 8, "models[1].roles", "V-05", "write [student, judge]"),
    ("interface: openai\n    roles: [j", "interface: opnai\n    roles: [j", 7,
     "models[1].interface", "V-06", "'openai'"),
    ("interface: openai\n    roles: [j", "interface: litellm\n    roles: [j", 7,
     "models[1].interface", "V-06", "write `interface: openai` and `parameters: {base_url:"),
    ("interface: openai\n    roles: [j", "interface: openai_compatible\n    roles: [j", 7,
     "models[1].interface", "V-06", "(`interface: vllm`"),
    ("[teacher, student]", "[student]", 1, "models", "V-07", "teacher"),
    ("[teacher, student]", "[teacher]", 1, "models", "V-07", "student"),
    ("roles: [judge]", "roles: [student]", 1, "models", "V-07", "judge"),
    ("storage_folder: runs", "storage_folder: runs\n  phases: {rubric_mapping: Model}", 21,
     "experiment.phases.rubric_mapping", "V-08", "Keep"),
    ("rubric:\n      clarity: It is clear.", "rubric: extend", 16, "tasks[0].rubric", "V-09", "resume_from"),
    ("storage_folder: runs", "storage_folder: runs\n  resume_from: gone", 21,
     "experiment.resume_from", "V-10", "'gone'"),
    ("storage_folder: runs", "storage_folder: runs\n  generation_retries: -1", 21,
     "experiment.generation_retries", "V-12", "at least 0"),
    ("storage_folder: runs", "storage_folder: runs\n  generation_retries: 1.5", 21,
     "experiment.generation_retries", "V-12", "whole number"),
    ("storage_folder: runs", "storage_folder: runs\n  batch: {groq: {evaluation: true}}", 21,
     "experiment.batch.groq", "V-13", "openai"),
    ("storage_folder: runs", "storage_folder: runs\n  batch: {openai: {evalution: true}}", 21,
     "experiment.batch.openai.evalution", "V-13", "'evaluation'"),
    ("storage_folder: runs", "storage_folder: runs\n  batch: {openai: {evaluation: yes}}", 21,
     "experiment.batch.openai.evaluation", "V-13", "true or false"),
    ("storage_folder: runs", "storage_folder: runs\n  probe_mode: ful", 21,
     "experiment.probe_mode", "V-15", "'full'"),
    ("storage_folder: runs", "storage_folder: runs\n  probe_on_fail: stop", 21,
     "experiment.probe_on_fail", "V-16", "abort"),
    ("    rubric:", "    scale: [A, B, C]\n    rubric:", 16,
     "tasks[0].scale", "V-36", "{A: 0, B: 1, …} if it is C, {C: 0, B: 1, …} if it is A"),
    ("clarity: It is clear.", "clarity:\n        criterion: It is clear.\n        scale: [gut, mies]", 19,
     "tasks[0].rubric.clarity.scale", "V-36", "give the levels numbers"),
    ("clarity: It is clear.", "clarity:\n        criterion: It is clear.\n        description: 1", 19,
     "tasks[0].rubric.clarity.description", "V-18", "'criterion'"),
    ("    rubric:", "    label_attributes: [lenght]\n    rubric:", 16,
     "tasks[0].label_attributes[0]", "V-17", "'length'"),
    ("    rubric:", "    rubrik: 1\n    rubric:", 16, "tasks[0].rubrik", "V-18", "'rubric'"),
    ("roles: [judge]", "roles: [judge]\n    temperature: 0", 9,
     "models[1].temperature", "V-18", "belongs under parameters"),
    ("roles: [judge]", "roles: [judge]\n    model: gpt-4o", 9,
     "models[1].model", "V-18", "belongs under parameters"),
    ("    sampling: {target: [1, 2], total: 5}", "    total: 5", 15,
     "tasks[0].total", "V-18", "belongs under sampling"),
    ("experiment:", "quota: {}\nexperiment:", 18, "quota", "V-18", "belongs under experiment"),
    ("    rubric:", "    labels: [tone]\n    rubric:", 16, "tasks[0].labels", "V-18", "'label_attributes'"),
    ("description: Summarise.", "descripton: Summarise.", 11, "tasks[0].descripton", "V-18", "'description'"),
    ("    description: Summarise.\n", "", 10, "tasks[0].description", "V-20", "add it"),
    ("description: Summarise.", "description: 3", 11, "tasks[0].description", "V-20", "quotes"),
    ("description: Summarise.", "description: ''", 11, "tasks[0].description", "V-20", "fill it in"),
    ("description: Summarise.", "description: ' '", 11, "tasks[0].description", "V-20", "fill it in"),
    ("clarity: It is clear.", "clarity: ''", 17, "tasks[0].rubric.clarity", "V-20", "fill it in"),
    ("    rubric:", "    prompt_library: {test: ''}\n    rubric:", 16,
     "tasks[0].prompt_library.test", "V-20", "fill it in"),
    ("description: Summarise.", "description:", 11, "tasks[0].description", "V-20", "text"),
    ("total: 5", "total: '5'", 15, "tasks[0].sampling.total", "V-20", "whole number"),
    ("total: 5", "total: true", 15, "tasks[0].sampling.total", "V-20", "whole number"),
    ("total: 5", "total: -2", 15, "tasks[0].sampling.total", "V-21", "at least 1"),
    ("total: 5", "total: 10000001", 15, "tasks[0].sampling.total", "V-21", "at most 10,000,000"),
    ("total: 5", "total: " + "9" * 5000, 15, "tasks[0].sampling.total", "V-20", "whole number"),
    ("[1, 2], total", "[2, 1], total", 15, "tasks[0].sampling.target", "V-21", "[1, 2]"),
    ("[1, 2], total", "[-1, 1], total", 15, "tasks[0].sampling.target", "V-21", "negative"),
    ("[1, 2], total", "[1, 2, 3], total", 15, "tasks[0].sampling.target", "V-20", "two whole numbers"),
    ("[1, 2], total", "[true, x], total", 15, "tasks[0].sampling.target", "V-20", "found [true, x];"),
    ("[1, 2], total", "al, total", 15, "tasks[0].sampling.target", "V-20", "'all'"),
    ("[1, 2], total", "[3, 9], total", 15, "tasks[0].sampling.target", "V-23", "at most 2"),
    ("total: 5", "total: 5, nuance: [1]", 15, "tasks[0].sampling.nuance", "V-23",
     "declare nuanced_attributes, or set sampling.nuance to [0, 0]"),
    ("tone: [plain]", "tone: []", 14, "tasks[0].target_attributes.tone", "V-25", "at least one"),
    ("tone: [plain]", "tone: [a, 1, a, 1]", 14, "tasks[0].target_attributes.tone", "V-25", "1, a"),
    ("tone: [plain]", "tone: plain", 14, "tasks[0].target_attributes.tone", "V-20", "a list"),
    ("temperature: 0.7", "max_tokens: 0", 5, "models[0].parameters.max_tokens", "V-21", "1 or more"),
    ("temperature: 0.7", "max_tokens: -100000", 5, "models[0].parameters.max_tokens", "V-21", "1 or more"),
    ("temperature: 0.7", "extra_body: {options: {num_predict: -3}}", 5,
     "models[0].parameters.extra_body.options.num_predict", "V-21", "1 or more"),
    ("temperature: 0.7", "timeout_s: 0", 5, "models[0].parameters.timeout_s", "V-21", "more than 0"),
    ("temperature: 0.7", "max_concurrency: 0", 5,
     "models[0].parameters.max_concurrency", "V-21", "at least 1"),
    ("temperature: 0.7", "base_url: host", 5, "models[0].parameters.base_url", "V-20", "https://"),
    ("temperature: 0.7", "temperature: hot", 5,
     "models[0].parameters.temperature", "V-20", "is 'hot', not a number"),
    ("temperature: 0.7", "temperature: true", 5,
     "models[0].parameters.temperature", "V-20", "is true, not a number"),
    ("temperature: 0.7", "max_tokens: 0.5", 5,
     "models[0].parameters.max_tokens", "V-20", "whole number"),
    ("temperature: 0.7", "stop: [a, 1]", 5, "models[0].parameters.stop", "V-20", "is [a, 1], not text"),
    ("roles: [judge]", "roles: [judge]\n    role_parameters: {judge: {top_p: high}}", 9,
     "models[1].role_parameters.judge.top_p", "V-20", "is 'high', not a number"),
    ("temperature: 0.7", "api_key: sk-1", 5, "models[0].parameters.api_key", "V-26", "access_key"),
    ("roles: [judge]", "roles: [judge]\n    account: sk-test-0123456789", 9,
     "models[1].account", "V-26", "belongs into access_key or a key file"),
    ("roles: [judge]", "roles: [judge]\n    account: a b", 9, "models[1].account", "V-26", "letters, digits"),
    ("roles: [judge]", "roles: [judge]\n    account: {key: 12345678}", 9,
     "models[1].account", "V-20", "is something else, not text"),
    ("roles: [judge]", "roles: [judge]\n    account: team-b\n    access_key: x", 9,
     "models[1].account", "V-34", "remove one of the two"),
    ("roles: [judge]", "roles: [judge]\n    acount: team-b", 9, "models[1].acount", "V-18", "'account'"),
    ("roles: [judge]", "roles: [judge]\n    role_parameters: {judge: {model: x}}", 9,
     "models[1].role_parameters.judge.model", "V-26", "parameters"),
    ("roles: [judge]", "roles: [judge]\n    role_parameters: {juge: {}}", 9,
     "models[1].role_parameters.juge", "V-18", "'judge'"),
    ("roles: [judge]", "roles: [judge]\n    batch_enabled: yes", 9,
     "models[1].batch_enabled", "V-20", "true or false"),
    ("interface: openai\n    roles: [j", "interface: groq\n    batch_enabled: true\n    roles: [j", 8,
     "models[1].batch_enabled", "V-13", "Batch API"),
    ("interface: openai\n    roles: [j", "interface: benchmark\n    roles: [teacher, j", 8,
     "models[1].roles", "V-05", "teacher alone"),
    ("interface: openai\n    roles: [j", "interface: simulated\n    parameters: {skill: 2}\n    roles: [j", 8,
     "models[1].parameters.skill", "V-21", "from 0 to 1"),
    ("interface: openai\n    roles: [j",
     "interface: simulated\n    parameters: {skill: [1]}\n    roles: [j", 8,
     "models[1].parameters.skill", "V-20", "is a list, not a number"),
    ("interface: openai\n    roles: [j", "interface: simulated\n    parameters: {skil: 1}\n    roles: [j", 8,
     "models[1].parameters.skil", "V-18", "'skill'"),
    ("interface: openai\n    roles: [j",
     "interface: simulated\n    role_parameters: {judge: {temperatur: 0}}\n    roles: [j", 8,
     "models[1].role_parameters.judge.temperatur", "V-18", "'temperature'"),
    ("interface: openai\n    roles: [j",
     "interface: simulated\n    role_parameters: {judge: {severity: 0.2}}\n    roles: [j", 8,
     "models[1].role_parameters.judge.severity", "V-26", "second model"),
    ("storage_folder: runs", "storage_folder: runs\n  quota: {large: {max_calls: -1}}", 21,
     "experiment.quota.large.max_calls", "V-21", "at least 0"),
    ("storage_folder: runs", "storage_folder: runs\n  phases: {evaluation: keep}", 21,
     "experiment.phases.evaluation", "V-20", "'Keep'"),
    ("storage_folder: runs", "storage_folder: runs\n  phases: {evaluate: Keep}", 21,
     "experiment.phases.evaluate", "V-18", "'evaluation'"),
    ("    rubric:", "    prompt_library: {sampel: x}\n    rubric:", 16,
     "tasks[0].prompt_library.sampel", "V-24", "'sample'"),
    ("    rubric:", "    prompt_library: {test.lage: x}\n    rubric:", 16,
     "tasks[0].prompt_library.test.lage", "V-24", "'large'"),
    ("    rubric:", "    prompt_library:\n      test: |\n        Do {{this}}:\n        {inptu}\n    rubric:",
     17, "tasks[0].prompt_library.test", "V-22", "'input'"),
    ("    rubric:", "    prompt_library:\n      test: |\n        Summarise {{input}}.\n    rubric:",
     17, "tasks[0].prompt_library.test", "V-35", "prompts_may_omit: [input]"),
    ("    rubric:", "    prompt_library: {test.large: Summarise.}\n    rubric:",
     16, "tasks[0].prompt_library.test.large", "V-35", "students would not see the prompt"),
    ("    rubric:", "    prompt_library: {evaluate_single: '{input} {rubric} {reference}'}\n    rubric:",
     16, "tasks[0].prompt_library.evaluate_single", "V-35", "score answers that they cannot see"),
    ("    rubric:", "    prompt_library: {evaluate_per_factor: '{input} {factor}'}\n    rubric:",
     16, "tasks[0].prompt_library.evaluate_per_factor", "V-35", "shows no {response}"),
    ("    rubric:", "    prompt_library: {evaluate_per_factor.small: 'Good? {response}'}\n    rubric:",
     16, "tasks[0].prompt_library.evaluate_per_factor.small", "V-35", "shows no {factor} or {criterion}"),
    ("    rubric:\n      clarity: It is clear.",
     "    prompt_library: {evaluate_single: 'Good? {response}'}\n    rubric: auto",
     16, "tasks[0].prompt_library.evaluate_single", "V-35", "prompts_may_omit: [rubric]"),
    ("    rubric:", "    prompt_library: {sample: 'An item, please.'}\n    rubric:",
     16, "tasks[0].prompt_library.sample", "V-35", "what their items must cover"),
    ("    rubric:", "    prompts_may_omit: [respons]\n    prompt_library: {test: Say.}\n    rubric:",
     16, "tasks[0].prompts_may_omit[0]", "V-20", "'response'"),
    ("    sampling:", "    target_attributes_seed: {x: [y]}\n    sampling:", 15,
     "tasks[0].target_attributes_seed", "V-28", "set target_attributes to auto or complete"),
    ("    sampling:", "    nuanced_attributes_seed: {x: [y]}\n    sampling:", 15,
     "tasks[0].nuanced_attributes_seed", "V-28", "set nuanced_attributes to auto,"),
    ("    rubric:\n      clarity: It is clear.", "    rubric: {}", 16,
     "tasks[0].rubric", "V-29", "label_attributes"),
    ("id: exp-1\n", "id: exp-1\n  id: exp-2\n", 20, "experiment.id", "V-19", "line 19"),
]  # fmt: skip


RUBRIC = "    rubric:\n      clarity: It is clear."
LIBRARY = """\
    prompt_library:
      sample.large: '{task_description} {target_attributes} {nuanced_attributes}'
      evaluate_per_factor: '{factor} {criterion} {response} {reference} { other } {0} {{x}}'
"""
SOME = "temperature: 0.7, max_tokens: 9, reasoning_effort: low, timeout_s: 3, system_prompt: Hi."
RIGHT = [
    ("models:", "models:"),
    *(("name: large", f"name: '{name}'") for name in ("gpt-4.1-mini", "a", "4", "a_b", "-", "a..b")),
    *(("[1, 2], total", f"{size}, total") for size in ("[2, 99]", "[0], nuance: [0]", "all")),
    (RUBRIC, f"    label_attributes: [length, tone]\n{RUBRIC}"),
    (RUBRIC, "    label_attributes: [tone]\n    rubric: {}"),
    (RUBRIC, LIBRARY + RUBRIC),
    ("temperature: 0.7", "temperature: 1, top_p: null, stop: [a, b], stop_sequences: c"),
    ("temperature: 0.7", "max_tokens: 3, logprobs: 5"),
    ("temperature: 0.7", SOME),
    ("temperature: 0.7", "quirk: 1"),  # a provider may know any
]


@pytest.mark.parametrize(("old", "new"), RIGHT)
def test_what_is_right_has_no_problems(check: Check, valid: str, old: str, new: str) -> None:
    assert old in valid
    assert check(valid.replace(old, new)) == []


@pytest.mark.parametrize("parameters", [SOME, "base_url: http://127.0.0.1:1/v1, quirk: 1"])
def test_a_simulated_model_takes_what_providers_usually_do(check: Check, valid: str, parameters: str) -> None:
    text = valid.replace("interface: openai", "interface: simulated")
    assert check(text.replace("temperature: 0.7", parameters)) == []


@pytest.mark.parametrize(("old", "new", "line", "path", "rule", "offers"), CASES)
def test_one_mistake_is_one_line(
    check: Check, valid: str, old: str, new: str, line: int, path: str, rule: str, offers: str
) -> None:
    assert old in valid
    problems = check(valid.replace(old, new, 1))
    assert len(problems) == 1, problems
    assert problems[0].startswith(f"e.yaml:{line}  {path}  {rule}  ")
    assert offers in problems[0].split("  ", 3)[3]


@pytest.mark.parametrize("budget", ["budget_usd: 1", "quota: {large: {max_cost_usd: 1}}"])
@pytest.mark.parametrize("parameter", ["max_tokens", "max_completion_tokens", "extra_body: {max_tokens"])
def test_a_limit_that_is_none_bounds_nothing_where_a_budget_holds(
    check: Check, valid: str, budget: str, parameter: str
) -> None:
    """-1 is no limit to many hosts: a doubt by itself, and refused where a budget needs a bound."""
    unlimited = valid.replace("temperature: 0.7", f"{parameter}: -1" + "}" * parameter.count("{"))
    assert check(unlimited) == []
    problems = check(unlimited.replace("storage_folder", f"{budget}\n  storage_folder"))
    assert len(problems) == 1, problems
    key = parameter.replace(": {", ".")
    assert f"e.yaml:5  models[0].parameters.{key}  V-21  is -1" in problems[0]
    assert "needs a limit; use a whole number, 1 or more" in problems[0]


@pytest.mark.parametrize("empty", ["models: []", "models:", "models: {}", "models: none"])
def test_models_must_be_there(check: Check, valid: str, empty: str) -> None:
    (problem,) = check(empty + "\n" + valid[valid.index("tasks:") :])
    assert problem.startswith("e.yaml:1  models  V-01  ")


def test_two_tasks_of_one_name(check: Check, valid: str) -> None:
    task = valid[valid.index("  - name: news") : valid.index("experiment:")]
    (problem,) = check(valid.replace("experiment:", task + "experiment:"))
    assert problem.startswith("e.yaml:18  tasks[1].name  V-03  ")


def test_labels_of_attributes_that_teachers_propose_stand_in_the_seed(check: Check, valid: str) -> None:
    attributes = "target_attributes:\n      length: [short, long]\n      tone: [plain]\n"
    auto = valid.replace(attributes, "target_attributes: auto\n    label_attributes: [tone]\n")
    (problem,) = check(auto)
    assert "tasks[0].label_attributes[0]  V-17" in problem
    assert "target_attributes_seed" in problem
    assert (
        check(auto.replace("    rubric:", "    target_attributes_seed: {tone: [plain]}\n    rubric:")) == []
    )


BLIND = {
    "test": ("Say something.", "input"),
    "evaluate_single": ("Is {input} a good question?", "response"),
    "evaluate_per_factor": ("Is {response} good?", "factor"),
    "sample": ("An item about anything.", "target_attributes"),
}


@pytest.mark.parametrize("name", BLIND)
def test_a_template_leaves_out_what_its_author_says(check: Check, valid: str, name: str) -> None:
    template, variable = BLIND[name]
    library = f"    prompt_library: {{{name}: '{template}'}}\n    rubric:"
    (problem,) = check(valid.replace("    rubric:", library))
    assert "  V-35  " in problem
    assert check(valid.replace("    rubric:", f"    prompts_may_omit: [{variable}]\n{library}")) == []


def test_a_template_shows_what_there_is(check: Check, valid: str) -> None:
    without = valid.replace("      length: [short, long]\n      tone: [plain]\n", "").replace(
        "target_attributes:", "target_attributes: {}"
    )
    library = "    prompt_library: {sample: 'An item.', evaluate_single: 'Clear? {response}'}\n    rubric:"
    text = without.replace("[1, 2], total", "[0, 0], total").replace("    rubric:", library)
    assert check(text) == []


@pytest.mark.parametrize("place", ["models[0].name", "tasks[0].name", "experiment.id"])
def test_a_name_is_short_enough_for_a_file(check: Check, valid: str, place: str) -> None:
    given = {"models[0].name": "name: large", "tasks[0].name": "name: news", "experiment.id": "id: exp-1"}
    key, _, _ = given[place].partition(" ")
    (problem,) = check(valid.replace(given[place], f"{key} {'x' * 240}"))
    assert f"  {place}  V-04  " in problem
    assert "240 characters" in problem


@pytest.mark.parametrize(
    ("old", "fits", "named"),
    [
        ("name: small", 239 - len("news.large..evaluations.jsonl"), "'news' and 'large' and 'xx"),
        ("name: news", 239 - len(".large.small.evaluations.jsonl"), "xx' and 'large' and 'small' make"),
        ("name: large", 239 - len("news..small.evaluations.jsonl"), "'news' and 'xx"),
        ("name: only", 239 - len("news..responses.jsonl"), "'news' and 'xx"),
    ],
)
def test_names_are_short_enough_together(check: Check, valid: str, old: str, fits: int, named: str) -> None:
    """The teacher and a student is large, the judge small: news.large.small.evaluations.jsonl."""
    student = "  - {name: only, interface: openai, roles: [student]}\ntasks:"
    text = valid.replace("tasks:", student)
    assert check(text.replace(old, "name: " + "x" * fits)) == []
    (problem,) = check(text.replace(old, "name: " + "x" * (fits + 1)))
    assert "  tasks[0].name  V-04  " in problem
    assert named in problem
    assert "of 240 characters" in problem


def test_a_teacher_is_needed_only_for_work(check: Check, valid: str, folder: Path) -> None:
    without = valid.replace("[teacher, student]", "[student]")
    kept = without.replace("storage_folder: runs", "storage_folder: runs\n  phases: {data_generation: Keep}")
    assert "V-07" in check(kept)[0]  # nothing is there to keep
    (folder / "runs" / "old").mkdir(parents=True)
    (folder / "runs" / "old" / "meta.json").write_text("{}")
    assert check(kept + "  resume_from: old\n") == []
    assert "V-07" in check(without + "  resume_from: old\n")[0]  # phase 3 is New
    proposing = kept.replace("length: [short, long]\n      tone: [plain]", "x: [y]").replace(
        "rubric:\n      clarity: It is clear.", "rubric: auto"
    )
    assert check(proposing + "  resume_from: old\n") == []  # what teachers proposed comes along
    anew = proposing.replace("{data_generation: Keep}", "{data_generation: Keep, rubric_mapping: New}")
    (problem,) = check(anew + "  resume_from: old\n")
    assert "phases 1–3" in problem
    standing = folder / "runs" / "exp-1" / "phase3_datapoints"
    standing.mkdir(parents=True)
    (standing / "news.x.datapoints.jsonl").touch()
    assert check(kept) == []


def test_benchmark_tasks_and_teachers_belong_together(check: Check, valid: str) -> None:
    task = valid.replace("    rubric:", "    category: benchmark\n    rubric:")
    (problem,) = check(task)
    assert problem.startswith("e.yaml:16  tasks[0].category  V-07  ")
    teacher = "  - name: arc\n    interface: benchmark\n    roles: [teacher]\ntasks:"
    assert check(task.replace("tasks:", teacher)) == []
    (problem,) = check(valid.replace("tasks:", teacher).replace("[teacher, student]", "[student]"))
    assert "tasks[0].category  V-07" in problem


def test_a_benchmark_that_names_its_task_serves_it_whatever_its_category(check: Check, valid: str) -> None:
    models = valid.replace("[teacher, student]", "[student]")
    arc = "  - {{name: arc, interface: benchmark, roles: [teacher], parameters: {{task: {}}}}}\ntasks:"
    assert check(models.replace("tasks:", arc.format("news"))) == []
    problems = check(models.replace("tasks:", arc.format("nws")))
    assert [" V-07  " in problem for problem in problems] == [True, True]
    assert "models[2].parameters.task  V-07  no task is named 'nws'; did you mean 'news'?" in problems[0]
    assert "give one parameters: {task: news}" in problems[1]
    bench = models.replace("    rubric:", "    category: benchmark\n    rubric:")
    assert check(bench.replace("tasks:", arc.format("news"))) == []
    elsewhere = bench.replace("tasks:", arc.format("other")).replace(
        "experiment:", OTHER_TASK + "experiment:"
    )
    (problem,) = check(elsewhere)
    assert (
        "tasks[0].category  V-07  is benchmark, and no teacher of the interface benchmark serves" in problem
    )


OTHER_TASK = """  - name: other
    description: Do it.
    target_attributes: {tone: [dry, warm]}
    sampling: {total: 1}
    rubric: {clarity: It is clear.}
"""


def test_no_judge_is_needed_where_only_labels_are_scored(check: Check, valid: str) -> None:
    text = valid.replace("roles: [judge]", "roles: [student]").replace("clarity: It", "tone: It")
    assert "V-07" in check(text)[0]
    assert check(text.replace("    rubric:", "    label_attributes: [tone]\n    rubric:")) == []


def test_a_run_cannot_resume_from_itself(check: Check, valid: str, folder: Path) -> None:
    (folder / "runs" / "exp-1").mkdir(parents=True)
    (problem,) = check(valid + "  resume_from: exp-1\n")
    assert "V-10" in problem
    assert "continue_run=True" in problem


def test_a_misspelt_key_is_not_reported_as_missing_too(check: Check, valid: str) -> None:
    labelled = "    labels: [tone]\n    rubric: {}"
    (problem,) = check(valid.replace("    rubric:\n      clarity: It is clear.", labelled))
    assert "'label_attributes'" in problem


def test_every_rule_has_a_number_of_its_own() -> None:
    table = Path(rules.__file__).with_suffix(".md").read_text(encoding="utf-8")
    described = re.findall(r"^\| (V-\d+)", table, re.MULTILINE)
    assert len(described) == len(set(described)) >= 33
