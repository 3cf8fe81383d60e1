"""IFBench ``sentence:``: patterns from sentence to sentence."""

from __future__ import annotations

import itertools

from coeval.benchmarks.language.text_analysis import Language
from coeval.benchmarks.tasks.instruction import PUNCTUATION_AND_BLANK, WITHOUT_PUNCTUATION, Instruction


class Keyword(Instruction, frozen=True):
    """ "The response must include keyword {word} in the {N}-th sentence.", in any case."""

    id = "sentence:keyword"
    word: str
    N: int

    def follows(self, response: str, language: Language) -> bool:
        sentences = language.sentences(response)
        return 0 < self.N <= len(sentences) and self.word.lower() in sentences[self.N - 1].lower()


class Increment(Instruction, frozen=True):
    """ "Each sentence in your response must contain exactly {small_n} more words than the previous one."""

    id = "sentence:increment"
    small_n: int

    def follows(self, response: str, language: Language) -> bool:
        sentences = language.sentences(response)
        lengths = [len(sentence.translate(WITHOUT_PUNCTUATION).split()) for sentence in sentences]
        return all(after == before + self.small_n for before, after in itertools.pairwise(lengths))


class AlliterationIncrement(Instruction, frozen=True):
    """ "Each sentence must have a longer sequence of consecutive alliterative words than the previous
    one.": the words of all such runs in a sentence, taken together, must grow."""

    id = "sentence:alliteration_increment"

    def follows(self, response: str, language: Language) -> bool:
        lengths = [_alliterative_words(sentence) for sentence in language.sentences(response)]
        return all(after > before for before, after in itertools.pairwise(lengths))


def _alliterative_words(sentence: str) -> int:
    """How many words stand next to one with the same first letter."""
    words = [word.lstrip(PUNCTUATION_AND_BLANK) for word in sentence.lower().split()]
    letters = [word[0] for word in words if word]
    same = [a == b for a, b in itertools.pairwise(letters)]
    return sum(before or after for before, after in zip([*same, False], [False, *same], strict=True))
