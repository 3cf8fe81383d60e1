"""IFEval: how many words, sentences and paragraphs."""

from __future__ import annotations

import re

from coeval.benchmarks.language.text_analysis import Language
from coeval.benchmarks.tasks.instruction import Instruction, PlainInstruction, Relation, compare


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
