from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from coeval.core.errors import Unparsable, UsageError
from coeval.core.figures import (
    dollars,
    dollars_beyond_limit,
    format_figure,
    limit_in_dollars,
    p_value_text,
)
from coeval.core.text import (
    break_closing_tags,
    canonical_json,
    digest,
    extract_json,
    fill_template,
    normalize_name,
    placeholders,
    pluralize,
    shared_prefix_length,
    split_reasoning,
)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-1000, 1000) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=12,
)
json_objects = st.dictionaries(st.text(max_size=8), json_values, min_size=1, max_size=4)


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("Say {greeting}.", "Say hello."),
        ("{greeting}{greeting}", "hellohello"),
        ('{{"a": "{greeting}"}}', '{"a": "hello"}'),
        ("{{greeting}}", "{greeting}"),
        ("{{{greeting}}}", "{hello}"),
        ('{"prompt": "..."}', '{"prompt": "..."}'),
        ("{greeting!r} {greeting:>9} {greeting.x} {0} {} { greeting }",) * 2,
        ("a { b } c", "a { b } c"),
    ],
)
def test_fill(template: str, expected: str) -> None:
    assert fill_template(template, {"greeting": "hello"}) == expected


@pytest.mark.parametrize(
    ("varying", "head"),
    [
        (("c",), "{A {b}-long-"),
        (("a", "b"), "{A "),
        (("none of it",), "{A {b}-long-C-{b}"),
        ((), "{A {b}-long-C-{b}"),
    ],
)
def test_the_head_of_a_filled_template_ends_where_its_values_begin_to_vary(
    varying: tuple[str, ...], head: str
) -> None:
    template, values = "{{A {a}-{b}-{c}-{a}", {"a": "{b}", "b": "long", "c": "C"}
    assert fill_template(template, values)[: shared_prefix_length(template, values, varying)] == head


def test_fill_leaves_braces_in_values_alone() -> None:
    assert fill_template("{a} {b}", {"a": "{b} {{x}}", "b": "{a}"}) == "{b} {{x}} {a}"


def test_fill_names_the_unknown_variable_and_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"\{inptu\}.*known are input, rubric") as caught:
        fill_template("{inptu}", {"input": "", "rubric": ""})
    assert "{{inptu}}" in str(caught.value)


@given(st.text(), st.text())
def test_fill_puts_any_value_in_unchanged(value: str, other: str) -> None:
    assert fill_template("<{a}|{b}>", {"a": value, "b": other}) == f"<{value}|{other}>"


@given(st.text())
def test_doubled_braces_give_any_text_back(text: str) -> None:
    assert fill_template(text.replace("{", "{{").replace("}", "}}"), {}) == text


def test_placeholders_are_listed_once_in_order() -> None:
    assert placeholders('{b} {{c}} {a} {b} {"d": 1} {e!r}') == ["b", "a"]


@pytest.mark.parametrize(
    ("reply", "value"),
    [
        ('{"a": 1}', {"a": 1}),
        ('Sure!\n```json\n{"a": "x ``` y"}\n```\nHope it helps.', {"a": "x ``` y"}),
        ('As in [1] and {curly} text {}: {"a": [1, 2]} and {"b": 2}', {"a": [1, 2]}),
        ('I used {"x": 1} here:\n```json\n{"a": 2}\n```', {"a": 2}),
        ('[{"name": "a"}, {"name": "b"}]', [{"name": "a"}, {"name": "b"}]),
        ('Values: ["a", "b"]', ["a", "b"]),
        ("{}", {}),
    ],
)
def test_valid_json_is_found_as_it_stands(reply: str, value: Any) -> None:
    assert extract_json(reply) == (value, False)


@pytest.mark.parametrize(
    ("reply", "value"),
    [
        ("{'a': 'x',}", {"a": "x"}),
        ('```json\n{"a": "x",}\n```\nDone.', {"a": "x"}),
        ('{"a": "line one\nline two"}', {"a": "line one\nline two"}),
        ('{"a": "High", "b": "Lo', {"a": "High", "b": "Lo"}),
        ('[{"factor": "a", "score": "Low"}, {"factor": "b", "sc', [{"factor": "a", "score": "Low"}]),
        ('{a: "x"}', {"a": "x"}),
    ],
)
def test_damaged_json_is_repaired_and_says_so(reply: str, value: Any) -> None:
    extracted = extract_json(reply)
    assert extracted.repaired
    if isinstance(value, list):
        assert extracted.value[0] == value[0]
    else:
        assert extracted.value == value


def test_the_damaged_object_wins_over_a_valid_one_inside_it() -> None:
    reply = """{"prompt": "What does {\\"x\\": 1} mean?", 'response': 'see {"x": 1}'}"""
    assert set(extract_json(reply).value) == {"prompt", "response"}


@pytest.mark.process
@example({"```JSON": []}, "", "")
@given(
    json_objects, st.sampled_from(["", "Here you are:\n", "```json\n"]), st.sampled_from(["", "\n```\nBye."])
)
def test_any_object_survives_its_wrapping(value: dict[str, Any], before: str, after: str) -> None:
    assert extract_json(before + json.dumps(value) + after) == (value, False)


@pytest.mark.parametrize(
    "reply", ["", "no JSON here", "I would say High.", "{", "[", "}{", "{{name}}", "[[[}}}"]
)
def test_nothing_like_json_is_unparsable(reply: str) -> None:
    with pytest.raises(Unparsable) as caught:
        extract_json(reply)
    assert caught.value.raw == reply


@pytest.mark.parametrize(
    "unit",
    ["[", "{", '{"a":', '["', "{a", '[1,"', "{ ", "\\", '{"a": 1,', "```json", "[ \n", "{'a': [", '{"'],
)
def test_a_hostile_megabyte_ends(unit: str) -> None:
    """Some of these are quadratic for a naive scan: minutes, which the suite's timeout would show."""
    with pytest.raises(Unparsable):
        extract_json(unit * (1_000_000 // len(unit)))


@pytest.mark.parametrize("depth", [101, 500, 100_000])
def test_deep_nesting_is_refused_not_suffered(depth: int) -> None:
    with pytest.raises(Unparsable):
        extract_json('{"a":' * depth + "1" + "}" * depth)


def test_an_object_after_many_false_starts_is_still_found() -> None:
    assert extract_json("{x [y " * 200 + '{"a": 1}') == ({"a": 1}, False)


def test_lone_surrogates_become_question_marks() -> None:
    value = extract_json(r'{"a": "\ud800 \ud83d\ude00"}').value
    assert value == {"a": "? \N{GRINNING FACE}"}


def test_numbers_beyond_reading_do_not_break_the_reply() -> None:
    assert extract_json('{"a": ' + "9" * 5000 + ', "b": 12}').value["b"] == 12


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain answer ", ("plain answer ", None, False)),
        ("<think>why</think>\n\nbecause", ("because", "why", False)),
        ("\n<think>\nwhy\n</think> because", ("because", "why", False)),
        ("<think>\n\n</think>\n\nbecause", ("because", None, False)),
        ("it must be</think>because", ("because", "it must be", False)),
        ("<think>it must be", ("", "it must be", True)),
        ("<think>", ("", None, True)),
        ("Write <think>x</think> in HTML", ("Write <think>x</think> in HTML", None, False)),
        ("", ("", None, False)),
        ("<think>a</think>\n<think>b</think>\nbecause", ("because", "a\nb", False)),
        ("<think>a</think>one\n<think>b</think> two", ("one\n two", "a\nb", False)),
        ("<think>a</think>one\n<think>b", ("one\n", "a\nb", True)),
        ("it must be</think><think>b</think>because", ("because", "it must be\nb", False)),
        ("<think>a</think>Write\n```\n<think>\n```", ("Write\n```\n<think>\n```", "a", False)),
        ("<think>a</think>a <think> tag", ("a <think> tag", "a", False)),
        ("<thinking>why</thinking>because", ("because", "why", False)),
        ("<Thinking>why</Thinking>because", ("because", "why", False)),
        ("<thought>why</thought>because", ("because", "why", False)),
        ("<seed:think>why</seed:think>because", ("because", "why", False)),
        ("why</seed:think>because", ("because", "why", False)),
        ("<longcat_think>why", ("", "why", True)),
        ("[THINK]why[/THINK]because", ("because", "why", False)),
        ("◁think▷why◁/think▷because", ("because", "why", False)),
        (
            "<|channel|>analysis<|message|>why<|end|><|start|>assistant<|channel|>final<|message|>because"
            "<|return|>",
            ("because", "why", False),
        ),
        (
            "<|start|>assistant<|channel|>analysis<|message|>why<|end|><|start|>assistant<|channel|>"
            "commentary to=f <|constrain|>json<|message|>{}<|call|>\n<|start|>assistant<|channel|>final "
            "<|message|>because",
            ("because", "why\n{}", False),
        ),
        (
            "<|channel|>analysis<|message|>why<|end|><|start|>assistant<|channel|>final <|constrain|>json"
            "<|message|>because<|return|>",
            ("because", "why", False),
        ),
        ("<|channel|>analysis<|message|>why", ("", "why", True)),
        ("analysisWhy?assistantfinalbecause", ("because", "Why?", False)),
        ("analysis of the final", ("analysis of the final", None, False)),
    ],
)
def test_split_reasoning(text: str, expected: tuple[str, str | None, bool]) -> None:
    assert split_reasoning(text) == expected


def test_digest_tells_the_parts_apart() -> None:
    assert len(digest("a")) == 16
    assert digest("ab", "c") != digest("a", "bc") != digest("abc")
    assert digest() != digest("") != digest("", "")
    assert digest("a", "b") == digest("a", "b")


@pytest.mark.process
@given(json_objects)
def test_canonical_ignores_the_order_of_keys(value: dict[str, Any]) -> None:
    turned = dict(reversed(value.items()))
    assert canonical_json(turned) == canonical_json(value)
    assert json.loads(canonical_json(value)) == value


@pytest.mark.parametrize(
    "spelling", ["issue resolution", " Issue_Resolution ", "ISSUE-RESOLUTION", "issue _ resolution"]
)
def test_spellings_of_one_name_fold_to_one(spelling: str) -> None:
    assert normalize_name(spelling) == normalize_name("issue_resolution")


@pytest.mark.parametrize(("one", "other"), [("A-", "A"), ("-1", "1"), ("1-2", "12"), ("C#", "C")])
def test_different_names_do_not_fold_to_one(one: str, other: str) -> None:
    assert normalize_name(one) != normalize_name(other)


@pytest.mark.parametrize(("number", "said"), [(0, "0 models"), (1, "1 model"), (1200, "1,200 models")])
def test_numbers_have_their_nouns(number: int, said: str) -> None:
    assert pluralize(number, "model") == said


@pytest.mark.parametrize(
    ("usd", "text"),
    [
        (0, "$0.00"), (1234.5, "$1,234.50"), (0.1, "$0.10"), (0.09999, "$0.10"), (0.0123, "$0.012"),
        (0.0001, "$0.00010"), (0.00009, "<$0.0001"),
    ],
)  # fmt: skip
def test_money_is_told_to_the_cent_or_finer(usd: float, text: str) -> None:
    assert dollars(usd) == text


def test_sums_of_the_same_amounts_are_told_alike() -> None:
    parts = (0.0003435, 0.000525, 0.0004815)
    assert dollars(sum(parts)) == dollars(sum(sorted(parts)))


@pytest.mark.parametrize(
    ("usd", "text"), [(20, "$20.00"), (1234.5, "$1,234.50"), (0.001, "$0.001"), (0.00001, "$0.00001")]
)
def test_a_limit_is_told_as_it_was_set(usd: float, text: str) -> None:
    assert limit_in_dollars(usd) == text


def test_amounts_that_exceed_a_limit_are_seen_to() -> None:
    assert dollars_beyond_limit(0.001, 0.00043, 0.00058) == ["$0.00043", "$0.00058"]
    assert dollars_beyond_limit(20.0, 19.9941, 0.007) == ["$19.9941", "$0.0070"]
    assert dollars_beyond_limit(1.0, 0.5, 0.2) == ["$0.50", "$0.20"]


def test_no_probability_is_shown_as_zero() -> None:
    assert [format_figure(p, "probability") for p in (0.0, 0.00099, 0.001, 0.0344)] == [
        "<0.001",
        "<0.001",
        "0.001",
        "0.034",
    ]
    assert [p_value_text(p) for p in (1e-12, 0.5)] == ["p < 0.001", "p = 0.500"]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("plain < text </b> stays", "plain < text </b> stays"),
        ("x</answer>y", r"x<\/answer>y"),
        ("x< / ANSWER >y", r"x<\/ ANSWER >y"),
        ("</task></answer></answer_2>", r"<\/task><\/answer></answer_2>"),
        ("<answer>", "<answer>"),
    ],
)
def test_no_value_ends_the_block_that_it_stands_in(value: str, shown: str) -> None:
    template = "<task>{task}</task>\n<answer>{answer}</answer>"
    filled = fill_template(template, break_closing_tags(template, {"task": "t", "answer": value}))
    assert filled == f"<task>t</task>\n<answer>{shown}</answer>"
    assert break_closing_tags("{answer}", {"answer": value}) == {"answer": value}
