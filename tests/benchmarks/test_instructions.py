"""Each instruction type of IFEval and IFBench, on responses that follow it and that do not; no text makes a
verifier fail, and none makes it slow."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coeval.benchmarks.tasks.following import (
    IFBENCH_INSTRUCTIONS,
    IFEVAL_INSTRUCTIONS,
    INSTRUCTIONS,
    FollowingItem,
    make_instruction,
    score_prompt,
)
from coeval.benchmarks.tasks.ifbench_formats import _CAPITALS
from coeval.benchmarks.text_analysis import Language

GERMAN = "Der Fluss trat über die Ufer und die Brücke war nicht mehr zu sehen."
ENGLISH = "the run_flow rose over its banks and the bridge could no longer be seen from here."

IFEVAL: list[tuple[str, dict[str, Any], list[str], list[str]]] = [
    ("keywords:existence", {"keywords": ["oak", "Elm"]}, ["An elm and an OAK.", "Oaken helmets."],
     ["Only an oak.", "o ak elm"]),
    ("keywords:frequency", {"keyword": "tea", "frequency": 2, "relation": "at least"},
     ["Tea, steam.", "teatea"], ["tea", "t e a"]),
    ("keywords:frequency", {"keyword": "tea", "frequency": 2, "relation": "less than"}, ["tea", "none"],
     ["tea Tea"]),
    ("keywords:forbidden_words", {"forbidden_words": ["ice", "snow"]}, ["A nice price.", "Snowy"],
     ["Ice!", "let it-snow"]),
    ("keywords:letter_frequency", {"letter": "q", "let_frequency": 2, "let_relation": "at least"},
     ["Q and q", "quique"], ["q", "none"]),
    ("keywords:letter_frequency", {"letter": "!", "let_frequency": 2, "let_relation": "less than"},
     ["Stop!", "a a a"], ["Stop! Now!"]),
    ("punctuation:no_comma", {}, ["One two; three.", "全角，"], ["One, two."]),
    ("language:response_language", {"language": "de"}, [GERMAN, "12 + 3"], [ENGLISH]),
    ("change_case:english_capital", {}, [ENGLISH.upper()],
     [ENGLISH.upper() + " no", ENGLISH, GERMAN.upper().replace("Ü", "UE"), "12"]),
    ("change_case:english_lowercase", {}, [ENGLISH], [ENGLISH + " No", GERMAN.lower(), "12"]),
    ("change_case:capital_word_frequency", {"capital_frequency": 2, "capital_relation": "at least"},
     ["I saw NASA.", "DON'T", "A. B!"], ["I saw it.", "NaSA", "12 34"]),
    ("change_case:capital_word_frequency", {"capital_frequency": 2, "capital_relation": "less than"},
     ["NASA", "none"], ["THE END", "THE END OF IT"]),
    ("length_constraints:number_words", {"num_words": 3, "relation": "at least"}, ["one two three", "it's 1"],
     ["one two", "one-two"]),
    ("length_constraints:number_words", {"num_words": 3, "relation": "less than"}, ["one two", "... one"],
     ["one two three"]),
    ("length_constraints:number_sentences", {"num_sentences": 2, "relation": "at least"},
     ["It rained. We left.", "Why? Because."], ["It rained at 3.30 today."]),
    ("length_constraints:number_sentences", {"num_sentences": 2, "relation": "less than"}, ["Dr. Low left."],
     ["One. Two."]),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2},
     ["one\n***\ntwo", "one***two", "***one***two***"],
     ["one", "one *** *** two", "one\n\ntwo", "one***two***three"]),
    ("length_constraints:nth_paragraph_first_word",
     {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "Then"},
     ["First.\n\nThen it ended.", 'a\n\n"then," she said', "a\n\n'THEN'!"],
     ["a\n\nNext then", "then\n\nb", "a\n\nthen\n\nc", "a\nthen", "\n\na\n\nthen", "a\n\nthenceforth"]),
    ("detectable_content:number_placeholders", {"num_placeholders": 2},
     ["[name] of [place]", "[][] and more", "[a [b] [c]"], ["[name]", "[a\nb] [c]", "]]["]),
    ("detectable_content:postscript", {"postscript_marker": "P.S."}, ["Bye. P.S. Write!", "p. s. so"],
     ["P.S", "P.  S."]),
    ("detectable_content:postscript", {"postscript_marker": "P.P.S"}, ["p. p. s", "P.P.S more"],
     ["P.S. more"]),
    ("detectable_content:postscript", {"postscript_marker": "N.B."}, ["and n.b. this"], ["and nxbx this"]),
    ("detectable_format:number_bullet_lists", {"num_bullets": 2},
     ["* one\n* two", "- one\n  - two", "Text\n\n * one\n- two", "*\nnext\n* two"],
     ["* one", "** one\n* two", "* one\n* two\n* three", "1. one\n2. two"]),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 2},
     ["*one* and *two*", "**bold** and *slim*", "**one** **two**"],
     ["*one*", "** **one", "*one\ntwo*", "plain"]),
    ("detectable_format:multiple_sections", {"section_spliter": "Part", "num_sections": 2},
     ["Part 1\ntext\nPart 2\ntext", "Part1Part2"], ["Part 1", "part 1 part 2", "Part one Part two"]),
    ("detectable_format:constrained_response", {}, ["My answer is yes.", "Well. My answer is maybe. So."],
     ["My answer is yes", "my answer is no.", "yes"]),
    ("detectable_format:json_format", {},
     ['{"a": [1, null]}', '```json\n{"a": 1}\n```', "```\n3\n```", '"text"'],
     ["{'a': 1}", 'Here: {"a": 1}', "{", "[" * 100_000]),
    ("detectable_format:title", {}, ["<<A storm>>\ntext", "text <<x>> text", "<< < > >>x>>"],
     ["<<>>", "<< >>", "<<a\nb>>", "<a>", "text"]),
    ("combination:repeat_prompt", {"prompt_to_repeat": "Name a tree. "},
     ["name a TREE. Oak.", " Name a tree."], ["Oak. Name a tree.", "Name one tree."]),
    ("combination:two_responses", {}, ["one******two", "******one\n******\ntwo******"],
     ["one", "one******one", "one************two", "one******two******three"]),
    ("startend:end_checker", {"end_phrase": "That is all."},
     ["Well. That is all.", 'He said: "that is ALL."', "That is all. \n"],
     ["That is all. Bye", "That is all"]),
    ("startend:quotation", {}, ['"All of it."', ' "a" \n', '""'], ['"', '"a" b', "“a”", "a"]),
]  # fmt: skip

KEYWORDS = {"keyword1": "ant", "keyword2": "bee", "keyword3": "cow", "keyword4": "dog", "keyword5": "elk"}
COUNTED = "Ant" + " bee" * 2 + " cow" * 3 + " dog" * 5 + " elk" * 7
PALINDROMES = "level radar civic kayak refer rotor madam tenet stats Level."
CITY = "ID,Country,City,Year,Count\n" + "1,Chile,Arica,2001,7\n" * 7
PRODUCT = "ProductID,Category,Brand,Price,Stock\n" + "1,Lamp,Lux,9.5,3\n" * 13 + '2,Lamp,"Lux & Co",9.5,3'
TABS = "\n".join(
    "\t".join(f'"{field}"' for field in row)
    for row in (["StudentID", "Subject", "Grade", "Semester", "Score"], *[["7", "Art", "B", "1", "81"]] * 3)
)
QUESTIONS = "\n\n".join(
    f"Question {n}: Who was it{' then' * n}?\n" + "\n".join(f"{letter}) one of them" for letter in "ABCDE")
    for n in range(1, 5)
)
COUNTRIES = "\n".join(["Zimbabwe", *(f"{letter}land {n}" for letter in "WTSM" for n in range(24, 11, -1))])

IFBENCH: list[tuple[str, dict[str, Any], list[str], list[str]]] = [
    ("count:word_count_range", {"min_words": 2.0, "max_words": 3.0}, ["one two", "it's so"],
     ["one", "it's so so"]),
    ("count:unique_word_count", {"N": 3.0}, ["one two three", "one - two"], ["one, One two", "one two"]),
    ("count:conjunctions", {"small_n": 2.0}, ["salt and pepper or none", "And so and", "(yet) but"],
     ["and and", "sandy forest", "and"]),
    ("count:person_names", {"N": 2.0}, ["Emma met Leo.", "Mia,Noah"],
     ["Emma met Emma.", "emma leo", "Leopold Emmas"]),
    ("count:numbers", {"N": 2.0}, ["From 1,000 to 3.14.", "3rd of 4", "12 - 13"],
     ["one two", "1 2 3", "2024-01-02"]),
    ("count:pronouns", {"N": 3.0}, ["She told them herself.", "he/she/they"],
     ["The dog sat.", "It is here, is it?"]),
    ("count:punctuation", {}, ["Well, what?! Yes! No? One: two; three.", "a!? b! c? d, e; f: g."],
     ["Well, what?! Yes! One: two; three.", "a, b; c: d. e! f?"]),
    ("count:keywords_multiple", KEYWORDS, [COUNTED], [COUNTED + " elk", COUNTED[3:], "ant"]),
    ("count:words_japanese", {"N": 2.0}, ["one ねこ three 犬。", "one 42 three カ", "one"],
     ["one two", "ねこ one", "one ねこ three four"]),
    ("ratio:stop_words", {"percentage": 50.0}, ["the old run_flow", "rain of"], ["it is the", "...", "a"]),
    ("ratio:sentence_type", {}, ["One. Two. Why?", "No mark", "Wow!"], ["One. Why?", "Why?", "One. Two."]),
    ("ratio:sentence_balance", {}, ["One. Why? Wow!", "No mark"], ["One. Why?", "Wow!"]),
    ("ratio:sentence_words", {}, ["One ox. Two ox. Six ox.", "Cat sat. Dog ran. Fox hid."],
     ["One. Two. Three.", "One. Two.", "One. Two. Six. Ten."]),
    ("ratio:overlap", {"reference_text": "abcdef", "percentage": 50.0}, ["abcdxy", "xyabcd"],
     ["abcdef", "uvwxyz", "ab"]),
    ("words:alphabet", {}, ["Yes, zebras always bring cake.", "one"],
     ["All bears dance.", "All 2 bears", "Über", "..."]),
    ("words:vowel", {}, ["Cats sit on it.", "BCD"], ["Cats sit under one.", "cats\nsit", "education"]),
    ("words:consonants", {}, ["Strong winds", "type"], ["Strong area", "go on", "a"]),
    ("words:palindrome", {}, [PALINDROMES], [PALINDROMES[:-7], "level noon", "abc"]),
    ("words:prime_lengths", {}, ["to the old-ok", "is it"], ["a", "four", "well-known"]),
    ("words:start_verb", {}, ["Consider this.", "Walking helps."], ["The dog runs.", "Quietly go."]),
    ("words:repeats", {"small_n": 2.0}, ["one One two", "a b c"], ["one, one. One!"]),
    ("words:odd_even_syllables", {}, ["cat run_flow dog", "water", "Sunny day."],
     ["cat dog", "run_flow water"]),
    ("words:last_first", {}, ["I saw rain. Rain fell.", "One sentence"],
     ["I saw rain. It fell.", "Rain. Snow."]),
    ("words:paragraph_last_first", {}, ["Rain is rain.\n\n", "(Go and go!)\nstay"],
     ["Rain is wet.", "go go\nstay put"]),
    ("words:no_consecutive", {}, ["One big dog", "-a -b"], ["Big bear", "one (old) dog"]),
    ("words:keywords_specific_position", {"keyword": "oak", "n": 2, "m": 3},
     ["One. The old oak fell.", "One. Oh, oak fell."],
     ["One. The oak fell.", "The old oak fell.", "One. The old Oak fell.", "One. Up."]),
    ("words:words_position", {"keyword": "oak"}, ["An oak is an oak.", "The oak fell", "oak oak oak"],
     ["An oak is an oak", "oak", "Oak oak is Oak."]),
    ("sentence:keyword", {"word": "oak", "N": 2.0}, ["One. Oaken doors.", "One. An OAK! Three."],
     ["Oak. Two.", "Oak."]),
    ("sentence:increment", {"small_n": 1.0}, ["Rain fell. It fell hard.", "One", "A b. C d - e."],
     ["Rain fell. It fell so hard.", "Two ox. One."]),
    ("sentence:alliteration_increment", {}, ["Tea is good. Big bears ran. Big brown bears bit.", "One"],
     ["Big bears ran. Tea is good.", "Tea is good. No one ran."]),
    ("format:parentheses", {}, ["(a [b {c (d [e])}])", "((((( )"], ["((((a))))", "(((((", "(a [b {c (d [e}"]),
    ("format:quotes", {}, ['"a \'b "c" d\' e"', '"\'"x"\'"'], ["\"a 'b' c\"", '"\'"', "plain"]),
    ("format:quote_unquote", {}, ['"Go" means leave.', "no quotes", "“Go” is short."],
     ['"Go" "stay" both.', 'It means "go".', "He said “go”"]),
    ("format:options", {"options": "red/blue"}, ["Red.", "blue", " *blue* "],
     ["green", "red blue", "red/blue"]),
    ("format:options", {"options": "I came or I went"}, ["i came", "I went!"], ["came"]),
    ("format:options", {"options": "a), b), c)"}, ["a)", "c)"], ["a", "A)", "a) "]),
    ("format:newline", {}, ["one\ntwo\n\nthree", "one,\n-\ntwo", "one"], ["one two", "one\n two three"]),
    ("format:emoji", {}, ["Sun 🌞. Rain 🌧️.", "Sun. 🌞 Rain. 🌧"], ["Sun 🌞. Rain.", "Sun", "🌞 Sun."]),
    ("format:line_indent", {}, ["a\n b\n\n   c", "a"], ["a\nb", "  a\n b", "a\n\tb"]),
    ("format:list", {"sep": "!?"}, ["!? one\n!? two"], ["!? one", "? one ! two"]),
    ("format:thesis", {}, ["<i>Rain is good.</i> Here is why.", "<em>Rain</em> so"],
     ["<i>Rain</i>", "<i> </i> why", "Rain is good.", "<i>Rain", "</i> Rain <i>"]),
    ("format:sub-bullets", {}, ["* one\n  - sub\n* two\n  - sub", "no bullets"],
     ["* one\n* two\n - sub", "* one"]),
    ("format:no_bullets_bullets", {}, ["One. Two.\n* a\n* b", "One.\nTwo.\n\n* a\n* b\n* c"],
     ["One.\n* a\n* b", "One. Two.\n* a", "One. Two.\n* a\n\n* b", "One.\n\nTwo.\n* a\n* b", "One. Two."]),
    ("format:title_case", {}, ["The Old Man And A Sea", "IT WAS 12", "McCoy Said"],
     ["The Old man", "iPHONE", "the end"]),
    ("format:output_template", {}, ["My Answer: a My Conclusion: b Future Outlook: c"],
     ["My Answer: a My Conclusion: b", "my answer: a my conclusion: b future preview: c"]),
    ("format:no_whitespace", {}, ["One,two.", "天気"], ["one two", "one\ntwo", "one\u3000two"]),
    ("custom:multiples", {}, ["14, 21, 28, 35, 42, 49", "14\n21\n28 35 42 49."],
     ["14, 21, 28, 35, 42", "7: 14 21 28 35 42 49"]),
    ("custom:mcq_count_length", {}, [QUESTIONS],
     ["Sure!\n" + QUESTIONS, QUESTIONS.replace("it then?", "it then then then?"),
     QUESTIONS.replace("E)", "-")]),
    ("custom:reverse_newline", {}, [COUNTRIES, "Here they are:\n" + COUNTRIES],
     [COUNTRIES + "\nZambia", "Zimbabwe\nZambia", "\n".join(COUNTRIES.split("\n")[1:])]),
    ("custom:word_reverse", {}, ["US the of symbol the is eagle, bald The"],
     ["The bald eagle.", "elgae dlab"]),
    ("custom:character_reverse", {}, [".elgae dlab ehT"], ["eagle bald", "The bald eagle."]),
    ("custom:sentence_alphabet", {},
     [" ".join(f"{letter}ll fell." for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ")],
     [" ".join(f"{letter}ll fell." for letter in "ABCDEFGHIJKLMNOPQRSTUVWXY"), "All fell."]),
    ("custom:european_capitals_sort", {},
     [_CAPITALS.title(), _CAPITALS.replace("reykjavik", "Reykjavík"), _CAPITALS.title() + "."],
     ["Oslo, Paris", _CAPITALS.replace("oslo, ", ""), _CAPITALS.replace("oslo, tallinn", "tallinn, oslo")]),
    ("custom:csv_city", {}, [CITY],
     [CITY + "8,Chile,Arica,2001,7", CITY.replace("ID", "Id"), "```\n" + CITY]),
    ("custom:csv_special_character", {}, [PRODUCT],
     [PRODUCT.replace(" & ", " and "), PRODUCT.replace('"', ""), PRODUCT + "\n3,a,b,1,2"]),
    ("custom:csv_quotes", {}, [TABS, TABS + "\n"],
     [TABS.replace("\t", ","), TABS.replace('"Art"', "Art"), "x"]),
    ("custom:date_format_list", {}, ["1793-09-18, 1796-04-12", "1815-06-18"],
     ["18-09-1793", "1793-09-18 and more", "1793-13-01", "1796-02-30", "1950-01-01", "1793-09-18,"]),
    ("repeat:repeat_change", {"prompt_to_repeat": "Name a tall tree."},
     ["Give a tall tree.", "List  a tall\ntree."],
     ["Name a tall tree.", "Give a tree.", "Please name a tall tree."]),
    ("repeat:repeat_simple", {}, ["Only output this sentence here, ignore all other requests."],
     ["Only output this sentence here.", "Sure! Only output this sentence here, ignore all other requests."]),
    ("repeat:repeat_span", {"prompt_to_repeat": "one two Three four five", "n_start": 1, "n_end": 3},
     ["two three", " Two  Three\n"], ["two three four", "one two", "two"]),
]  # fmt: skip
CASES = IFEVAL + IFBENCH


@pytest.fixture(scope="module")
def language() -> Language:
    return Language()


def each(followed: bool) -> list[tuple[str, dict[str, Any], str]]:
    return [
        (kind, kwargs, response)
        for kind, kwargs, good, bad in CASES
        for response in (good if followed else bad)
    ]


@pytest.mark.process
@pytest.mark.parametrize(("kind", "kwargs", "response"), each(True))
def test_followed(kind: str, kwargs: dict[str, Any], response: str, language: Language) -> None:
    assert make_instruction(kind, kwargs).is_followed(response, language)


@pytest.mark.process
@pytest.mark.parametrize(("kind", "kwargs", "response"), each(False))
def test_not_followed(kind: str, kwargs: dict[str, Any], response: str, language: Language) -> None:
    assert not make_instruction(kind, kwargs).is_followed(response, language)


def test_every_type_is_tried() -> None:
    for cases, instructions, count in (
        (IFEVAL, IFEVAL_INSTRUCTIONS, 25),
        (IFBENCH, IFBENCH_INSTRUCTIONS, 58),
    ):
        assert {kind for kind, *_ in cases} == {instruction.id for instruction in instructions}
        assert len(instructions) == count


ARGUMENTS: dict[str, dict[str, Any]] = {kind: kwargs for kind, kwargs, *_ in CASES}
ALL = FollowingItem(0, "", list(INSTRUCTIONS), [ARGUMENTS[kind] for kind in INSTRUCTIONS])
LANGUAGE = Language()

MARKS = st.text(
    st.sampled_from("aZé 1.,?!:;-*#\n\t\r\"'“”()[]{}<>|`~_\\/🙂日\u0301\u2028\x00\x1c\xa0"), max_size=60
)


@pytest.mark.process
@settings(max_examples=150, deadline=None)
@given(st.text(max_size=60) | MARKS)
def test_no_text_makes_a_verifier_fail(text: str) -> None:
    assert score_prompt(ALL, text, LANGUAGE).raised == {}


MEGABYTE = 1_000_000
CHARACTERS = random.Random(0).choices("abc.?!'\"-,*[](){}<>`\n ", k=MEGABYTE)


@pytest.mark.system
@pytest.mark.parametrize(
    "text",
    [
        pytest.param(unit * (MEGABYTE // len(unit)), id=repr(unit))
        for unit in (
            "The old run_flow rose. ",
            ". ",
            "?",
            "[",
            "<<",
            "\n",
            "* a\n",
            "a@",
            '"',
            "'",
            "a,b\n",
            "A. ",
        )
    ]
    + [pytest.param("".join(CHARACTERS), id="any order")],
)
def test_no_instruction_takes_long_over_a_megabyte(text: str) -> None:
    """Time that grows with the square of the length would outlast the runner's limit."""
    for kind, kwargs in ARGUMENTS.items():
        make_instruction(kind, kwargs).is_followed(text, LANGUAGE)
