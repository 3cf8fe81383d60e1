"""IFBench's verifiers of words: ``count:``, ``words:`` and ``ratio:``."""

from __future__ import annotations

import re
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

# --- IFBench ``count:``: numbers of words, letters and marks


class WordCountRange(Instruction, frozen=True):
    """ "The response must contain between {min_words} and {max_words} words."""

    id = "count:word_count_range"
    min_words: int
    max_words: int

    def follows(self, response: str, language: Language) -> bool:
        return self.min_words <= len(language.word_runs(response)) <= self.max_words


class UniqueWordCount(PlainInstruction, frozen=True):
    """ "Use at least {N} unique words in the response.": what stands between blanks, without case and
    outer punctuation; a chunk of nothing but punctuation is a word like another."""

    id = "count:unique_word_count"
    N: int

    def holds(self, response: str) -> bool:
        unique = {word.strip(PUNCTUATION_AND_BLANK) for word in response.lower().split()}
        return len(unique) >= self.N


class Conjunctions(PlainInstruction, frozen=True):
    """ "Use at least {small_n} different coordinating conjunctions in the response."

    They differ as they are written: "and", "And" and "and," are three.
    """

    id = "count:conjunctions"
    small_n: int

    def holds(self, response: str) -> bool:
        coordinating = {"for", "and", "nor", "but", "or", "yet", "so"}
        written = {
            word for word in response.split() if word.strip(PUNCTUATION_AND_BLANK).lower() in coordinating
        }
        return len(written) >= self.small_n


_LISTED_NAMES = (
    "Emma Liam Sophia Jackson Olivia Noah Ava Lucas Isabella Mason Mia Ethan Charlotte Alexander Amelia "
    "Benjamin Harper Leo Zoe Daniel Chloe Samuel Lily Matthew Grace Owen Abigail Gabriel Ella Jacob "
    "Scarlett Nathan Victoria Elijah Layla Nicholas Audrey David Hannah Christopher Penelope Thomas Nora "
    "Andrew Aria Joseph Claire Ryan Stella Jonathan"
)
NAMES = frozenset(_LISTED_NAMES.split())
"""The names that the instruction lists."""


class PersonNames(PlainInstruction, frozen=True):
    """ "Mention at least {N} different person names in the response, from this list of person names":
    whole words, in this case of letters."""

    id = "count:person_names"
    N: int

    def holds(self, response: str) -> bool:
        return len(NAMES & set(re.findall(r"\w+", response))) >= self.N


class Numbers(PlainInstruction, frozen=True):
    """ "Include exactly {N} numbers in the response.": runs of digits once all punctuation is taken
    out, so 1,000 and 3.14 are one number each, and so is the 3 of 3rd."""

    id = "count:numbers"
    N: int

    def holds(self, response: str) -> bool:
        return len(re.findall(r"\d+", response.translate(WITHOUT_PUNCTUATION))) == self.N


class Pronouns(PlainInstruction, frozen=True):
    """ "The response should include at least {N} pronouns.": those of `PRONOUNS`; she/her is two."""

    id = "count:pronouns"
    N: int

    def holds(self, response: str) -> bool:
        text = response.replace("/", " ").lower().translate(WITHOUT_PUNCTUATION)
        return sum(word in PRONOUNS for word in text.split()) >= self.N


_PERSONAL = (
    "i me my mine myself we us our ours ourselves you your yours yourself yourselves he him his himself "
    "she her hers herself it its itself they them their theirs themselves"
)
_POINTING_AND_ASKING = "this that these those who whom whose which what whoever whomever whichever whatever"
_INDEFINITE = (
    "anybody anyone anything everybody everyone everything nobody nothing none somebody someone something"
)
PRONOUNS = frozenset(f"{_PERSONAL} {_POINTING_AND_ASKING} {_INDEFINITE}".split())
"""Words that are nothing else, or mostly, so not "one", "some" or "each"."""


class Punctuation(PlainInstruction, frozen=True):
    """ "Use every standard punctuation mark at least once, including semicolons, colons, and the
    interrobang (?!).": the marks of the interrobang do not stand for a ? and a !."""

    id = "count:punctuation"

    def holds(self, response: str) -> bool:
        if "?!" in response:
            others = response.replace("?!", "", 1)
        elif "!?" in response or "‽" in response:
            others = response.replace("!?", "", 1)
        else:
            return False
        return all(mark in others for mark in ".,!?;:")


class KeywordsMultiple(PlainInstruction, frozen=True):
    """ "Include keyword {keyword1} once in your response, keyword {keyword2} twice in your response,
    keyword {keyword3} three times, keyword {keyword4} five times, and keyword {keyword5} seven
    times.": exactly so often, in any case, inside other words too."""

    id = "count:keywords_multiple"
    keyword1: str
    keyword2: str
    keyword3: str
    keyword4: str
    keyword5: str

    def holds(self, response: str) -> bool:
        text = response.lower()
        keywords = (self.keyword1, self.keyword2, self.keyword3, self.keyword4, self.keyword5)
        needed = zip(keywords, (1, 2, 3, 5, 7), strict=True)
        return all(text.count(keyword.lower()) == times for keyword, times in needed)


_JAPANESE = re.compile("[\u3040-\u30ff\u4e00-\u9fff]")


class WordsJapanese(PlainInstruction, frozen=True):
    """ "Every {N}th word of your response must be in Japanese.": each N-th chunk between blanks holds a
    kana or a Chinese character, unless it is punctuation or a number."""

    id = "count:words_japanese"
    N: int

    def holds(self, response: str) -> bool:
        words = [word.strip(PUNCTUATION_AND_BLANK) for word in response.split()]
        nth = words[self.N - 1 :: self.N]
        return all(_JAPANESE.search(word) for word in nth if word and not word.isdigit())


# --- IFBench ``words:``: form and place of words


def bare_words(text: str) -> list[str]:
    """Return the words between blanks once all punctuation is removed: "well-known" is one."""
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
