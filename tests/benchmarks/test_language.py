"""English as the verifiers read it, held against the toolkits the official verifiers use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import official_data
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coeval.benchmarks.text_analysis import (
    PUNKT,
    STOP_WORDS,
    TAGGER,
    FirstWordTagger,
    Language,
    PunktModel,
    PunktSplitter,
    looks_like_verb,
    plain_sentences,
    read_punkt_model,
    treebank_words,
    word_runs,
)
from coeval.judging.checks.check_options import detect_language

PIECES = (
    "a Mr. U.S. i.e. 5. 3.14 . ? ! .. ... \" ” “ ' '' `` ) ( [1] The the J. Bach -- - — , ; : e.g * « » @ # "
    "etc. Word. don't CAN'T it's boys' 'tis cannot Gonna wanna we'll 1,000 12:30 % $5 & <b> more'n d'ye é { }"
)
FRAGMENTS = st.sampled_from(PIECES.split())
TEXTS = st.lists(st.tuples(FRAGMENTS, st.sampled_from(["", " ", " ", "\n", "\n\n", "\t"])), max_size=14).map(
    lambda parts: "".join(fragment + blank for fragment, blank in parts)
)

SMALL_MODEL = PunktModel(
    abbreviations=frozenset({"mr", "etc", "e.g", "i.e", "u.s", "j"}),
    collocations=frozenset({("##number##", "word"), ("j", "bach")}),
    starters=frozenset({"the"}),
    contexts={"the": 2 | 8 | 32, "word": 32, "bach": 4, "a": 16 | 32, "gonna": 64},
)


def oracle_splitter(model: PunktModel) -> Any:
    punkt = pytest.importorskip("nltk.tokenize.punkt")
    parameters = punkt.PunktParameters()
    parameters.abbrev_types = set(model.abbreviations)
    parameters.collocations = set(model.collocations)
    parameters.sent_starters = set(model.starters)
    parameters.ortho_context.update(model.contexts)
    return punkt.PunktSentenceTokenizer(parameters)


@pytest.mark.process
@settings(max_examples=400, deadline=None)
@given(TEXTS)
def test_sentences_are_those_of_nltk_with_the_same_model(text: str) -> None:
    assert PunktSplitter(SMALL_MODEL).sentences(text) == oracle_splitter(SMALL_MODEL).tokenize(text)


@pytest.mark.process
def test_sentences_of_real_answers_are_those_of_nltk() -> None:
    model = read_punkt_model(official_data.nltk_folder() / PUNKT)
    ours, oracle = PunktSplitter(model), oracle_splitter(model)
    for case in official_data.cases("ifbench"):
        assert ours.sentences(case.response) == oracle.tokenize(case.response)


@pytest.mark.process
@settings(max_examples=400, deadline=None)
@given(TEXTS)
def test_words_are_those_of_nltk(text: str) -> None:
    tokenize = pytest.importorskip("nltk.tokenize.destructive").NLTKWordTokenizer().tokenize
    assert treebank_words(text) == tokenize(text)


@pytest.mark.parametrize(
    ("sentence", "words"),
    [
        ("Mr. Low can't pay $3.50.", ["Mr.", "Low", "ca", "n't", "pay", "$", "3.50", "."]),
        ('"Stop," she said.', ["``", "Stop", ",", "''", "she", "said", "."]),
        ("It ends (here.)", ["It", "ends", "(", "here", ".", ")"]),
        ("Wait...", ["Wait", "..."]),
        ("", []),
    ],
)
def test_treebank_words(sentence: str, words: list[str]) -> None:
    assert treebank_words(sentence) == words


@pytest.mark.parametrize(
    ("text", "runs"),
    [
        ("It's 3.5", ["It", "s", "3", "5"]),
        ("हिन्दी है", ["हिन्दी", "है"]),
        ("naïve ½ x²", ["naïve", "x"]),
    ],
)
def test_word_runs(text: str, runs: list[str]) -> None:
    assert word_runs(text) == runs


@pytest.mark.parametrize(
    ("text", "n"),
    [
        ("One. Two! Three?", 3),
        ("Dr. Low came at 5 p.m. yesterday.", 1),
        ("It was late, etc. The end.", 2),
        ("1. Open it.\n2. Close it.", 4),
        ('He said "Go." Then he left.', 2),
        ("No end mark", 1),
        ("", 0),
    ],
)
def test_sentences_by_rule(text: str, n: int) -> None:
    assert len(plain_sentences(text)) == n


def test_a_closing_quote_goes_with_its_sentence() -> None:
    assert plain_sentences('"Go." (She went.) Done.') == ['"Go."', "(She went.)", "Done."]


@pytest.mark.process
def test_first_tags_are_those_of_nltk() -> None:
    perceptron = pytest.importorskip("nltk.tag.perceptron")
    folder = official_data.nltk_folder() / TAGGER
    ours, oracle = FirstWordTagger(folder), perceptron.PerceptronTagger(load=False)

    def part(name: str) -> Any:
        return json.loads((folder / f"averaged_perceptron_tagger_eng.{name}.json").read_text())

    oracle.model.weights, oracle.tagdict = part("weights"), part("tagdict")
    oracle.classes = oracle.model.classes = set(part("classes"))
    for case in official_data.cases("ifbench"):
        for line in case.response.split("\n"):
            if words := treebank_words(line)[:8]:
                assert ours.tag_first_word(words) == oracle.tag(words)[0][1], words


@pytest.mark.parametrize(
    ("word", "verb"),
    [
        ("Consider", True),
        ("takes", True),
        ("Walking", True),
        ("The", False),
        ("bed", False),
        ("Quietly", False),
    ],
)
def test_verbs_by_rule(word: str, verb: bool) -> None:
    assert looks_like_verb(word) is verb


@pytest.mark.process
@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("The weather turned cold before the harvest was in.", "en"),
        ("Das Wetter wurde kalt, bevor die Ernte eingebracht war.", "de"),
        ("मौसम ठंडा हो गया और फसल अभी खेत में थी।", "hi"),
        ("123 !!! ...", None),
        ("", None),
    ],
)
def test_language(text: str, code: str | None) -> None:
    assert detect_language(text) == code


def test_resources_are_found_in_the_first_folder_that_has_them(tmp_path: Path) -> None:
    folders = tuple(tmp_path / name for name in ("empty", "given", "named"))
    for folder, word in zip(folders[1:], ("ergo", "qua"), strict=True):
        (folder / STOP_WORDS).parent.mkdir(parents=True)
        (folder / STOP_WORDS).write_text(f"{word}\n")
    language = Language(folders)
    assert language.stop_words == {"ergo"}
    assert language.missing_resources == (PUNKT, TAGGER)


@settings(max_examples=60, deadline=None)
@given(st.text(), st.integers(1, 4))
def test_last_words_are_the_last(text: str, n: int) -> None:
    language = Language()
    assert language.last_words(text, n) == list(language.words(text))[-n:]
