"""Which declared value an answer gives, whole or amid other words."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from coeval.judging.labels import LabelValues, normalise_label, score_labels


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("don’t know", "don't know"),
        ("don`t know", "don't know"),
        ("donʼt know", "don't know"),
        ("a “so-so” b", 'a "so so" b'),
        ("1–5", "1 5"),
        ("state—run", "state run"),
        ("İYİ", "iyi"),
        ("i\u0307yi", "iyi"),
        ("about 50 %", "about 50%"),
        ("about 50\u202f%", "about 50%"),
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
    assert normalise_label(text) == expected


@given(st.text())
def test_normalising_twice_changes_nothing(text: str) -> None:
    assert normalise_label(normalise_label(text)) == normalise_label(text)


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
    assert LabelValues(values).match_whole(text) == named


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
    assert LabelValues(values).find_within(text) == found


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
    assert LabelValues(values).find_within(around.format(spelt)) == {value}


LATIN = st.text(st.sampled_from("abcdefgh"), min_size=2, max_size=8)


@pytest.mark.process
@given(st.lists(LATIN, min_size=1, unique=True), LATIN, LATIN)
def test_a_part_of_a_word_is_no_value(values: list[str], before: str, after: str) -> None:
    longest = max(map(len, values))
    word = f"{before}{values[0]}{after}".ljust(longest + 1, "x")
    assert LabelValues(values).find_within(f"it is {word} here") == set()


@given(st.lists(WORDS, min_size=2, max_size=2, unique=True))
def test_two_values_in_a_sentence_are_two(values: list[str]) -> None:
    one, two = values
    if f" {one} " not in f" {two} " and f" {two} " not in f" {one} ":
        assert LabelValues(values).find_within(f"either {one}, or {two}") == {one, two}


@pytest.mark.process
@pytest.mark.parametrize(
    "unit", ["red", "A ", "*", "not ", "red-", "{", " ", "\\_", "a’", "1.", "正", "answer: ", "<answer>"]
)
def test_a_long_text_is_searched_in_one_pass(unit: str) -> None:
    """Time that grows with the square of the length would outlast the runner's limit."""
    values = LabelValues(["red", "dark red", "A", "1", "正面", *(f"value {n}" for n in range(50))])
    values.find_within(unit * (200_000 // len(unit)))
    values.match_whole(unit * (200_000 // len(unit)))
    score_labels(unit * (200_000 // len(unit)), {"answer": "red"}, {"answer": ["red", "green"]})


SENTIMENTS = {"sentiment": ["positive", "negative", "mixed"]}
ERRORS = {"kind": ["wrong_result", "crash", "not reproducible", "reproducible"]}


def said(response: str, declared: dict[str, list[str]]) -> str | None:
    """What an answer gives to the one label there is, whatever would have been right."""
    ((label, values),) = declared.items()
    found = {score_labels(response, {label: value}, declared)[label].predicted for value in values}
    assert len(found) == 1, "what an answer says does not depend on what is right"
    return found.pop()


@pytest.mark.parametrize(
    "response",
    [
        "positive",
        "Positive.",
        "**Positive**",
        "Sentiment: Positive",
        "**Sentiment:** positive",
        "**Sentiment:**\npositive",
        "- sentiment: positive",
        "The text is warm.\n\nSentiment: positive",
        "Answer: positive",
        "It is warm.\nFinal answer: **positive**",
        "Few words are negative.\n**The correct answer is: positive**",
        "Review sentiment: positive",
        "Positive or negative: positive",
        '{"sentiment": "Positive"}',
        '{"Sentiment": ["positive"], "confidence": 0.9}',
        '{"label": "positive", "why": "warm, not negative"}',
        '```json\n{"answer": "positive"}\n```',
        '{"verdict": "positive"}',
        '{"verdict": {"label": "positive"}}',
        'On balance:\n{"verdict": "positive"}\nFew negative words.',
        r"Negative words are few, so \boxed{positive}.",
        r"$\boxed{\text{Positive}}$",
        "The answer is positive.",
        "It is hard to call this one: positive",
        "I would say that it is **positive** overall",
        "Sentiment: it is rather positive\n\nNegative words are few.",
        "positive\n\nIt is not negative at all; mixed would be too harsh.",
        "Positive\n\nSentiment: the text is warm",
    ],
)
def test_a_single_label_is_found_in_every_common_form(response: str) -> None:
    score = score_labels(response, {"sentiment": "positive"}, SENTIMENTS)["sentiment"]
    assert (score.expected, score.predicted, score.match) == ("positive", "positive", True)


@pytest.mark.parametrize(
    "response",
    [
        "",
        "neutral",
        "not positive",
        "It isn't positive.",
        "positive or negative",
        "Sentiment: positive. Sentiment: negative",
        "Sentiment: unclear\nThere are positive words.",
        "Answer: positive, or else the answer is negative",
        "<label>positive</label> <label>negative</label>",
        '{"label": "positive"} {"label": "negative"}',
        "The answer is positive or negative.",
        "Answer: neither positive nor negative",
        '{"a": "positive", "b": "negative"}',
        '{"sentiment": "unclear", "why": "positive words"}',
        '{"sentiment": null}',
        '{"sentiment": NaN}',
        '{"positive": 0.7, "warm": 0.2}',
        r"\boxed{positive} or \boxed{negative}",
        "positively glowing",
        "non-positive",
    ],
)
def test_an_answer_that_states_no_value_or_several_is_none_of_the_labels(response: str) -> None:
    score = score_labels(response, {"sentiment": "positive"}, SENTIMENTS)["sentiment"]
    assert (score.predicted, score.match) == (None, False)


CHOICES = {"letter": ["A", "B", "C", "D"]}


@pytest.mark.parametrize(
    "response",
    [
        # taken back
        "Answer: C\nActually, answer: B",
        "Answer: C\nWait, I misread the table. Final answer: B",
        "(C)\n\nOn reflection the answer must be B.",
        "**Letter:** C\n\n**Corrected letter:** B",
        "Answer: C\nCorrection: B",
        "The answer is C.\nLet me check.\nThe correct answer is therefore **B**.",
        "<answer>C</answer>\nI take that back: <answer>B</answer>",
        "\\boxed{C} was hasty.\nSo \\boxed{B}.",
        '{"answer": "C"}\nOn second thought:\n{"answer": "B"}',
        '{"letter": "C"}\nSorry, the letter is B.',
        "Letter: C\nFinal answer: B",
        "Label: C\nSo the final label → B",
        "Answer - A\nActually, answer - B",
        # not the only value of its line
        "The answer is B. A is wrong.",
        "Answer: B; A and C are too long",
        "My answer is B, not A",
        "The answer is B because A is too short",
        "The answer is more likely B than C",
        "Answer: B) Paris. C) is Rome.",
        "The answer is B — the river of A is longer",
        "<answer>B</answer>, since A is too short",
        "<final answer>\n B \n</final answer> A and C are too long",
        "<ANSWER>B\nA is too short",
        # the end of a page
        "Option A says so, but C denies it.\nD is off.\n\nThe correct answer is B.",
        "A: 3 apples. C: 4 apples.\nSo the right option is (B).",
        "A and C are close.\n\nThe answer is:\n\n**B**\n\nD is far off.",
        "A or C?\nThe answer to this question would be “B”",
        "A or C?\nanswer = B",
    ],
)
def test_the_last_answer_under_an_answers_name_counts(response: str) -> None:
    assert said(response, CHOICES) == "B"


@pytest.mark.parametrize(
    "response",
    [
        "Sentiment: positive\nActually, sentiment: negative",
        "The sentiment is positive at first.\nOverall the sentiment is rather negative.",
        "Answer: negative\nResult: no positive words",
        "Negative\n\nSentiment: the positive words are few",
        "The sentiment isn’t positive.\nIt’s negative",
    ],
)
def test_an_answer_in_words_is_taken_back_as_one_in_letters(response: str) -> None:
    assert said(response, SENTIMENTS) == "negative"


@pytest.mark.parametrize(
    ("response", "spam", "toxic"),
    [
        ("Spam: yes\nToxic: yes\nActually, spam: no", "no", "yes"),
        ("Spam: \\boxed{yes}\nToxic: \\boxed{no}", "yes", "no"),
        ("The spam label: see below.\nSpam is yes and toxic is no", "yes", "no"),
        ("<spam>no</spam> <toxic>yes</toxic>", "no", "yes"),
    ],
)
def test_of_several_labels_each_last_answer_counts(response: str, spam: str, toxic: str) -> None:
    declared = {"spam": ["yes", "no"], "toxic": ["yes", "no"]}
    scores = score_labels(response, {"spam": "yes", "toxic": "yes"}, declared)
    assert (scores["spam"].predicted, scores["toxic"].predicted) == (spam, toxic)


@pytest.mark.parametrize(
    ("response", "value"),
    [
        ("The answer is wrong_result.", "wrong_result"),
        ("wrong result", "wrong_result"),
        ("It is a Wrong-Result, clearly.", "wrong_result"),
        (r"\boxed{wrong\_result}", "wrong_result"),
        (r"This is a wrong\_result.", "wrong_result"),
        ("It's a **wrong** result.", "wrong_result"),
        ("This bug is not reproducible here.", "not reproducible"),
        ("This bug is reproducible here.", "reproducible"),
        ("The wrong things result from it", None),
    ],
)
def test_values_are_recognised_in_natural_wording(response: str, value: str | None) -> None:
    assert said(response, ERRORS) == value


def test_a_wrong_answer_says_which_value_it_gave() -> None:
    score = score_labels("Negative!", {"sentiment": "positive"}, SENTIMENTS)["sentiment"]
    assert (score.predicted, score.match) == ("negative", False)


def test_a_stated_name_goes_before_a_general_one() -> None:
    assert said('{"sentiment": "negative", "label": "positive"}', SENTIMENTS) == "negative"


def test_json_that_an_answer_only_talks_about_is_not_the_answer() -> None:
    response = 'It returns {"a": 1} where {"a": 2} is right.\nThe answer is wrong_result.'
    assert said(response, ERRORS) == "wrong_result"


@pytest.mark.parametrize(
    "response",
    [
        '{"tone": "formal", "Product Category": "food"}',
        "Tone: formal\nProduct category: Food",
        'Here it is:\n```json\n{"tone": "formal"}\n```\nProduct category: food',
        "It is about food, in a formal tone.",
    ],
)
def test_several_labels_each_look_for_their_own_name(response: str) -> None:
    declared = {"product_category": ["food", "tools"], "tone": ["formal", "informal"]}
    scores = score_labels(response, {"product_category": "food", "tone": "informal"}, declared)
    assert scores["product_category"].match
    assert (scores["tone"].predicted, scores["tone"].match) == ("formal", False)


def test_what_is_said_under_one_label_answers_no_other() -> None:
    declared = {"spam": ["yes", "no"], "toxic": ["yes", "no", "unsure"]}
    scores = score_labels("Spam: yes\nToxic: maybe, no idea", {"spam": "yes", "toxic": "yes"}, declared)
    assert (scores["spam"].predicted, scores["toxic"].predicted) == ("yes", "no")
    scores = score_labels("Spam: yes\nToxic: maybe", {"spam": "yes", "toxic": "yes"}, declared)
    assert (scores["spam"].predicted, scores["toxic"].predicted) == ("yes", None)


def test_a_label_that_holds_a_colon_is_not_torn_apart() -> None:
    assert score_labels("10:30", {"time": "10:30"}, {})["time"].match


def test_the_right_value_counts_though_it_is_not_declared() -> None:
    score = score_labels("It is sarcastic.", {"sentiment": "sarcastic"}, SENTIMENTS)["sentiment"]
    assert (score.predicted, score.match) == ("sarcastic", True)


@pytest.mark.process
def test_a_long_answer_is_compared_as_well() -> None:
    assert said("positive " * 10_000, SENTIMENTS) == "positive"
    long = "x" * 300
    assert score_labels(long, {"sentiment": long}, {})["sentiment"].match


VALUES = st.lists(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12), max_size=5, unique=True
)


@pytest.mark.process
@given(st.text(max_size=200), st.dictionaries(st.text(min_size=1, max_size=8), VALUES, max_size=3))
def test_whatever_is_answered_a_declared_value_or_none_is_predicted(
    response: str, declared: dict[str, list[str]]
) -> None:
    expected = {label: values[-1] for label, values in declared.items() if values}
    scores = score_labels(response, expected, declared)
    assert list(scores) == list(expected)
    for label, score in scores.items():
        assert score.expected in declared[label]
        assert score.predicted is None or score.predicted in declared[label]
        assert score.match == (score.predicted == score.expected)


@given(VALUES, st.data())
def test_a_declared_value_said_as_it_stands_is_that_value(values: list[str], data: st.DataObject) -> None:
    assume(values)
    value = data.draw(st.sampled_from(values))
    assert score_labels(value, {"label": value}, {"label": values})["label"].match
