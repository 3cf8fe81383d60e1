"""Strict and loose verdicts, and the accuracies made of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fakes.judged_tasks import hold_on_the_scale

from coeval.benchmarks.benchmark import Answer, TaskRecords, TaskSettings
from coeval.benchmarks.tasks.following import (
    INSTRUCTIONS,
    Followed,
    FollowingItem,
    IFBench,
    IFEval,
    loose_readings,
    make_instruction,
    score_prompt,
)
from coeval.benchmarks.tasks.ifeval_checks import has_no_comma
from coeval.benchmarks.text_analysis import Language
from coeval.core.errors import UsageError
from coeval.core.records import Failure

NO_COMMA: tuple[str, dict[str, Any]] = ("punctuation:no_comma", {})
THREE_WORDS: tuple[str, dict[str, Any]] = (
    "length_constraints:number_words",
    {"num_words": 3, "relation": "at least"},
)


def item(*needed: tuple[str, dict[str, Any]], key: int | str = 1) -> FollowingItem:
    return FollowingItem(key, "Write.", [kind for kind, _ in needed], [kwargs for _, kwargs in needed])


def test_the_eight_readings() -> None:
    assert loose_readings("Sure:\n*one*\n two \nBye") == [
        "Sure:\n*one*\n two \nBye",
        "*one*\n two \nBye",
        "Sure:\n*one*\n two",
        "*one*\n two",
        "Sure:\none\n two \nBye",
        "one\n two \nBye",
        "Sure:\none\n two",
        "one\n two",
    ]


def test_equal_readings_are_tried_once() -> None:
    assert loose_readings("one line") == ["one line", ""]


def test_a_greeting_is_forgiven_only_when_read_loosely() -> None:
    followed = score_prompt(item(NO_COMMA), "Sure, here it is:\nOne two three", Language())
    assert (followed.strict, followed.loose) == ([False], [True])


def test_each_instruction_finds_its_own_reading() -> None:
    followed = score_prompt(item(NO_COMMA, THREE_WORDS), "One, two, three\nfour", Language())
    assert (followed.strict, followed.loose) == ([False, True], [True, True])


@pytest.mark.parametrize("response", ["", " \n\t", "\n\n"])
def test_a_blank_response_follows_nothing(response: str) -> None:
    assert score_prompt(item(NO_COMMA), response, Language()) == Followed([False], [False])
    assert not make_instruction(*NO_COMMA).is_followed(response, Language())


def test_arguments_that_are_none_are_left_out_and_whole_floats_are_numbers() -> None:
    instruction = make_instruction("count:numbers", {"N": 2.0, "keyword": None})
    assert instruction.is_followed("1 and 2", Language())


@pytest.mark.parametrize(
    ("kind", "kwargs", "words"),
    [
        ("count:nothing", {}, "no instruction type 'count:nothing'"),
        ("count:numbers", {}, "missing required field `N`"),
        ("count:numbers", {"N": 2.5}, "Expected `int`"),
        ("count:numbers", {"N": 2, "M": 1}, "unknown field `M`"),
        ("keywords:frequency", {"keyword": "a", "frequency": 1, "relation": "about"}, "relation"),
    ],
)
def test_wrong_arguments_are_named(kind: str, kwargs: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        make_instruction(kind, kwargs)


def test_an_item_needs_arguments_for_each_instruction() -> None:
    with pytest.raises(UsageError, match="item 7"):
        score_prompt(FollowingItem(7, "Write.", ["punctuation:no_comma"], []), "text", Language())


def test_a_verifier_that_raises_is_not_followed_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(response: str) -> bool:
        raise ZeroDivisionError("by comma")

    monkeypatch.setitem(INSTRUCTIONS, has_no_comma.id, has_no_comma._replace(follows=broken))
    followed = score_prompt(item(NO_COMMA, THREE_WORDS), "one two three", Language())
    assert followed == Followed(
        [False, True], [False, True], {"punctuation:no_comma": "ZeroDivisionError: by comma"}
    )


# IFEval and IFBench as tasks: prompts read, verdicts scored, the official files written.

RECORDS: list[dict[str, Any]] = [
    {
        "key": 7,
        "prompt": "Without commas.",
        "instruction_id_list": ["punctuation:no_comma"],
        "kwargs": [{}],
    },
    {
        "key": 8,
        "prompt": "Small letters, in quotes.",
        "instruction_id_list": ["change_case:english_lowercase", "startend:quotation"],
        "kwargs": [{}, {}],
    },
]

QUOTED = '"all of this is written in small letters and in quotes"'


def task(tmp_path: Path, records: list[dict[str, Any]] = RECORDS, **changes: Any) -> IFEval:
    path = tmp_path / "prompts.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return IFEval(TaskSettings(model="m", assets={"ifeval/prompts": path}, **changes))


def answers(**said: str | None) -> dict[str, Answer]:
    return {
        key[1:]: Answer(id=key[1:], response=text)
        if text is not None
        else Answer(id=key[1:], status="failed", error=Failure("timeout", "too slow"))
        for key, text in said.items()
    }


def test_what_a_score_counts_besides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(response: str) -> bool:
        raise ZeroDivisionError

    monkeypatch.setitem(INSTRUCTIONS, has_no_comma.id, has_no_comma._replace(follows=broken))
    ifeval = task(tmp_path)
    scored = ifeval.score(TaskRecords(ifeval.items(), answers(_7="a", _8="b. "), {}))
    assert scored.tables["verifiers_failed"] == {"punctuation:no_comma": 1}
    assert "verifiers failed, and count as not followed: punctuation:no_comma (1)" in scored.reasons
    assert scored.metrics["instruction_level_strict_accuracy"].n == 3


def values(scored: Any) -> dict[str, float]:
    return {name: metric.value for name, metric in scored.metrics.items()}


@pytest.mark.process
def test_strict_and_loose_accuracies(tmp_path: Path) -> None:
    ifeval = task(tmp_path)
    scored = ifeval.score(
        TaskRecords(ifeval.items(), answers(_7="Sure, here it is:\nno commas", _8=QUOTED), {})
    )
    assert values(scored) == {
        "prompt_level_strict_accuracy": 0.5,
        "instruction_level_strict_accuracy": pytest.approx(2 / 3),
        "prompt_level_loose_accuracy": 1.0,
        "instruction_level_loose_accuracy": 1.0,
    }
    assert scored.items["7"]["prompt_level_strict_accuracy"] == 0.0
    assert scored.items["8"]["instruction_level_strict_accuracy"] == 1.0
    assert scored.tables["by_instruction_type"]["punctuation:no_comma"]["strict"] == {
        "accuracy": 0,
        "n": 1,
    }


@pytest.mark.parametrize("missing", [{}, {"_8": None}, {"_8": ""}])
def test_no_answer_follows_nothing_and_stays_in_the_denominator(
    tmp_path: Path, missing: dict[str, str | None]
) -> None:
    ifeval = task(tmp_path)
    scored = ifeval.score(TaskRecords(ifeval.items(), answers(_7="none here", **missing), {}))
    assert values(scored)["prompt_level_strict_accuracy"] == 0.5
    assert values(scored)["instruction_level_strict_accuracy"] == pytest.approx(1 / 3)
    lost = {} if missing == {"_8": ""} else {"timeout" if missing else "missing": 1}
    assert (scored.n_expected, scored.n_failed) == (2, lost)


@pytest.mark.process
@pytest.mark.parametrize("n_prompts", [1, 2, 3, 12])
def test_intervals_of_few_prompts_stay_between_0_and_1_and_have_a_width(
    tmp_path: Path, n_prompts: int
) -> None:
    """Instructions followed in all prompts but one, of which most are of one prompt."""
    records = [{**RECORDS[1], "key": key} for key in range(n_prompts)]
    records[0] |= {"instruction_id_list": ["punctuation:no_comma"] * 4, "kwargs": [{}] * 4}
    ifeval = task(tmp_path, records)
    said = {f"_{key}": QUOTED for key in range(1, n_prompts)}
    scored = ifeval.score(TaskRecords(ifeval.items(), answers(_0="well, no", **said), {}))
    assert hold_on_the_scale(scored.metrics.values(), 0, 1)
    first = answers(_0="fine", **said)
    assert hold_on_the_scale(ifeval.score(TaskRecords(ifeval.items(), first, {})).metrics.values(), 0, 1)


def test_the_official_result_files(tmp_path: Path) -> None:
    ifeval = task(tmp_path)
    given = answers(_7="a, b", _8=None)
    ifeval.write_extra(
        tmp_path, TaskRecords(ifeval.items(), given, {}), ifeval.score(TaskRecords(ifeval.items(), given, {}))
    )
    strict = [json.loads(line) for line in (tmp_path / "eval_results_strict.jsonl").read_text().splitlines()]
    assert strict[0] == {
        "key": 7,
        "prompt": "Without commas.",
        "response": "a, b",
        "instruction_id_list": ["punctuation:no_comma"],
        "follow_instruction_list": [False],
        "follow_all_instructions": False,
    }
    assert (strict[1]["response"], strict[1]["follow_instruction_list"]) == (None, [False, False])
    assert (tmp_path / "eval_results_loose.jsonl").read_text().count("\n") == 2


def test_what_stands_in_for_language_data_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ifeval = task(tmp_path)
    scored = ifeval.score(TaskRecords(ifeval.items(), {}, {}))
    assert scored.tables["language_data"] == {"tokenizers/punkt_tab/english": "rule-based"}
    assert any("NLTK data is not there" in reason for reason in scored.reasons)
    # IFEval does not tag parts of speech: what it does not use is no reason.
    assert not any("tagger" in reason for reason in scored.reasons)
    assert len(IFBench.optional_assets) == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"instruction_id_list": ["punctuation:no_coma"]}, "no instruction type"),
        ({"kwargs": [{"letter": "x"}]}, "letter"),
        ({"kwargs": []}, "key 7"),
        ({"prompt": 3}, "prompt"),
    ],
)
def test_wrong_data_are_refused_with_the_key(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        task(tmp_path, [RECORDS[0] | change]).items()
