"""IFBench ``words:``: what each word, or the word at some place, must be."""

from __future__ import annotations

import string
from collections import Counter
from itertools import islice, pairwise

from coeval.benchmarks.language.text_analysis import Language
from coeval.benchmarks.language.words import treebank_words
from coeval.benchmarks.tasks.instruction import (
    PUNCTUATION_AND_BLANK,
    WITHOUT_PUNCTUATION,
    Instruction,
    PlainInstruction,
)


def bare_words(text: str) -> list[str]:
    """The words between blanks once all punctuation is taken out: "well-known" is one."""
    return text.translate(WITHOUT_PUNCTUATION).split()


class Alphabet(PlainInstruction, frozen=True):
    """ "Each word in your response must start with the next letter of the alphabet, looping back to 'A'
    after 'Z'.": beginning anywhere; a word that begins with no letter fails."""

    id = "words:alphabet"

    def holds(self, response: str) -> bool:
        places = [string.ascii_lowercase.find(word[0].lower()) for word in bare_words(response)]
        if not places or places[0] < 0:
            return False
        return all(after == (before + 1) % 26 for before, after in pairwise(places))


class Vowel(PlainInstruction, frozen=True):
    """ "Write a paragraph using words that contain only three types of vowels.": one line, with at most
    three of a, e, i, o, u."""

    id = "words:vowel"

    def holds(self, response: str) -> bool:
        text = response.strip()
        return "\n" not in text and len(set("aeiou") & set(text.lower())) <= 3


_CONSONANTS = frozenset("bcdfghjklmnpqrstvwxyz")


class Consonants(PlainInstruction, frozen=True):
    """ "Ensure each word in your response has at least one consonant cluster (two or more consonants
    together).": y is a consonant."""

    id = "words:consonants"

    def holds(self, response: str) -> bool:
        return all(
            any(a in _CONSONANTS and b in _CONSONANTS for a, b in pairwise(word))
            for word in response.lower().split()
        )


class Palindrome(PlainInstruction, frozen=True):
    """ "Include at least 10 single-word palindromes, each at least 5 characters long.": repeats count."""

    id = "words:palindrome"

    def holds(self, response: str) -> bool:
        words = bare_words(response.lower())
        return sum(len(word) >= 5 and word == word[::-1] for word in words) >= 10


_PRIMES = frozenset(n for n in range(2, 101) if all(n % d for d in range(2, n)))


class PrimeLengths(PlainInstruction, frozen=True):
    """ "Use only words with lengths that are prime numbers.": up to 97."""

    id = "words:prime_lengths"

    def holds(self, response: str) -> bool:
        return all(len(word) in _PRIMES for word in bare_words(response))


class StartVerb(Instruction, frozen=True):
    """ "The response must start with a verb.": by its part-of-speech tag."""

    id = "words:start_verb"

    def follows(self, response: str, language: Language) -> bool:
        return language.first_word_is_verb(response)


class Repeats(PlainInstruction, frozen=True):
    """ "The response should not repeat any word more than {small_n} times.": none stands more often."""

    id = "words:repeats"
    small_n: int

    def holds(self, response: str) -> bool:
        counts = Counter(bare_words(response.lower()))
        return all(count <= self.small_n for count in counts.values())


class OddEvenSyllables(PlainInstruction, frozen=True):
    """ "Alternate between words with odd and even numbers of syllables."."""

    id = "words:odd_even_syllables"

    def holds(self, response: str) -> bool:
        from syllapy import count

        parities = (count(word) % 2 for word in bare_words(response.lower()))
        return all(before != after for before, after in pairwise(parities))


class LastFirst(Instruction, frozen=True):
    """ "The last word of each sentence must become the first word of the next sentence.", in any case."""

    id = "words:last_first"

    def follows(self, response: str, language: Language) -> bool:
        sentences = [sentence.lower() for sentence in language.sentences(response)]
        for before, after in pairwise(sentences):
            last = before.rstrip(PUNCTUATION_AND_BLANK).split()
            first = after.lstrip(PUNCTUATION_AND_BLANK).split()
            if not last or not first or last[-1] != first[0]:
                return False
        return True


class ParagraphLastFirst(PlainInstruction, frozen=True):
    """ "Each paragraph of your response must end with the same word it started with, separate paragraphs
    with a newline.", in any case and without the punctuation around the paragraph."""

    id = "words:paragraph_last_first"

    def holds(self, response: str) -> bool:
        for paragraph in response.lower().split("\n"):
            words = paragraph.strip().strip(PUNCTUATION_AND_BLANK).split()
            if words and words[0] != words[-1]:
                return False
        return True


class NoConsecutive(PlainInstruction, frozen=True):
    """ "No two consecutive words can share the same first letter.", in any case."""

    id = "words:no_consecutive"

    def holds(self, response: str) -> bool:
        return all(before[0] != after[0] for before, after in pairwise(bare_words(response.lower())))


class KeywordsSpecificPosition(Instruction, frozen=True):
    """ "Include keyword {keyword} in the {n}-th sentence, as the {m}-th word of that sentence."

    Words are Treebank tokens, so punctuation has a place too; the case of letters matters.
    """

    id = "words:keywords_specific_position"
    keyword: str
    n: int
    m: int

    def follows(self, response: str, language: Language) -> bool:
        sentences = language.sentences(response)
        if not 0 < self.n <= len(sentences):
            return False
        words = treebank_words(sentences[self.n - 1])
        return 0 < self.m <= len(words) and words[self.m - 1] == self.keyword


class WordsPosition(Instruction, frozen=True):
    """ "The second word in your response and the second to last word in your response should be the word
    {keyword}."

    Words are Treebank tokens: where a period ends the response, it is the last one.
    """

    id = "words:words_position"
    keyword: str

    def follows(self, response: str, language: Language) -> bool:
        second = list(islice(language.words(response), 2))[1:]
        return second == [self.keyword] and language.last_words(response, 2)[0] == self.keyword
