"""IFBench ``ratio:``: shares and balances."""

from __future__ import annotations

from coeval.benchmarks.language.text_analysis import Language
from coeval.benchmarks.tasks.instruction import Instruction, PlainInstruction


class StopWords(Instruction, frozen=True):
    """ "Ensure that stop words constitute no more than {percentage}% of the total words in your
    response.": English ones; a response without words fails."""

    id = "ratio:stop_words"
    percentage: float

    def follows(self, response: str, language: Language) -> bool:
        words = language.word_runs(response)
        stop_words = language.stop_words
        stopped = sum(word.lower() in stop_words for word in words)
        return bool(words) and stopped / len(words) * 100 <= self.percentage


class SentenceType(Instruction, frozen=True):
    """ "Maintain a 2:1 ratio of declarative to interrogative sentences in your response.": told by
    their last character; without either, the ratio is kept."""

    id = "ratio:sentence_type"

    def follows(self, response: str, language: Language) -> bool:
        sentences = language.sentences(response)
        declarative = sum(sentence.endswith(".") for sentence in sentences)
        interrogative = sum(sentence.endswith("?") for sentence in sentences)
        return declarative == 2 * interrogative


class SentenceBalance(Instruction, frozen=True):
    """ "Ensure that the ratio of sentence types (declarative, interrogative, exclamatory) in your
    response is balanced.": as many of each, told by their last character."""

    id = "ratio:sentence_balance"

    def follows(self, response: str, language: Language) -> bool:
        sentences = language.sentences(response)
        return len({sum(sentence.endswith(mark) for sentence in sentences) for mark in ".?!"}) == 1


class SentenceWords(Instruction, frozen=True):
    """ "Respond with three sentences, all containing the same number of characters but using all
    different words.": only their number and length are checked, as in the published verifier."""

    id = "ratio:sentence_words"

    def follows(self, response: str, language: Language) -> bool:
        sentences = language.sentences(response)
        return len(sentences) == 3 and len({len(sentence.strip()) for sentence in sentences}) == 1


class Overlap(PlainInstruction, frozen=True):
    """ "Maintain a trigram overlap of {percentage}% (±2%) with the provided reference text.": the share
    of the response's different three-character runs that the reference has too."""

    id = "ratio:overlap"
    reference_text: str
    percentage: float

    def holds(self, response: str) -> bool:
        trigrams = _trigrams(response)
        if not trigrams:
            return False
        share = len(trigrams & _trigrams(self.reference_text)) / len(trigrams)
        return self.percentage - 2 <= share * 100 <= self.percentage + 2


def _trigrams(text: str) -> set[str]:
    return {text[i : i + 3] for i in range(len(text) - 2)}
