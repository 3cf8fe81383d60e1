"""Phases 1–2: attributes and rubrics, given or proposed, merged, kept, extended."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from fakes.openai_chat import Answer, Behaviour, fake
from hypothesis import example, given
from hypothesis import strategies as st
from pipeline.experiments import Lab, listen, model, task

from coeval.core.errors import EmptyReply, ReplyError, StoreError, Unparsable
from coeval.core.records import Schema
from coeval.core.text import extract_json, fill_template, normalize_name, placeholders
from coeval.pipeline import prompts
from coeval.pipeline.phases.proposals import (
    merge_attributes,
    merge_rubrics,
    parse_attributes,
    parse_item,
    parse_rubric,
)
from coeval.pipeline.plan.judge_form import JudgeForm
from coeval.pipeline.prompts import (
    BENCHMARK_ITEM,
    NUANCED_ATTRIBUTES,
    RUBRIC,
    TARGET_ATTRIBUTES,
    VARIABLES,
    find_template,
    read_builtin_template,
    render_attributes,
    render_rubric,
)

TWO = [model("ann"), model("ben", "teacher", "judge")]


def artifact(lab: Lab, name: str) -> Any:
    return json.loads((lab.path / name).read_text())


def proposals(lab: Lab, folder: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (lab.path / folder / "proposals.jsonl").read_text().splitlines()]


def test_static_sections_are_written_without_a_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requested = listen(monkeypatch)
    lab = Lab(tmp_path, TWO, [task(nuanced_attributes={"tone": ["dry"]})])
    lab.run()
    assert requested.phases()[:2] == (0, 0)
    assert artifact(lab, "phase1_attributes/story_target_attrs.json") == {
        "mood": ["glad", "sad"],
        "length": ["short", "long"],
    }
    assert artifact(lab, "phase1_attributes/story_nuanced_attrs.json") == {"tone": ["dry"]}
    assert list(artifact(lab, "phase2_rubric/story.rubric.json")) == ["plot", "style"]
    assert not (lab.path / "phase1_attributes" / "proposals.jsonl").exists()


def test_proposals_are_merged_in_the_order_of_the_file_and_seeds_come_first(tmp_path: Path) -> None:
    seeds = {"topic": ["space"], "mood": ["glad"]}
    auto = task(target_attributes="auto", target_attributes_seed=seeds, rubric="auto")
    lab = Lab(tmp_path, TWO, [auto])
    lab.run()
    made = proposals(lab, "phase1_attributes")
    assert {record["teacher_model_id"] for record in made} == {"ann", "ben"}
    assert {record["kind"] for record in made} == {"target"}
    target = artifact(lab, "phase1_attributes/story_target_attrs.json")
    assert list(target)[:2] == ["topic", "mood"]
    assert target["topic"][0] == "space"
    for record in made:
        for name, values in record["attributes"].items():
            assert set(values) <= set(target[name]), "the union of what was proposed"
    rubric = artifact(lab, "phase2_rubric/story.rubric.json")
    by_teacher = {r["teacher_model_id"]: r["rubric"] for r in proposals(lab, "phase2_rubric")}
    names = list(dict.fromkeys([*by_teacher["ann"], *by_teacher["ben"]]))
    assert list(rubric) == names
    assert {record["id"] for record in made} == {"story__ann__target", "story__ben__target"}


def test_items_have_the_proposed_attributes_and_judges_the_proposed_rubric(tmp_path: Path) -> None:
    lab = Lab(tmp_path, TWO, [task(target_attributes="auto", rubric="auto", total=4)])
    lab.run()
    target = artifact(lab, "phase1_attributes/story_target_attrs.json")
    rubric = artifact(lab, "phase2_rubric/story.rubric.json")
    for item in lab.lines("data_generation"):
        assert item["sampled_target_attributes"]
        assert all(value in target[name] for name, value in item["sampled_target_attributes"].items())
    assert all(list(record["scores"]) == list(rubric) for record in lab.lines("evaluation"))


def test_complete_walks_the_whole_cross_product(tmp_path: Path) -> None:
    lab = Lab(tmp_path, [model("ann")], [task(target_attributes="complete", total=6)])
    lab.run()
    target = artifact(lab, "phase1_attributes/story_target_attrs.json")
    sampled = [item["sampled_target_attributes"] for item in lab.lines("data_generation")]
    assert all(item.keys() == target.keys() for item in sampled)
    assert len({json.dumps(item) for item in sampled}) == 6


def test_a_template_may_use_a_rubric_that_teachers_proposed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`sample` and `test` may use every variable of the task, also one that phase 2 has drawn."""
    own = (
        'JSON with "prompt" and "response" for {task_description}, {target_attributes}, judged by:\n{rubric}'
    )
    lab = Lab(tmp_path, [model("ann")], [task(rubric="auto", prompt_library={"sample": own})])
    requested = listen(monkeypatch)
    lab.run()
    texts = [r.messages[-1].content for _, r in requested.requests if r.purpose == "data_generation"]
    rubric = artifact(lab, "phase2_rubric/story.rubric.json")
    assert texts
    assert all(f"- {factor}: {criterion}" in text for text in texts for factor, criterion in rubric.items())


def test_a_blueprint_drawn_without_a_teacher_says_so(tmp_path: Path) -> None:
    teachers = [model("ann"), model("ben", "teacher", failure_rate=1.0)]
    lab = Lab(tmp_path, teachers, [task(rubric="auto")], {"probe_mode": "disable"})
    run = lab.run()
    assert run.summary is not None
    assert run.summary.notes == [
        "story: rubric_mapping was drawn without ben, and stays so; "
        "use another experiment id or overwrite=True to draw it again"
    ]
    assert run.exit_code == 3


async def test_a_crash_repeats_no_proposal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One teacher had proposed when the run stopped: --continue asks the other alone."""
    lab = Lab(tmp_path, TWO, [task(rubric="auto")])
    await lab.arun()
    kept = proposals(lab, "phase2_rubric")
    expected = artifact(lab, "phase2_rubric/story.rubric.json")
    for path in lab.path.glob("phase[2345]*/*"):
        path.unlink()
    [first] = [record for record in kept if record["teacher_model_id"] == "ann"]
    (lab.path / "phase2_rubric" / "proposals.jsonl").write_text(json.dumps(first) + "\n")
    requested = listen(monkeypatch)
    run = await lab.arun(continue_run=True)
    assert run.exit_code == 0
    assert [name for name, request in requested.requests if request.purpose == "rubric_mapping"] == ["ben"]
    assert artifact(lab, "phase2_rubric/story.rubric.json") == expected


async def test_names_that_differ_in_spelling_alone_are_one(tmp_path: Path) -> None:
    replies = iter(
        [
            '{"factors": [{"name": "Plot", "criterion": "First."}, {"name": "pace", "criterion": "Fast."}]}',
            '{"factors": [{"name": "plot", "criterion": "Second."}, {"name": "Pace!", "criterion": "?"}]}',
        ]
    )

    def answer(messages: list[dict[str, Any]]) -> Behaviour:
        return Answer(next(replies) if "rubric" in messages[-1]["content"] else "ok")

    async with fake(reply=answer) as server:
        parameters = {"base_url": server.url, "max_concurrency": 1}
        teachers = [
            {"name": name, "interface": "vllm", "roles": ["teacher"], "parameters": parameters}
            for name in ("tea", "tom")
        ]
        models = [*teachers, model("ann", "student", "judge")]
        lab = Lab(tmp_path, models, [task(rubric="auto", total=1)], {"probe_mode": "disable"})
        await lab.arun()
    rubric = artifact(lab, "phase2_rubric/story.rubric.json")
    assert list(rubric) == ["Plot", "pace", "Pace!"]
    assert rubric["Plot"] in ("First.", "Second.")


def test_a_damaged_artifact_is_named(tmp_path: Path) -> None:
    lab = Lab(tmp_path, TWO)
    lab.run()
    (lab.path / "phase2_rubric" / "story.rubric.json").write_text("[]")
    with pytest.raises(StoreError, match=r"story\.rubric\.json holds no mapping; restore it"):
        lab.run(continue_run=True)


# test_teaching

texts = st.text(min_size=1, max_size=12)
attributes = st.dictionaries(texts, st.lists(texts, min_size=1, max_size=4, unique=True), max_size=4)


@pytest.mark.parametrize(
    "reply",
    [
        '{"prompt": "Why?", "response": "Because."}',
        'Sure:\n```json\n{"Question": "Why?", "Answer": "Because."}\n```',
        '{"INPUT": "Why?", "Reference_Response": "Because."}',
        '{"instruction": "Why?", "ideal-response": "Because.", "notes": "x"}',
        '{"item": {"query": "Why?", "completion": "Because."}}',
        '{"items": [{"text": "Why?", "output": "Because."}, {"text": "Who?", "output": "You."}]}',
        '[{"prompt": "Why?", "reference": "Because."}]',
    ],
)
def test_an_item_is_read_under_every_common_name(reply: str) -> None:
    assert parse_item(reply) == ("Why?", "Because.", False)


def test_damaged_items_are_mended_and_say_so() -> None:
    assert parse_item("{'prompt': 'Why?', 'response': 'Because.',}") == ("Why?", "Because.", True)


def test_what_is_not_text_becomes_json() -> None:
    item = parse_item('{"prompt": {"rows": [1, "ü"]}, "response": 42}')
    assert (item.prompt, item.response) == ('{"rows": [1, "ü"]}', "42")


@pytest.mark.parametrize(
    "reply",
    [
        '{"prompt": " ", "response": "x"}',
        '{"prompt": null, "response": "x"}',
        '{"prompt": "x", "response": ""}',
        '{"prompt": "x"}',
        '{"prompt": "x", "response": NaN}',
    ],
)
def test_half_an_item_is_an_empty_reply(reply: str) -> None:
    with pytest.raises(EmptyReply) as caught:
        parse_item(reply)
    assert caught.value.raw == reply


@pytest.mark.parametrize("prompt", ["NaN", "-Infinity", "42", "4.5", "true", "[]", '["Why?"]'])
def test_what_cannot_be_a_question_is_not_taken_for_one(prompt: str) -> None:
    with pytest.raises(Unparsable, match="no prompt"):
        parse_item(f'{{"prompt": {prompt}, "response": "x"}}')
    reply = f'{{"text": {prompt}, "item": {{"prompt": "Why?", "response": 42}}}}'
    assert parse_item(reply) == ("Why?", "42", False)


@pytest.mark.parametrize("reply", ["I cannot help with that.", "", '{"foo": "x"}', "[1, 2]"])
def test_a_reply_without_an_item_is_unparsable(reply: str) -> None:
    with pytest.raises(Unparsable):
        parse_item(reply)


TONE = ["formal", "casual"]
LENGTH = ["short", 2, True]
PROPOSED = {"tone": TONE, "text_length": ["short", "2", "true"]}


@pytest.mark.parametrize(
    "reply",
    [
        {"attributes": [{"name": "tone", "values": TONE}, {"name": "text length", "values": LENGTH}]},
        [{"name": "tone", "values": TONE}, {"attribute": "text length", "options": LENGTH}],
        {"tone": TONE, "text length": LENGTH},
        {"note": "two of them", "target_attributes": {"tone": TONE, "text length": LENGTH}},
        {"anything": {"tone": TONE, " text \n length: ": ["short", " short", 2, True, None, {}]}},
        {"tone": {"values": TONE}, "**text length**": {"values": ["short", "Short", 2, True]}},
        [{"tone": ["formal"]}, {"Tone": ["casual", "FORMAL"]}, {"text length": LENGTH}],
    ],
)
def test_attributes_are_read_in_every_common_shape(reply: object) -> None:
    assert parse_attributes(json.dumps(reply)) == (PROPOSED, False)


RIGHT = "It is right."


def test_a_single_attribute_is_not_taken_for_a_wrapper() -> None:
    assert parse_attributes('{"tone": {"values": ["a"]}}').values == {"tone": ["a"]}
    assert parse_attributes('{"factors": ["a", "b"]}').values == {"factors": ["a", "b"]}


@pytest.mark.parametrize(
    "reply",
    [
        {
            "factors": [
                {"name": "accuracy", "criterion": RIGHT},
                {"name": "Tone of voice", "criterion": "Calm."},
            ]
        },
        {"accuracy": "It is\n right.", "Tone of voice": "Calm."},
        {"rubric": {"accuracy": "It is right.", "Tone of voice": "Calm."}, "version": 2},
        {"accuracy": {"description": "It is right."}, "Tone of voice": {"description": "Calm.", "weight": 1}},
        [{"factor": "accuracy", "criterion": RIGHT}, {"factor": "Tone of voice", "criterion": "Calm."}],
    ],
)
def test_rubrics_are_read_in_every_common_shape(reply: object) -> None:
    assert parse_rubric(json.dumps(reply)) == {"accuracy": "It is right.", "Tone_of_voice": "Calm."}


@pytest.mark.parametrize(
    "reply", ["{}", "[1]", '{"a": []}', '{"a": {"b": {"c": 1}}}', '{"": ["x"]}', '{"a": [" "]}']
)
def test_proposals_of_nothing_are_empty_replies(reply: str) -> None:
    with pytest.raises(EmptyReply):
        parse_attributes(reply)
    with pytest.raises(EmptyReply):
        parse_rubric(reply)


def test_what_is_taken_from_a_boundless_proposal_is_bounded() -> None:
    reply = {"n" * 500 + str(i): ["v" * 1000 + str(i)] for i in range(100)} | {
        "x": [str(i) for i in range(999)]
    }
    found = parse_attributes(json.dumps({"x": reply["x"], **reply})).values
    assert len(found) <= 40
    assert max(map(len, found)) <= 64
    assert len(found["x"]) == 50
    assert max(len(value) for values in found.values() for value in values) <= 200


@pytest.mark.process
@given(st.dictionaries(st.text(max_size=90), st.lists(st.text(max_size=20), max_size=3), max_size=5))
def test_names_and_values_are_clean_whatever_a_teacher_writes(proposal: dict[str, list[str]]) -> None:
    try:
        found = parse_attributes(json.dumps(proposal)).values
    except ReplyError:
        return
    for name, values in found.items():
        assert name.isprintable()
        assert name
        assert not set(name) & set(' :*`"{}')
        assert values
        assert all(value.isprintable() and value == value.strip() for value in values)


def test_merging_keeps_the_first_spelling_and_the_order() -> None:
    merged = merge_attributes(
        {"tone": ["formal"]},
        {"Tone": ["Formal", "very casual"], "length": ["a"]},
        {"TONE": ["very_casual", "rude"]},
    )
    assert merged == {"tone": ["formal", "very casual", "rude"], "length": ["a"]}
    assert list(merged) == ["tone", "length"]


def test_merging_rubrics_keeps_the_first_criterion() -> None:
    merged = merge_rubrics({"issue_resolution": "Solved."}, {"Issue Resolution": "Fixed.", "tone": "Calm."})
    assert merged == {"issue_resolution": "Solved.", "tone": "Calm."}


def test_spellings_in_one_proposal_are_merged_as_those_of_several_are() -> None:
    proposed = {"NONE": ["0"], "NoNE": ["00", "x y"], "none": ["X_Y", "000"]}
    assert merge_attributes({}, proposed) == {"NONE": ["0", "00", "x y", "000"]}
    assert merge_rubrics({}, {"To Point": "One.", "to_point": "Two."}) == {"To Point": "One."}


def test_seeds_that_differ_in_spelling_only_stay_apart() -> None:
    seeds = {"Case": ["upper"], "case": ["lower"]}
    assert merge_attributes(seeds, {"case": ["mixed"], "CASE": ["none"]}) == {
        "Case": ["upper", "none"],
        "case": ["lower", "mixed"],
    }


@pytest.mark.process
@example({}, [{"NONE": ["0"], "NoNE": ["00"]}])
@given(attributes, st.lists(attributes, max_size=3))
def test_seeds_are_always_kept_as_they_stand(
    seed: dict[str, list[str]], others: list[dict[str, list[str]]]
) -> None:
    merged = merge_attributes(seed, *others)
    assert list(merged)[: len(seed)] == list(seed)
    for name, values in seed.items():
        assert merged[name][: len(values)] == values
    assert merge_attributes(merged, *others) == merged
    together = [normalize_name(name) for name in merged if name not in seed]
    assert len(set(together)) == len(together)


# test_prompts

KEY_VARIABLES = {
    "map_target_attrs": {"task_description"},
    "map_nuanced_attrs": {"task_description"},
    "autorubric": {"task_description", "output_description"},
    "sample": {"task_description", "output_description", "target_attributes", "nuanced_attributes"},
    "sample_documents": {"task_description", "output_description", "passages", "student_sees"},
    "test": {"input", "task_description", "output_description"},
    "evaluate_single": {"input", "response", "reference", "rubric"},
    "evaluate_per_factor": {"input", "response", "reference", "factor", "criterion"},
    "compare_pair": {"input", "answer_a", "answer_b", "reference", "rubric"},
}
"""The variables that the configuration guide prints for each template."""


def test_every_template_has_a_file_and_every_file_a_template() -> None:
    names = {file.name for file in files(prompts).iterdir() if file.name.endswith(".txt")}
    assert names == {f"{template_id}.txt" for template_id in VARIABLES}
    assert VARIABLES.keys() == KEY_VARIABLES.keys()


@pytest.mark.parametrize("template_id", VARIABLES)
def test_builtin_templates_use_their_key_variables_and_no_unknown_one(template_id: str) -> None:
    used = set(placeholders(read_builtin_template(template_id)))
    assert KEY_VARIABLES[template_id] <= used <= VARIABLES[template_id]


@pytest.mark.parametrize("template_id", VARIABLES)
def test_builtin_templates_hold_each_value_once_filled(template_id: str) -> None:
    values = {name: f"<<{name} {{x}}>>" for name in VARIABLES[template_id]}
    text = fill_template(read_builtin_template(template_id), values)
    for name in placeholders(read_builtin_template(template_id)):
        assert text.count(values[name]) == 1
        text = text.replace(values[name], "")
    assert "{{" not in text


@pytest.mark.parametrize(
    ("template_id", "keys"),
    [
        ("map_target_attrs", {"attributes"}),
        ("map_nuanced_attrs", {"attributes"}),
        ("autorubric", {"factors"}),
        ("sample", {"prompt", "response"}),
    ],
)
def test_the_form_shown_to_the_model_is_that_of_the_schema(template_id: str, keys: set[str]) -> None:
    shown = fill_template(read_builtin_template(template_id), dict.fromkeys(VARIABLES[template_id], "…"))
    assert set(extract_json(shown).value) == keys


def test_a_template_for_the_model_wins_over_the_tasks_and_the_tasks_over_the_builtin() -> None:
    library = {"sample.gpt-4.1-mini": "for mini", "sample": "for all", "test.other": "for other"}
    assert find_template(library, "sample", "gpt-4.1-mini") == "for mini"
    assert find_template(library, "sample", "gpt-4.1") == "for all"
    assert find_template(library, "test", "gpt-4.1") == read_builtin_template("test")


def test_rubric_lines_stay_one_line_each() -> None:
    rubric = {"accuracy": "It is\n  right.\n", "brevity": "Short."}
    assert render_rubric(rubric) == "- accuracy: It is right.\n- brevity: Short."


def test_attributes_are_rendered_as_pairs() -> None:
    assert render_attributes({"tone": "neutral", "length": "short, or less"}) == (
        "tone: neutral; length: short, or less"
    )
    assert render_attributes({}) == "none"


FORM = JudgeForm({"accuracy": "It is right.", "self": "It is itself."})


def _objects(body: Any) -> Iterator[dict[str, Any]]:
    if isinstance(body, dict):
        if body.get("type") == "object":
            yield body
        for part in body.values():
            yield from _objects(part)


@pytest.mark.parametrize(
    ("schema", "name"),
    [
        (TARGET_ATTRIBUTES, "target_attributes"),
        (NUANCED_ATTRIBUTES, "nuanced_attributes"),
        (RUBRIC, "rubric"),
        (BENCHMARK_ITEM, "benchmark_item"),
        (FORM.build_factor_question("accuracy").schema, "factor_score"),
        (FORM.build_joint_question(("accuracy", "self")).schema, "evaluation"),
    ],
)
def test_schemas_are_what_strict_structured_output_admits(schema: Schema, name: str) -> None:
    assert schema.name == name
    objects = list(_objects(schema.body))
    assert objects
    for part in objects:
        assert part["required"] == list(part["properties"])
        assert part["additionalProperties"] is False


def test_the_evaluation_schema_asks_a_level_of_each_factor() -> None:
    body = FORM.build_joint_question(("accuracy", "self")).schema.body
    assert list(body["properties"]) == ["accuracy", "self"]
    assert list(body["properties"]["accuracy"]["properties"]) == ["reason", "score"]
    assert body["properties"]["accuracy"]["properties"]["score"]["enum"] == ["High", "Medium", "Low"]
