"""IFEval: keywords, letters and commas."""

from __future__ import annotations

import re

from coeval.benchmarks.tasks.instruction import PlainInstruction, Relation, compare


def occurrences(keyword: str, text: str) -> int:
    """How often ``keyword`` stands in ``text`` in any case, inside other words too, without overlap."""
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
