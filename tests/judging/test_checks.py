"""Checks of text, numbers, JSON, time and cost; and what is wrong with their options."""

from __future__ import annotations

from random import Random
from typing import Any, Literal

import pytest

from coeval.core.errors import CheckFailed, ConfigError
from coeval.judging.checks import value_checks
from coeval.judging.checks.check_options import KINDS, find_check_problems, read_check
from coeval.judging.checks.rubric_check import CheckedAnswer, check_as_options


def score(
    check: str, response: str, reference: str | None = None, /, *, took: float | None = None, **options: Any
) -> float:
    answer = CheckedAnswer(
        "prompt", response, reference, {"colour": "Red", "city": "Ulm", "blank": " "}, took, took
    )
    return read_check({"check": check, **options}).score(answer).value


@pytest.mark.parametrize(
    ("expected", "check", "response", "reference", "options"),
    [
        (1, "exact", " Paris\n", "Paris", {}),
        (0, "exact", "paris", "Paris", {}),
        (1, "exact", "paris", "Paris", {"case": False}),
        (0, "exact", "Paris!", "Paris", {}),
        (1, "exact", "Paris!", "Paris", {"punctuation": False}),
        (1, "exact", "a  b", "a b", {}),
        (0, "exact", "a  b", "a b", {"whitespace": True}),
        (1, "exact", "Red", None, {"attribute": "colour"}),
        (1, "exact", "42", None, {"value": 42}),
        (1, "exact", "cafe\u0301", "caf\u00e9", {}),
        (0, "exact", "Paris", "Paris", {"negate": True}),
        (1, "exact", "I think so. ANSWER: B\nDone", "B", {"extract": r"ANSWER:\s*(\w)"}),
        (0, "exact", "B", "B", {"extract": r"ANSWER:\s*(\w)"}),
        (1, "one_of", "yes", None, {"values": ["yes", "no"]}),
        (0, "one_of", "maybe", None, {"values": ["yes", "no"]}),
        (1, "contains", "It is Paris.", "Paris", {}),
        (1, "contains", "red and blue", None, {"values": ["red", "blue"]}),
        (0, "contains", "red", None, {"values": ["red", "blue"]}),
        (1, "contains", "red", None, {"values": ["red", "blue"], "require": "any"}),
        (0, "contains", "green", None, {"values": ["red", "blue"], "require": "any"}),
        (0.5, "contains", "red", None, {"values": ["red", "blue"], "require": "share"}),
        (1, "contains", "Dear Ann, hello", None, {"value": "Dear", "at": "start"}),
        (0, "contains", "Oh dear", None, {"value": "Oh", "at": "end"}),
        (1, "not_contains", "fine", None, {"values": ["sorry", "cannot"]}),
        (0, "not_contains", "I cannot", None, {"values": ["sorry", "cannot"]}),
        (1, "regex", "order 42", None, {"pattern": r"\d+"}),
        (0, "regex", "order 42", None, {"pattern": r"\d+", "full": True}),
        (0, "regex", "order 42", None, {"pattern": r"\d+", "negate": True}),
        (1, "numeric", "the answer is 1,234.50 €", "1234.5", {}),
        (1, "numeric", "it costs $1,234.50.", "1234.5", {}),
        (1, "numeric", "das macht 1.234,50 €", None, {"value": 1234.5, "decimal": ","}),
        (1, "numeric", "1\u202f234 m", "1234", {}),
        (1, "numeric", "EUR 1 234,50", "1234,5", {"decimal": ","}),
        (1, "numeric", "1.234.567,50 EUR", "1234567.5", {"decimal": ","}),
        (1, "numeric", "room 2024 100.50", "100.5", {}),
        (1, "numeric", "either 1,2 or 3,5,7", "7", {}),
        (0, "numeric", "12.999,99 €", "99", {}),
        (0, "numeric", "99,00", "0", {}),
        (0, "numeric", "1'234.50", "50", {"decimal": ","}),
        (1, "numeric", "x = \u22125", "-5", {}),
        (1, "numeric", "from 3-5", "5", {}),
        (1, "numeric", "first 7, then 8", "7", {"which": "first"}),
        (0, "numeric", "first 7, then 8", "7", {}),
        (1, "numeric", "about 1.5e3", "1500", {}),
        (1, "numeric", "99", "100", {"relative": 0.01}),
        (0, "numeric", "98.9", "100", {"absolute": 1}),
        (0, "numeric", "12345678901", "12345678902", {}),
        (0, "numeric", "no idea", "1", {}),
        (0, "numeric", "version v2.1.3", "3", {}),
        (1, "is_json", '{"a": 1}', None, {}),
        (0, "is_json", 'Sure: {"a": 1}', None, {}),
        (1, "is_json", 'Sure: {"a": 1}', None, {"anywhere": True}),
        (0, "is_json", "{'a': 1}", None, {"anywhere": True}),
        (0, "is_json", "[" * 100_000, None, {}),
        (1, "json_schema", '{"a": 1}', None, {"schema": {"required": ["a"]}}),
        (0, "json_schema", '{"b": 1}', None, {"schema": {"required": ["a"]}}),
        (0, "json_schema", "none", None, {"schema": {"type": "object"}}),
        (1, "length", "one two", None, {"most": 2, "unit": "words"}),
        (0, "length", "one two three", None, {"most": 2, "unit": "words"}),
        (0, "length", "a\nb", None, {"least": 3, "unit": "lines"}),
        (1, "length", "abc", None, {"least": 3}),
        (1, "language", "Dies ist ein deutscher Satz über das Wetter.", None, {"value": "de"}),
        (0, "language", "Dies ist ein deutscher Satz über das Wetter.", None, {"values": ["en", "fr"]}),
        (1, "similarity", "abc", "abc", {}),
        (0, "similarity", "abcd", "wxyz", {"least": 0.5}),
        (1, "similarity", "b a", "a b", {"metric": "token_sort_ratio"}),
        (0.75, "similarity", "kitten", "kitchens", {"metric": "ratio", "least": None}),
        (0.5, "similarity", "the cat", "a cat", {"metric": "f1"}),
        (0.625, "similarity", "kitten", "kitchens", {"metric": "levenshtein"}),
    ],
)
def test_scores(
    expected: float, check: str, response: str, reference: str | None, options: dict[str, Any]
) -> None:
    options = {key: value for key, value in options.items() if value is not None}
    if check == "similarity" and options.get("metric") == "ratio":
        expected = 2 * 5 / 14  # "kit" and "en" in both, of 6 + 8 characters
    assert score(check, response, reference, **options) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("response", "options", "reason"),
    [
        ("null", {"check": "json_schema", "schema": {"type": "object"}}, "null is not of type 'object'"),
        (
            '{"n": false}',
            {"check": "json_schema", "schema": {"properties": {"n": {"type": "integer"}}}},
            "n: false is not of type 'integer'",
        ),
        ("Jeg vet ikke hva dette er, men det er norsk.", {"check": "language", "value": "de"}, "('no')"),
        ("12.999,99 €", {"check": "numeric", "value": 99}, "set decimal: ',' to read it"),
        ("1'234.50", {"check": "numeric", "value": 50, "decimal": ","}, "set decimal: '.' to read it"),
    ],
)
def test_a_reason_says_it_plainly(response: str, options: dict[str, Any], reason: str) -> None:
    found = read_check(options).score(CheckedAnswer(prompt="p", response=response))
    assert found.value == 0
    assert reason in found.reason


def test_a_reference_is_read_with_the_sign_it_has() -> None:
    assert score("numeric", "1.234,50 €", "1234.50", decimal=",") == 1
    assert score("numeric", "1234.50", "1.234,50 €") == 1
    with pytest.raises(CheckFailed, match="no number"):
        score("numeric", "1", "none")


def test_time_and_cost_are_those_of_the_answer() -> None:
    assert score("latency_ms", "", took=1.5, most=1500) == 1
    assert score("latency_ms", "", took=1.5, most=1499) == 0
    assert score("cost_usd", "", took=0.02, most=0.01) == 0
    for check in ("latency_ms", "cost_usd"):
        with pytest.raises(CheckFailed, match="holds no"):
            score(check, "", most=1)


@pytest.mark.parametrize(
    ("check", "options", "reason"),
    [
        ("exact", {}, "the item has no reference"),
        ("numeric", {"attribute": "size"}, "the item has no attribute 'size'"),
        ("numeric", {"attribute": "city"}, "'Ulm' holds no number"),
        ("language", {"value": "de"}, "fewer than 20 letters"),
        ("similarity", {"value": "x" * 50_001}, "more than 50,000"),
        ("contains", {"attribute": "blank"}, "is empty"),
        ("not_contains", {"values": ["a", "?!"], "punctuation": False}, "is empty"),
    ],
)
def test_what_cannot_be_told_is_no_score(check: str, options: dict[str, Any], reason: str) -> None:
    with pytest.raises(CheckFailed, match=reason):
        score(check, "ok", **options)


def test_a_language_that_is_none_is_no_score() -> None:
    with pytest.raises(CheckFailed, match="'Ulm' is not one of af, ar"):
        score("language", "Dies ist ein deutscher Satz über das Wetter.", attribute="city")


def test_a_pattern_that_runs_away_ends() -> None:
    with pytest.raises(CheckFailed, match="more than 1 s"):
        score("regex", "a" * 5000 + "!", pattern=r"(?:a|aa|a?)*c\1?(x)|(a+)+\2$")


def test_reasons_say_what_lowered_the_score() -> None:
    check = read_check({"check": "contains", "values": ["refund", "days"]})
    scored = check.score(CheckedAnswer("", "a refund"))
    assert scored == (0.0, "lacks 'days'")
    assert check.score(CheckedAnswer("", "refund in 3 days")).reason == ""


@pytest.mark.parametrize(
    ("options", "key", "what"),
    [
        ({"check": "contain"}, "check", "'contain' is not a kind of check"),
        ({"check": ["exact"]}, "check", "is not a kind of check"),
        ({"check": "contains", "valus": ["a"]}, "valus", "the key 'valus' is unknown"),
        ({"check": "contains", "case": 3}, "case", "is not true or false"),
        ({"check": "contains", "value": "a", "values": ["b"]}, "check", "name one of"),
        ({"check": "contains", "at": "middle"}, "at", "is not anywhere | end | start"),
        ({"check": "not_contains"}, "check", "needs value"),
        ({"check": "one_of"}, "check", "needs values"),
        ({"check": "length"}, "check", "needs least or most"),
        ({"check": "length", "least": 5, "most": 4}, "check", "most is below least"),
        ({"check": "length", "most": -1}, "most", "is not a whole number of at least 0"),
        ({"check": "regex"}, "pattern", "the required key 'pattern' is missing"),
        ({"check": "regex", "pattern": "("}, "check", "is not a regular expression"),
        ({"check": "exact", "extract": "["}, "check", "is not a regular expression"),
        ({"check": "numeric", "value": "many"}, "check", "is not a number"),
        ({"check": "numeric", "value": "1.234,50", "decimal": ","}, "check", "with a decimal point"),
        ({"check": "numeric", "math": True, "absolute": 1}, "check", "knows no tolerance"),
        ({"check": "language", "value": "german"}, "check", "'german' is not one of"),
        ({"check": "json_schema", "schema": {"type": 3}}, "check", "schema: 3 is not valid"),
        ({"check": "json_schema", "schema": {"$ref": "http://h/s"}}, "check", "is outside the schema"),
        ({"check": "latency_ms", "most": "fast"}, "most", "is not a number of at least 0"),
        ({"check": "python", "function": "score"}, "check", "is not FILE.py:NAME"),
        ({"check": "command", "argv": []}, "argv", "is not a list"),
        ({"check": "command", "argv": ["x"], "timeout_s": 0}, "timeout_s", "is not a number above 0"),
    ],
)
def test_mistakes_are_named(options: dict[str, Any], key: str, what: str) -> None:
    (problem,) = find_check_problems(options)
    assert problem.key == key
    assert what in problem.what
    with pytest.raises(ConfigError):
        read_check(options)


def test_all_mistakes_are_told_at_once() -> None:
    problems = find_check_problems({"check": "similarity", "metric": "x", "least": 2, "cas": True})
    assert [problem.key for problem in problems] == ["metric", "least", "cas"]
    assert "case" in problems[2].known


MINIMAL: dict[str, dict[str, Any]] = {
    "not_contains": {"value": "x"},
    "one_of": {"values": ["x"]},
    "regex": {"pattern": "x"},
    "json_schema": {"schema": {}},
    "length": {"most": 1},
    "language": {"value": "de"},
    "latency_ms": {"most": 1},
    "cost_usd": {"most": 1},
    "python": {"function": "g.py:f"},
    "command": {"argv": ["true"]},
}


def found_in(text: str, which: Literal["first", "last"]) -> object:
    """A number, or the sentence that it has the other decimal sign."""
    try:
        return value_checks._parse_number(text, which)
    except value_checks._OtherDecimal as other:
        return str(other)


def test_a_number_is_found_word_by_word_as_it_is_in_the_whole_text() -> None:
    drawn = Random(1)
    found = 0
    for _ in range(5_000):
        text = "".join(drawn.choices("0123456789   ..,-+$\u20ace'x\u00a0\t\n", k=drawn.randint(0, 18)))
        numbers = [each[0] for each in value_checks._NUMBER.finditer(text)]
        found += len(numbers)
        assert found_in(text, "last") == (found_in(numbers[-1], "last") if numbers else None), text
        assert found_in(text, "first") == (found_in(numbers[0], "last") if numbers else None), text
    assert found > 5_000


@pytest.mark.parametrize("kind", KINDS)
def test_options_are_written_as_they_are_read(kind: str) -> None:
    options = {"check": kind, **MINIMAL.get(kind, {})}
    check = read_check(options)
    assert check.kind == kind
    assert read_check(check_as_options(check)) == check
    assert read_check(options).definition_hash() == check.definition_hash()


def test_a_hash_follows_options_and_not_limits() -> None:
    of = {
        read_check({"check": "command", "argv": ["true"], **more}).definition_hash()
        for more in ({}, {"timeout_s": 3.0}, {"memory_mb": 512})
    }
    assert len(of) == 1
    assert (
        read_check({"check": "exact"}).definition_hash()
        != read_check({"check": "exact", "case": False}).definition_hash()
    )
    assert (
        read_check({"check": "exact"}).definition_hash()
        == read_check({"check": "exact", "case": True}).definition_hash()
    )


def test_schemas_whose_cost_grows_run_in_a_worker() -> None:
    assert read_check({"check": "json_schema", "schema": {"required": ["a"]}}).runs == "here"
    for word in ({"pattern": "a"}, {"uniqueItems": True}, {"$ref": "#/$defs/a", "$defs": {"a": {}}}):
        assert read_check({"check": "json_schema", "schema": {"items": word}}).runs == "worker"
