"""A judge's prompt of any make gets a grade in the form it asks for, and better answers get better ones."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from coeval.core.records import Message, Request, Schema
from coeval.simulation import SimulatedModel, parse_model_option
from coeval.simulation.foreign_graders import asks_for_grade, grade_among
from coeval.simulation.marks import AnswerMark, ItemMark, write_answer, write_item

JUDGE = SimulatedModel(parse_model_option("judge:noise=0"))


def written(quality: float) -> str:
    return f"{write_answer(AnswerMark('sim', 'sim', quality))} Some words."


def said(prompt: str, schema: Schema | None = None) -> str:
    return JUDGE.answer(Request((Message("user", prompt),), schema=schema)).text


FORMS = {
    "letter": (
        "You are grading a submission.\nSubmission: {answer}\nReason first, then end with 'GRADE: $LETTER', "
        "where the letter is 'C' for correct or 'I' for incorrect.",
        r"GRADE: (\w)$",
        ["I", "C", "C"],
    ),
    "letter with partial credit": (
        "You are assessing an answer.\nAnswer: {answer}\nEnd with 'GRADE: $LETTER': one of 'C', 'P' or 'I'.",
        r"GRADE: (\w)$",
        ["I", "P", "C"],
    ),
    "rating in brackets": (
        "Act as an impartial judge. The answer:\n{answer}\nRate it from 1 to 10, as in: Rating: [[5]].",
        r"Rating: \[\[(\d+)\]\]$",
        ["1", "6", "10"],
    ),
    "letter of a list": (
        "Grade the predicted answer.\nPredicted answer: {answer}\nA: CORRECT\nB: INCORRECT\n"
        "Just the letter, please.",
        r"^([AB])$",
        ["B", "A", "A"],
    ),
    "number on a scale": (
        "Evaluate the summary.\nSummary: {answer}\nGive a score on a scale of 1-5 and nothing else.",
        r"^(\d)$",
        ["1", "3", "5"],
    ),
    "yes or no": (
        "You are an expert evaluator.\nResponse: {answer}\nIs the response right? Answer yes or no.",
        r"^(yes|no)$",
        ["no", "yes", "yes"],
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_a_grade_has_the_form_asked_for_and_follows_the_quality(name: str) -> None:
    prompt, form, expected = FORMS[name]
    grades = []
    for quality in (0.02, 0.52, 0.99):
        found = re.search(form, said(prompt.format(answer=written(quality))))
        assert found, name
        grades.append(found[1])
    assert grades == expected


@pytest.mark.parametrize("name", FORMS)
def test_an_answer_of_any_other_model_is_graded_too(name: str) -> None:
    prompt, form, _ = FORMS[name]
    assert re.search(form, said(prompt.format(answer="It is so.")))


PAIR = (
    "You are an impartial judge of two assistants.\n[Assistant A]\n{a}\n[Assistant B]\n{b}\n"
    "Say [[A]], [[B]], or [[C]] for a tie."
)


@pytest.mark.parametrize(("a", "b", "verdict"), [(0.9, 0.2, "A"), (0.2, 0.9, "B"), (0.5, 0.5, "C")])
def test_the_better_of_two_wins(a: float, b: float, verdict: str) -> None:
    assert said(PAIR.format(a=written(a), b=written(b))).endswith(f"[[{verdict}]]")


def test_a_schema_of_a_grade_is_filled_by_the_quality() -> None:
    schema = Schema(
        "verdict",
        {
            "type": "object",
            "properties": {
                "reasoning": {"type": "string"},
                "score": {"type": "integer", "minimum": 0, "maximum": 100},
                "verdict": {"enum": ["pass", "fail"]},
            },
        },
    )
    for quality, score, verdict in ((0.1, 10, "fail"), (0.9, 90, "pass")):
        grade: dict[str, Any] = json.loads(said(f"Evaluate this answer: {written(quality)}", schema))
        assert (grade["score"], grade["verdict"]) == (score, verdict)


@pytest.mark.parametrize(
    "prompt",
    [
        "Write a story about a judge who scores essays from 1 to 10.",
        "What is your rating of Paris, yes or no?",
        f"{write_item(ItemMark(0.5))} Evaluate the response below on a scale of 1 to 5: it was fine.",
    ],
)
def test_what_asks_for_no_judgment_gets_an_answer(prompt: str) -> None:
    assert not asks_for_grade(prompt)
    assert "simulated answer of judge" in said(prompt)


@pytest.mark.parametrize(
    ("values", "seen", "expected"),
    [
        ([1, 2, 3, 4, 5], 0.75, 4),
        (["poor", "fair", "good", "excellent"], 0.6, "good"),
        (["incorrect", "partially_correct", "correct"], 0.45, "partially_correct"),
        ([True, False], 0.9, True),
        (["red", "green"], 0.9, None),
    ],
)
def test_the_value_of_an_enumeration_fits_the_quality(values: list[Any], seen: float, expected: Any) -> None:
    assert grade_among(values, seen) == expected
