"""IFEval: the case of letters, and the language of the answer.

A text whose language cannot be judged, as it holds no letters, passes the language part.
"""

from __future__ import annotations

from itertools import islice

from coeval.benchmarks.language.text_analysis import Language
from coeval.benchmarks.tasks.instruction import Instruction, Relation, compare


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
