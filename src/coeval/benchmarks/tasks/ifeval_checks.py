"""The verifiers of IFEval's 25 instruction types (Zhou et al. 2023), by what they look at."""

from __future__ import annotations

import json
import re
from itertools import islice

from coeval.benchmarks.language.text_analysis import Language
from coeval.benchmarks.tasks.instruction import Instruction, PlainInstruction, Relation, compare

# --- IFEval: letter case and response language
#
# A text whose language cannot be judged, as it holds no letters, passes the language part.


class ResponseLanguage(Instruction, frozen=True):
    """ "Your entire response should be in {language}.": the language detected is this one (ISO 639-1)."""

    id = "language:response_language"
    language: str

    def follows(self, response: str, language: Language) -> bool:
        return language.detect(response) in (self.language, None)


class EnglishCapital(Instruction, frozen=True):
    """ "Your entire response should be in English, and in all capital letters."""

    id = "change_case:english_capital"

    def follows(self, response: str, language: Language) -> bool:
        return response.isupper() and language.detect(response) in ("en", None)


class EnglishLowercase(Instruction, frozen=True):
    """ "Your entire response should be in English, and in all lowercase letters."""

    id = "change_case:english_lowercase"

    def follows(self, response: str, language: Language) -> bool:
        return response.islower() and language.detect(response) in ("en", None)


class CapitalWordFrequency(Instruction, frozen=True):
    """ "Words with all capital letters should appear {capital_relation} {capital_frequency} times."

    Words are Treebank tokens, so "I" and the "U.S." count, and each half of "DON'T".
    """

    id = "change_case:capital_word_frequency"
    capital_frequency: int
    capital_relation: Relation

    def follows(self, response: str, language: Language) -> bool:
        capital = (word for word in language.words(response) if word.isupper())
        enough = len(list(islice(capital, max(self.capital_frequency, 0))))
        return compare(enough, self.capital_relation, self.capital_frequency)


# --- IFEval: detectable formats and contents


class NumberPlaceholders(PlainInstruction, frozen=True):
    """ "The response must contain at least {num_placeholders} placeholders represented by square
    brackets, such as [address].": each opens and closes on one line."""

    id = "detectable_content:number_placeholders"
    num_placeholders: int

    def holds(self, response: str) -> bool:
        found = 0
        for line in response.split("\n"):
            opening = line.find("[")
            while opening >= 0 and (closing := line.find("]", opening)) >= 0:
                found += 1
                opening = line.find("[", closing)
        return found >= self.num_placeholders


class Postscript(PlainInstruction, frozen=True):
    """ "At the end of your response, please explicitly add a postscript starting with
    {postscript_marker}": it stands anywhere, in any case; P.S. and P.P.S may have blanks inside."""

    id = "detectable_content:postscript"
    postscript_marker: str

    def holds(self, response: str) -> bool:
        match self.postscript_marker.strip():
            case "P.P.S":
                pattern = r"p\.\s?p\.\s?s"
            case "P.S.":
                pattern = r"p\.\s?s\."
            case marker:
                pattern = re.escape(marker.lower())
        return re.search(pattern, response.lower()) is not None


class NumberBulletLists(PlainInstruction, frozen=True):
    """ "Your answer must contain exactly {num_bullets} bullet points. Use the markdown bullet points
    such as: * This is a point.": lines that begin with one star, or with a hyphen."""

    id = "detectable_format:number_bullet_lists"
    num_bullets: int

    def holds(self, response: str) -> bool:
        stars = re.findall(r"^[^\S\n]*\*[^*].*$", response, re.MULTILINE)
        hyphens = re.findall(r"^[^\S\n]*-", response, re.MULTILINE)
        return len(stars) + len(hyphens) == self.num_bullets


class NumberHighlightedSections(PlainInstruction, frozen=True):
    """ "Highlight at least {num_highlights} sections in your answer with markdown, i.e. *highlighted
    section*.": a pair of single or of double stars with something between, on one line."""

    id = "detectable_format:number_highlighted_sections"
    num_highlights: int

    def holds(self, response: str) -> bool:
        single = re.findall(r"\*([^\n*]*)\*", response)
        double = re.findall(r"\*\*([^\n*]*)\*\*", response)
        return sum(bool(inside.strip()) for inside in single + double) >= self.num_highlights


class MultipleSections(PlainInstruction, frozen=True):
    """ "Your response must have {num_sections} sections. Mark the beginning of each section with
    {section_spliter} X": at least as many marks followed by a number, in this case of letters."""

    id = "detectable_format:multiple_sections"
    section_spliter: str
    num_sections: int

    def holds(self, response: str) -> bool:
        marks = re.findall(rf"{re.escape(self.section_spliter.strip())}\s?\d+", response)
        return len(marks) >= self.num_sections


class ConstrainedResponse(PlainInstruction, frozen=True):
    """ "Answer with one of the following options: My answer is yes. My answer is no. My answer is
    maybe.": one of them stands in the answer as it is written."""

    id = "detectable_format:constrained_response"

    def holds(self, response: str) -> bool:
        return any(f"My answer is {choice}." in response for choice in ("yes", "no", "maybe"))


class JsonFormat(PlainInstruction, frozen=True):
    """ "Entire output should be wrapped in JSON format. You can use markdown ticks such as ```."

    Nesting too deep for the parser fails.
    """

    id = "detectable_format:json_format"

    def holds(self, response: str) -> bool:
        text = response.strip()
        for fence in ("```json", "```Json", "```JSON", "```"):
            text = text.removeprefix(fence)
        try:
            json.loads(text.removesuffix("```").strip())
        except (ValueError, RecursionError):
            return False
        return True


class Title(PlainInstruction, frozen=True):
    """ "Your answer must contain a title, wrapped in double angular brackets, such as <<poem of joy>>."

    On a line, everything from the first << to the last >> is the title.
    """

    id = "detectable_format:title"

    def holds(self, response: str) -> bool:
        for line in response.split("\n"):
            opening, closing = line.find("<<"), line.rfind(">>")
            if 0 <= opening < closing - 2 and line[opening:closing].lstrip("<").rstrip(">").strip():
                return True
        return False


# --- IFEval: keywords, letters and commas


def occurrences(keyword: str, text: str) -> int:
    """Count ``keyword`` in ``text`` in any case, inside other words too, without overlap."""
    return len(re.findall(re.escape(keyword), text, re.IGNORECASE))


class Existence(PlainInstruction, frozen=True):
    """ "Include keywords {keywords} in the response.": each stands somewhere, in any case."""

    id = "keywords:existence"
    keywords: list[str]

    def holds(self, response: str) -> bool:
        return all(occurrences(keyword, response) for keyword in self.keywords)


class Frequency(PlainInstruction, frozen=True):
    """ "The word {keyword} should appear {relation} {frequency} times."""

    id = "keywords:frequency"
    keyword: str
    frequency: int
    relation: Relation

    def holds(self, response: str) -> bool:
        return compare(occurrences(self.keyword, response), self.relation, self.frequency)


class ForbiddenWords(PlainInstruction, frozen=True):
    """ "Do not include keywords {forbidden_words} in the response.": none stands as a whole word."""

    id = "keywords:forbidden_words"
    forbidden_words: list[str]

    def holds(self, response: str) -> bool:
        return not any(
            re.search(rf"\b{re.escape(word)}\b", response, re.IGNORECASE) for word in self.forbidden_words
        )


class LetterFrequency(PlainInstruction, frozen=True):
    """ "The letter {letter} should appear {let_relation} {let_frequency} times.", in either case.

    Two prompts name a character that is no letter (``#``, ``!``). The published verifier then draws
    a letter at random; here the given character is counted.
    """

    id = "keywords:letter_frequency"
    letter: str
    let_frequency: int
    let_relation: Relation

    def holds(self, response: str) -> bool:
        count = response.lower().count(self.letter.strip().lower())
        return compare(count, self.let_relation, self.let_frequency)


class NoComma(PlainInstruction, frozen=True):
    """ "Refrain from the use of any commas.": no ASCII comma."""

    id = "punctuation:no_comma"

    def holds(self, response: str) -> bool:
        return "," not in response


# --- IFEval: numbers of words, sentences and paragraphs


class NumberWords(Instruction, frozen=True):
    """ "Answer with {relation} {num_words} words.": runs of word characters."""

    id = "length_constraints:number_words"
    num_words: int
    relation: Relation

    def follows(self, response: str, language: Language) -> bool:
        return compare(len(language.word_runs(response)), self.relation, self.num_words)


class NumberSentences(Instruction, frozen=True):
    """ "Your response should contain {relation} {num_sentences} sentences."""

    id = "length_constraints:number_sentences"
    num_sentences: int
    relation: Relation

    def follows(self, response: str, language: Language) -> bool:
        return compare(len(language.sentences(response)), self.relation, self.num_sentences)


class NumberParagraphs(PlainInstruction, frozen=True):
    """ "There should be {num_paragraphs} paragraphs, separated with the markdown divider ***."

    A blank one is passed over at either end, and fails anywhere else.
    """

    id = "length_constraints:number_paragraphs"
    num_paragraphs: int

    def holds(self, response: str) -> bool:
        first, *others = (bool(part.strip()) for part in re.split(r"\s?\*\*\*\s?", response))
        if others and not all(others[:-1]):
            return False
        return first + sum(others) == self.num_paragraphs


class NthParagraphFirstWord(PlainInstruction, frozen=True):
    """ "There should be {num_paragraphs} paragraphs, separated by two line breaks. Paragraph
    {nth_paragraph} must start with word {first_word}."

    Blank paragraphs are not counted, but keep their place when the n-th is looked up. The first
    word is taken in lower case, without opening quotes, up to its first punctuation mark.
    """

    id = "length_constraints:nth_paragraph_first_word"
    num_paragraphs: int
    nth_paragraph: int
    first_word: str

    def holds(self, response: str) -> bool:
        paragraphs = response.split("\n\n")
        filled = sum(bool(paragraph.strip()) for paragraph in paragraphs)
        if filled != self.num_paragraphs or not 0 < self.nth_paragraph <= filled:
            return False
        words = paragraphs[self.nth_paragraph - 1].split(maxsplit=1)
        if not words:
            return False
        word = words[0].lstrip("'").lstrip('"').lower()
        return re.split(r"[.,?!'\"]", word, maxsplit=1)[0] == self.first_word.lower()


class RepeatPrompt(PlainInstruction, frozen=True):
    """ "First repeat the request word for word without change, then give your answer", in any case."""

    id = "combination:repeat_prompt"
    prompt_to_repeat: str

    def holds(self, response: str) -> bool:
        return response.strip().lower().startswith(self.prompt_to_repeat.strip().lower())


class TwoResponses(PlainInstruction, frozen=True):
    """ "Give two different responses. Responses and only responses should be separated by 6 asterisk
    symbols: ******.": a blank part is passed over at either end, and fails anywhere else."""

    id = "combination:two_responses"

    def holds(self, response: str) -> bool:
        parts = [part.strip() for part in response.split("******")]
        if not all(parts[1:-1]):
            return False
        match [part for part in parts if part]:
            case [first, second]:
                return first != second
            case _:
                return False


class EndChecker(PlainInstruction, frozen=True):
    """ "Finish your response with this exact phrase {end_phrase}.", in any case; quotes may follow it."""

    id = "startend:end_checker"
    end_phrase: str

    def holds(self, response: str) -> bool:
        return response.strip().strip('"').lower().endswith(self.end_phrase.strip().lower())


class Quotation(PlainInstruction, frozen=True):
    """ "Wrap your entire response with double quotation marks."""

    id = "startend:quotation"

    def holds(self, response: str) -> bool:
        text = response.strip()
        return len(text) > 1 and text[0] == text[-1] == '"'
