"""IFBench's verifiers of form: ``format:``, ``sentence:`` and ``repeat:``."""

from __future__ import annotations

import itertools
import re
import string

from coeval.benchmarks.language.text_analysis import Language
from coeval.benchmarks.tasks.instruction import (
    PUNCTUATION,
    PUNCTUATION_AND_BLANK,
    WITHOUT_PUNCTUATION,
    Instruction,
    PlainInstruction,
)

# --- IFBench ``format:``: layout, lists and quotes

_PAIRS = {")": "(", "]": "[", "}": "{"}


class Parentheses(PlainInstruction, frozen=True):
    """ "Nest parentheses (and [brackets {and braces}]) at least 5 levels deep.": five or more opened,
    and the innermost closed by its own kind; a wrong closing begins anew."""

    id = "format:parentheses"

    def holds(self, response: str) -> bool:
        opened: list[str] = []
        for character in re.findall(r"[()\[\]{}]", response):
            if character not in _PAIRS:
                opened.append(character)
            elif opened and opened[-1] == _PAIRS[character]:
                if len(opened) >= 5:
                    return True
                opened.pop()
            else:
                opened.clear()
        return False


class Quotes(PlainInstruction, frozen=True):
    """ "Include quotes within quotes within quotes, at least 3 levels deep, alternating between double
    quotes and single quotes.": three closed again from the deepest level reached."""

    id = "format:quotes"

    def holds(self, response: str) -> bool:
        opened: list[str] = []
        deepest = 0
        for character in re.findall("[\"']", response):
            if opened and opened[-1] == character:
                opened.pop()
                if deepest - len(opened) >= 3:
                    return True
            else:
                opened.append(character)
                deepest = max(deepest, len(opened))
        return False


class QuoteUnquote(PlainInstruction, frozen=True):
    """ "Every quoted phrase must be followed by an unquoted explanation.": no quote right behind a
    quote, and none at the end (digits and punctuation aside)."""

    id = "format:quote_unquote"

    def holds(self, response: str) -> bool:
        text = response.replace("“", '"').replace("”", '"').replace("'\"'", "")
        text = "".join(text.split())
        ends = text.strip(string.digits + PUNCTUATION.replace('"', ""))
        return '""' not in text and not ends.endswith('"')


class AnswerOptions(PlainInstruction, frozen=True):
    """ "Answer with one of the following options: {options}. Do not give any explanation."

    Words may differ in case and outer punctuation; of a list of letters one must stand as written.
    """

    id = "format:options"
    options: str

    def holds(self, response: str) -> bool:
        separator = next((mark for mark in ("/", "or") if mark in self.options), ",")
        options = [option.strip() for option in self.options.split(separator)]
        if re.match(r"\W*a\W*b\W*c\W*", self.options, re.IGNORECASE):
            return response in options
        answer = response.strip(PUNCTUATION_AND_BLANK).lower()
        return any(option.strip(PUNCTUATION_AND_BLANK).lower() == answer for option in options)


class Newline(PlainInstruction, frozen=True):
    """ "Write each word on a new line.": as many lines as words, once punctuation is taken out."""

    id = "format:newline"

    def holds(self, response: str) -> bool:
        text = response.translate(WITHOUT_PUNCTUATION).strip()
        return sum(line != "" for line in text.split("\n")) == len(text.split())


class LineIndent(PlainInstruction, frozen=True):
    """ "Create stairs by incrementally indenting each new line.": each line that is not blank begins
    with more blanks than the one before."""

    id = "format:line_indent"

    def holds(self, response: str) -> bool:
        lines = [line for line in response.split("\n") if line.strip()]
        indents = [len(line) - len(line.lstrip(" ")) for line in lines]
        return all(after > before for before, after in itertools.pairwise(indents))


class List(PlainInstruction, frozen=True):
    """ "Answer with a list of items, instead of bullet points use {sep}.": it stands at least twice."""

    id = "format:list"
    sep: str

    def holds(self, response: str) -> bool:
        return response.count(self.sep) >= 2


class Thesis(PlainInstruction, frozen=True):
    """ "Each section must begin with a thesis statement in italics, use HTML to indicate the italics.":
    there is one, not blank, and text behind it."""

    id = "format:thesis"

    def holds(self, response: str) -> bool:
        opening = _first_of(response, "<i>", "<em>")
        if opening < 0:
            return False
        text = response[opening:]
        closing = _first_of(text, "</i>", "</em>")
        return closing >= 0 and bool(text[3:closing].strip()) and bool(text[closing + 4 :].strip())


def _first_of(text: str, preferred: str, other: str) -> int:
    place = text.find(preferred)
    return place if place >= 0 else text.find(other)


class SubBullets(PlainInstruction, frozen=True):
    """ "Your response must include bullet points denoted by * and at least one sub-bullet point denoted
    by - for each bullet point.": a hyphen behind every star; without stars there is none to lack."""

    id = "format:sub-bullets"

    def holds(self, response: str) -> bool:
        return all("-" in bullet for bullet in response.split("*")[1:])


class NoBulletsBullets(Instruction, frozen=True):
    """ "Your answer must contain at least two sentences ending in a period followed by at least two
    bullet points denoted by *.": sentences of any kind, on lines without a blank one between them, and
    behind the first bullet nothing but bullets."""

    id = "format:no_bullets_bullets"

    def follows(self, response: str, language: Language) -> bool:
        sentences = bullets = 0
        prose = True
        for line in response.split("\n"):
            text = line.strip()
            if text.startswith("*"):
                if sentences < 2:
                    return False
                prose = False
                bullets += 1
            elif not prose:
                return False
            else:
                prose = text != ""
                sentences += len(language.sentences(text))
        return bullets >= 2


class TitleCase(Instruction, frozen=True):
    """ "Write the entire response in title case (capitalize the first letter of every major word).": no
    Treebank token of two letters or more is all lower case, or has only its first letter low."""

    id = "format:title_case"

    def follows(self, response: str, language: Language) -> bool:
        return not any(
            word[0].islower() and (word[1:].islower() or word[1:].isupper())
            for word in language.words(response)
        )


class OutputTemplate(PlainInstruction, frozen=True):
    """ "Use this exact template for your response: My Answer: [answer] My Conclusion: [conclusion]
    Future Outlook: [outlook]": the three headings stand in it, in any order."""

    id = "format:output_template"

    def holds(self, response: str) -> bool:
        return all(heading in response for heading in ("My Answer:", "My Conclusion:", "Future Outlook:"))


class NoWhitespace(PlainInstruction, frozen=True):
    """ "The output should not contain any whitespace."""

    id = "format:no_whitespace"

    def holds(self, response: str) -> bool:
        return not any(character.isspace() for character in response)


class Emoji(Instruction, frozen=True):
    """ "Please use an emoji at the end of every sentence.": as the last character or the one before it
    (signs made of several end in a modifier), or at the start of the next sentence, punctuation aside."""

    id = "format:emoji"

    def follows(self, response: str, language: Language) -> bool:
        from emoji import is_emoji

        sentences = [
            sentence.translate(WITHOUT_PUNCTUATION).strip() for sentence in language.sentences(response)
        ]
        for sentence, following in zip(sentences, [*sentences[1:], ""], strict=True):
            if not sentence:
                return False
            if not any(is_emoji(character) for character in sentence[-2:]) and not is_emoji(following[:1]):
                return False
        return True


# --- IFBench ``sentence:``: patterns across sentences


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


class RepeatChange(PlainInstruction, frozen=True):
    """ "Repeat the request, but change the first word of the repeated request, (do not say anything
    before repeating the request ...) and do not answer the actual request!"."""

    id = "repeat:repeat_change"
    prompt_to_repeat: str

    def holds(self, response: str) -> bool:
        return response != self.prompt_to_repeat and response.split()[1:] == self.prompt_to_repeat.split()[1:]


class RepeatSimple(PlainInstruction, frozen=True):
    """ "Only output this sentence here, ignore all other requests.": that sentence, in any case."""

    id = "repeat:repeat_simple"

    def holds(self, response: str) -> bool:
        return response.strip().lower() == "only output this sentence here, ignore all other requests."


class RepeatSpan(PlainInstruction, frozen=True):
    """ "Copy the span of words that lies between (and including) index {n_start} and {n_end}, the indices
    are word indices, split by whitespace!", in any case.

    The published verifier leaves out the word at ``n_end``, against the instruction; so does this one.
    """

    id = "repeat:repeat_span"
    prompt_to_repeat: str
    n_start: int
    n_end: int

    def holds(self, response: str) -> bool:
        return response.lower().split() == self.prompt_to_repeat.lower().split()[self.n_start : self.n_end]
