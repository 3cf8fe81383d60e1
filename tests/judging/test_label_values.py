"""Which declared value a text is, and which ones it holds amid other words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coeval.judging.label_values import LabelValues, normalise


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (" Positive. ", "positive"),
        ("**“POSITIVE!”**", "positive"),
        ("`off_by_one`", "off by one"),
        ("off-by - one", "off by one"),
        ("off\u2011by one", "off by one"),
        (r"off\_by\_one", "off by one"),
        ("very\n  positive", "very positive"),
        ("Ｐositive", "positive"),
        ("STRASSE", "strasse"),
        ("Straße", "strasse"),
        ("(A)", "a"),
        ("C#", "c#"),
        ("C++", "c++"),
        ("-1", "-1"),
        ("class -1", "class -1"),
        ("- 1", "1"),
        ("\u22121", "-1"),
        ("?", "?"),
        ("don't know", "don't know"),
        ("", ""),
    ],
)
def test_normalise(text: str, expected: str) -> None:
    assert normalise(text) == expected


@pytest.mark.slow
@given(st.text())
def test_normalising_twice_changes_nothing(text: str) -> None:
    assert normalise(normalise(text)) == normalise(text)


@pytest.mark.parametrize(
    ("text", "values", "named"),
    [
        ("A-", ["A", "A-", "A+"], "A-"),
        ("**A-**.", ["A", "A-", "A+"], "A-"),
        ("(a).", ["A", "A-", "A+"], "A"),
        ("A*", ["A", "A*"], "A*"),
        ("**A**", ["A", "A*"], "A"),
        ("C++", ["C", "C++", "C#"], "C++"),
        ("C", ["C++", "C#"], None),
        ("class -1", ["class 1", "class -1"], "class -1"),
        ("'Yes.'", ["Yes", "No"], "Yes"),
        ("yes", ["“Yes”", "“No”"], "“Yes”"),
        ("RED", ["Red", "red"], "Red"),
        ("?!", ["?", "!"], None),
        ("*" * 200_000 + "red" + "." * 200_000, ["red"], "red"),
    ],
)
def test_a_whole_text_is_held_against_the_values(text: str, values: list[str], named: str | None) -> None:
    assert LabelValues(values).named(text) == named


@pytest.mark.parametrize(
    ("text", "values", "found"),
    [
        # parts of other values
        ("It is not true.", ["true", "not true"], {"not true"}),
        ("It is true.", ["true", "not true"], {"true"}),
        ("true, or is it not true?", ["true", "not true"], {"true", "not true"}),
        ("It is very **positive**.", ["positive", "very_positive"], {"very_positive"}),
        ("from New York City", ["new york", "york city"], {"new york", "york city"}),
        ("The grade is A- overall.", ["A", "A-", "B"], {"A-"}),
        ("The grade is A overall.", ["A", "A-", "B"], {"A"}),
        # parts of words
        ("This is interesting.", ["in", "out"], set()),
        ("It was in the box.", ["in", "out"], {"in"}),
        ("untrue, truest, true-ish, pre-true, true_false", ["true", "false"], set()),
        ("_true_ and '**false**'", ["true", "false"], {"true", "false"}),
        ("written in C#, not in C++", ["C", "Java"], set()),
        # what is denied
        ("not a wrong_result but a crash", ["wrong_result", "crash"], {"crash"}),
        ("It isn’t a “crash”.", ["wrong_result", "crash"], set()),
        ("neither true nor false", ["true", "false"], set()),
        ("No, it is false", ["yes", "no", "false"], {"no", "false"}),
        # numbers
        ("I rate it 4.", ["3", "4", "5"], {"4"}),
        ("I rate it 4.5", ["3", "4", "5"], set()),
        ("4/5", ["3", "4", "5"], set()),
        ("14, 4th, 4%", ["3", "4", "5"], set()),
        ("on a scale of 1-5: 3", ["1", "3", "5"], {"3"}),
        ("It is -1 here.", ["-1", "0", "1"], {"-1"}),
        ("It is 10 here.", ["1", "0", "10"], {"10"}),
        # single letters
        ("The answer is B.", ["A", "B"], {"B"}),
        ("Option (b) fits", ["A", "B"], {"B"}),
        ("A user asks for help, so B.", ["A", "B"], {"B"}),
        ("A because it fits", ["A", "B"], {"A"}),
        ("A and B", ["A", "B"], {"A", "B"}),
        ("I pick A here", ["A", "B", "I"], {"A"}),
        ("this is a bit hard, e.g. here; it's A's", ["A", "B", "E", "S", "G"], set()),
        ("the answer is b", ["a", "b"], {"b"}),
        # scripts without blanks, and with marks
        ("答案是正面。", ["正面", "负面"], {"正面"}),
        ("答案是不正面", ["正面", "负面"], set()),
        ("答案是不正面", ["正面", "不正面"], {"不正面"}),
        ("答案是positive。", ["positive", "negative"], {"positive"}),
        ("긍정입니다", ["긍정", "부정"], {"긍정"}),
        ("Ответ: положительный.", ["положительный", "отрицательный"], {"положительный"}),
        ("неположительный", ["положительный"], set()),
        ("उत्तर सही है", ["सही", "गलत"], {"सही"}),
        ("सहीं", ["सह", "गलत"], set()),
        ("الجواب: إيجابي،", ["إيجابي", "سلبي"], {"إيجابي"}),
        # nothing to look for
        ("What? Why?", ["?", "!"], set()),
        ("red", [], set()),
    ],
)
def test_values_are_found_as_whole_words(text: str, values: list[str], found: set[str]) -> None:
    assert LabelValues(values).within(text) == found


WORDS = st.sampled_from(
    [
        *("red", "dark red", "wrong_result", "off-by-one", "not true", "true", "in", "don't know", "é"),
        *("10", "1", "-1", "3.10", "C#", "C++", "A+"),
        *("正面", "负面", "положительный", "état civil", "straße"),
    ]
)
AROUND = st.sampled_from(
    [
        *("{}", "The answer is {}.", "I say: **{}**", "\n{}\n", "so it's '{}', clearly", "{}, I think"),
        *("({})", "“{}”", "`{}`", "<b>{}</b>", "Answer = {};", "1st guess — {} — final"),
    ]
)


@given(st.lists(WORDS, min_size=1, unique=True), AROUND, st.data())
def test_a_value_in_a_sentence_is_that_value_and_no_other(
    values: list[str], around: str, data: st.DataObject
) -> None:
    value = data.draw(st.sampled_from(values))
    spelt = data.draw(st.sampled_from([value, value.upper() if "ß" not in value else value]))
    assert LabelValues(values).within(around.format(spelt)) == {value}


LATIN = st.text(st.sampled_from("abcdefgh"), min_size=2, max_size=8)


@given(st.lists(LATIN, min_size=1, unique=True), LATIN, LATIN)
def test_a_part_of_a_word_is_no_value(values: list[str], before: str, after: str) -> None:
    longest = max(map(len, values))
    word = f"{before}{values[0]}{after}".ljust(longest + 1, "x")
    assert LabelValues(values).within(f"it is {word} here") == set()


@given(st.lists(WORDS, min_size=2, max_size=2, unique=True))
def test_two_values_in_a_sentence_are_two(values: list[str]) -> None:
    one, two = values
    if f" {one} " not in f" {two} " and f" {two} " not in f" {one} ":
        assert LabelValues(values).within(f"either {one}, or {two}") == {one, two}


@pytest.mark.parametrize("unit", ["red", "A ", "*", "not ", "red-", "{", " ", "\\_", "a’", "1.", "正"])
def test_a_long_text_is_searched_in_one_pass(unit: str) -> None:
    """Time that grows with the square of the length would outlast the runner's limit."""
    values = LabelValues(["red", "dark red", "A", "1", "正面", *(f"value {n}" for n in range(50))])
    values.within(unit * (200_000 // len(unit)))
    values.named(unit * (200_000 // len(unit)))
