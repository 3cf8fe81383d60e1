"""What an instruction of IFEval or IFBench is, and the verifiers of IFEval's 25 types, by what they look at.

Zhou et al. 2023, "Instruction-Following Evaluation for Large Language Models" (IFEval); Pyatkin et
al. 2025, "Generalizing Verifiable Instruction Following" (IFBench). Verdicts follow the verifiers
published with the papers, quirks included, because scores are compared with published ones. Each project's
``instructions.py`` has the wording of its types.
"""

from __future__ import annotations

import json
import re
import string
from collections.abc import Callable
from inspect import Parameter, signature
from itertools import islice
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from coeval.benchmarks.text_analysis import Language

PUNCTUATION = string.punctuation
WITHOUT_PUNCTUATION = str.maketrans("", "", PUNCTUATION)
PUNCTUATION_AND_BLANK = PUNCTUATION + " "

Relation: TypeAlias = Literal["less than", "at least"]


class InstructionType(NamedTuple):
    """A type of verifiable instructions: ``follows`` tells of a non-blank response whether it follows one.
    ``arguments`` is a record of its keywords, by the names in the data."""

    id: str
    follows: Callable[..., bool]
    arguments: type[msgspec.Struct]
    reads_english: bool


class Instruction(NamedTuple):
    """An instruction of a prompt."""

    kind: InstructionType
    arguments: msgspec.Struct

    def is_followed(self, response: str, language: Language) -> bool:
        """Check whether a response follows the instruction; a blank one follows none."""
        texts = (response, language) if self.kind.reads_english else (response,)
        arguments = msgspec.structs.asdict(self.arguments)
        return bool(response.strip()) and self.kind.follows(*texts, **arguments)


def verifies(instruction_id: str) -> Callable[[Callable[..., bool]], InstructionType]:
    """Turn a function into an instruction type: of the response, of a `Language` if it analyses English, and
    of the instruction's arguments as keywords."""

    def make_type(function: Callable[..., bool]) -> InstructionType:
        parameters = signature(function, eval_str=True).parameters.values()
        keywords = [(p.name, p.annotation) for p in parameters if p.kind is Parameter.KEYWORD_ONLY]
        arguments = msgspec.defstruct(
            function.__name__, keywords, frozen=True, kw_only=True, forbid_unknown_fields=True
        )
        reads_english = len(parameters) - len(keywords) == 2
        return InstructionType(instruction_id, function, arguments, reads_english)

    return make_type


def is_within(count: int, relation: Relation, bound: int) -> bool:
    return count < bound if relation == "less than" else count >= bound


# --- IFEval: letter case and response language
#
# A text whose language cannot be judged, as it holds no letters, passes the language part.


@verifies("language:response_language")
def is_in_language(response: str, analysis: Language, *, language: str) -> bool:
    return analysis.detect(response) in (language, None)


@verifies("change_case:english_capital")
def is_english_capitals(response: str, language: Language) -> bool:
    return response.isupper() and language.detect(response) in ("en", None)


@verifies("change_case:english_lowercase")
def is_english_lowercase(response: str, language: Language) -> bool:
    return response.islower() and language.detect(response) in ("en", None)


@verifies("change_case:capital_word_frequency")
def has_capital_word_count(
    response: str, language: Language, *, capital_frequency: int, capital_relation: Relation
) -> bool:
    """Verify the number of Treebank tokens in capitals: "I", the "U.S." and each half of "DON'T" count."""
    capital = (word for word in language.words(response) if word.isupper())
    enough = len(list(islice(capital, max(capital_frequency, 0))))
    return is_within(enough, capital_relation, capital_frequency)


# --- IFEval: detectable formats and contents


@verifies("detectable_content:number_placeholders")
def has_at_least_n_placeholders(response: str, *, num_placeholders: int) -> bool:
    """Verify so many placeholders such as [address], each of which opens and closes on one line."""
    placeholders = 0
    for line in response.split("\n"):
        opening = line.find("[")
        while opening >= 0 and (closing := line.find("]", opening)) >= 0:
            placeholders += 1
            opening = line.find("[", closing)
    return placeholders >= num_placeholders


@verifies("detectable_content:postscript")
def has_postscript(response: str, *, postscript_marker: str) -> bool:
    """Verify that the marker stands anywhere, in any case; P.S. and P.P.S may have blanks inside."""
    match postscript_marker.strip():
        case "P.P.S":
            pattern = r"p\.\s?p\.\s?s"
        case "P.S.":
            pattern = r"p\.\s?s\."
        case marker:
            pattern = re.escape(marker.lower())
    return re.search(pattern, response.lower()) is not None


@verifies("detectable_format:number_bullet_lists")
def has_exactly_n_bullets(response: str, *, num_bullets: int) -> bool:
    """Verify exactly so many lines that begin with one star, or with a hyphen."""
    stars = re.findall(r"^[^\S\n]*\*[^*].*$", response, re.MULTILINE)
    hyphens = re.findall(r"^[^\S\n]*-", response, re.MULTILINE)
    return len(stars) + len(hyphens) == num_bullets


@verifies("detectable_format:number_highlighted_sections")
def has_at_least_n_highlights(response: str, *, num_highlights: int) -> bool:
    """Verify so many pairs of single or of double stars with something between, on one line."""
    single = re.findall(r"\*([^\n*]*)\*", response)
    double = re.findall(r"\*\*([^\n*]*)\*\*", response)
    return sum(bool(inside.strip()) for inside in single + double) >= num_highlights


@verifies("detectable_format:multiple_sections")
def has_at_least_n_numbered_sections(response: str, *, section_spliter: str, num_sections: int) -> bool:
    """Verify at least so many marks followed by a number, in this case of letters."""
    marks = re.findall(rf"{re.escape(section_spliter.strip())}\s?\d+", response)
    return len(marks) >= num_sections


@verifies("detectable_format:constrained_response")
def has_yes_no_maybe_answer(response: str) -> bool:
    """Verify that one of the three sentences stands in the response as it is written."""
    return any(f"My answer is {choice}." in response for choice in ("yes", "no", "maybe"))


@verifies("detectable_format:json_format")
def is_json(response: str) -> bool:
    """Verify JSON, with or without a fence; nesting too deep for the parser fails."""
    text = response.strip()
    for fence in ("```json", "```Json", "```JSON", "```"):
        text = text.removeprefix(fence)
    try:
        json.loads(text.removesuffix("```").strip())
    except (ValueError, RecursionError):
        return False
    return True


@verifies("detectable_format:title")
def has_bracketed_title(response: str) -> bool:
    """Verify a title such as <<poem of joy>>: on a line, everything from the first << to the last >>."""
    for line in response.split("\n"):
        opening, closing = line.find("<<"), line.rfind(">>")
        if 0 <= opening < closing - 2 and line[opening:closing].lstrip("<").rstrip(">").strip():
            return True
    return False


# --- IFEval: keywords, letters and commas


def count_occurrences(keyword: str, text: str) -> int:
    """Count ``keyword`` in ``text`` in any case, inside other words too, without overlap."""
    return len(re.findall(re.escape(keyword), text, re.IGNORECASE))


@verifies("keywords:existence")
def has_all_keywords(response: str, *, keywords: list[str]) -> bool:
    return all(count_occurrences(keyword, response) for keyword in keywords)


@verifies("keywords:frequency")
def has_keyword_frequency(response: str, *, keyword: str, frequency: int, relation: Relation) -> bool:
    return is_within(count_occurrences(keyword, response), relation, frequency)


@verifies("keywords:forbidden_words")
def has_no_forbidden_words(response: str, *, forbidden_words: list[str]) -> bool:
    """Verify that none of the words stands as a whole word."""
    return not any(re.search(rf"\b{re.escape(word)}\b", response, re.IGNORECASE) for word in forbidden_words)


@verifies("keywords:letter_frequency")
def has_letter_frequency(response: str, *, letter: str, let_frequency: int, let_relation: Relation) -> bool:
    """Verify how often a letter stands, in either case. Two prompts name no letter but ``#`` or ``!``: there
    the published verifier draws a letter at random; here the given character is counted."""
    count = response.lower().count(letter.strip().lower())
    return is_within(count, let_relation, let_frequency)


@verifies("punctuation:no_comma")
def has_no_comma(response: str) -> bool:
    return "," not in response


# --- IFEval: numbers of words, sentences and paragraphs


@verifies("length_constraints:number_words")
def has_word_count(response: str, language: Language, *, num_words: int, relation: Relation) -> bool:
    """Verify the number of words: runs of word characters."""
    return is_within(len(language.word_runs(response)), relation, num_words)


@verifies("length_constraints:number_sentences")
def has_sentence_count(response: str, language: Language, *, num_sentences: int, relation: Relation) -> bool:
    return is_within(len(language.sentences(response)), relation, num_sentences)


@verifies("length_constraints:number_paragraphs")
def has_exactly_n_paragraphs(response: str, *, num_paragraphs: int) -> bool:
    """Verify the number of paragraphs between dividers. A blank one fails except at either end."""
    first, *others = (bool(part.strip()) for part in re.split(r"\s?\*\*\*\s?", response))
    return all(others[:-1]) and first + sum(others) == num_paragraphs


@verifies("length_constraints:nth_paragraph_first_word")
def has_nth_paragraph_first_word(
    response: str, *, num_paragraphs: int, nth_paragraph: int, first_word: str
) -> bool:
    """Verify the number of paragraphs, separated by two line breaks, and the first word of one. Blank
    paragraphs are not counted, but keep their place when the n-th is looked up. The first word is taken in
    lower case, without opening quotes, up to its first punctuation mark."""
    paragraphs = response.split("\n\n")
    filled = sum(bool(paragraph.strip()) for paragraph in paragraphs)
    if filled != num_paragraphs or not 0 < nth_paragraph <= filled:
        return False
    words = paragraphs[nth_paragraph - 1].split(maxsplit=1)
    if not words:
        return False
    word = words[0].lstrip("'").lstrip('"').lower()
    return re.split(r"[.,?!'\"]", word, maxsplit=1)[0] == first_word.lower()


@verifies("combination:repeat_prompt")
def begins_with_prompt(response: str, *, prompt_to_repeat: str) -> bool:
    return response.strip().lower().startswith(prompt_to_repeat.strip().lower())


@verifies("combination:two_responses")
def has_two_responses(response: str) -> bool:
    """Verify two different responses separated by six stars. A blank part fails except at either end."""
    parts = [part.strip() for part in response.split("******")]
    filled = [part for part in parts if part]
    return all(parts[1:-1]) and len(filled) == 2 and filled[0] != filled[1]


@verifies("startend:end_checker")
def ends_with_phrase(response: str, *, end_phrase: str) -> bool:
    """Verify that the response ends with the phrase, in any case; quotes may follow it."""
    return response.strip().strip('"').lower().endswith(end_phrase.strip().lower())


@verifies("startend:quotation")
def is_wrapped_in_quotes(response: str) -> bool:
    text = response.strip()
    return len(text) > 1 and text[0] == text[-1] == '"'
