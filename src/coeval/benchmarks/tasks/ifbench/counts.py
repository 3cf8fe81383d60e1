"""IFBench ``count:``: how many of something the response holds."""

from __future__ import annotations

import re

from coeval.benchmarks.language.text_analysis import Language
from coeval.benchmarks.tasks.instruction import (
    PUNCTUATION_AND_BLANK,
    WITHOUT_PUNCTUATION,
    Instruction,
    PlainInstruction,
)


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
        wanted = zip(keywords, (1, 2, 3, 5, 7), strict=True)
        return all(text.count(keyword.lower()) == times for keyword, times in wanted)


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
