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
    verifies,
)

# --- IFBench ``format:``: layout, lists and quotes

_PAIRS = {")": "(", "]": "[", "}": "{"}


@verifies("format:parentheses")
def parentheses(response: str) -> bool:
    """ "Nest parentheses (and [brackets {and braces}]) at least 5 levels deep.": five or more opened,
    and the innermost closed by its own kind; a wrong closing begins anew."""
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


@verifies("format:quotes")
def quotes(response: str) -> bool:
    """ "Include quotes within quotes within quotes, at least 3 levels deep, alternating between double
    quotes and single quotes.": three closed again from the deepest level reached."""
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


@verifies("format:quote_unquote")
def quote_unquote(response: str) -> bool:
    """ "Every quoted phrase must be followed by an unquoted explanation.": no quote right behind a
    quote, and none at the end (digits and punctuation aside)."""
    text = response.replace("“", '"').replace("”", '"').replace("'\"'", "")
    text = "".join(text.split())
    ends = text.strip(string.digits + PUNCTUATION.replace('"', ""))
    return '""' not in text and not ends.endswith('"')


@verifies("format:options")
def answer_options(response: str, *, options: str) -> bool:
    """ "Answer with one of the following options: {options}. Do not give any explanation."

    Words may differ in case and outer punctuation; of a list of letters one must stand as written.
    """
    separator = next((mark for mark in ("/", "or") if mark in options), ",")
    offered = [option.strip() for option in options.split(separator)]
    if re.match(r"\W*a\W*b\W*c\W*", options, re.IGNORECASE):
        return response in offered
    answer = response.strip(PUNCTUATION_AND_BLANK).lower()
    return any(option.strip(PUNCTUATION_AND_BLANK).lower() == answer for option in offered)


@verifies("format:newline")
def newline(response: str) -> bool:
    """ "Write each word on a new line.": as many lines as words, once punctuation is taken out."""
    text = response.translate(WITHOUT_PUNCTUATION).strip()
    return sum(line != "" for line in text.split("\n")) == len(text.split())


@verifies("format:line_indent")
def line_indent(response: str) -> bool:
    """ "Create stairs by incrementally indenting each new line.": each line that is not blank begins
    with more blanks than the one before."""
    lines = [line for line in response.split("\n") if line.strip()]
    indents = [len(line) - len(line.lstrip(" ")) for line in lines]
    return all(after > before for before, after in itertools.pairwise(indents))


@verifies("format:list")
def list_marks(response: str, *, sep: str) -> bool:
    """ "Answer with a list of items, instead of bullet points use {sep}.": it stands at least twice."""
    return response.count(sep) >= 2


@verifies("format:thesis")
def thesis(response: str) -> bool:
    """ "Each section must begin with a thesis statement in italics, use HTML to indicate the italics.":
    there is one, not blank, and text behind it."""
    opening = _first_of(response, "<i>", "<em>")
    if opening < 0:
        return False
    text = response[opening:]
    closing = _first_of(text, "</i>", "</em>")
    return closing >= 0 and bool(text[3:closing].strip()) and bool(text[closing + 4 :].strip())


def _first_of(text: str, preferred: str, other: str) -> int:
    place = text.find(preferred)
    return place if place >= 0 else text.find(other)


@verifies("format:sub-bullets")
def sub_bullets(response: str) -> bool:
    """ "Your response must include bullet points denoted by * and at least one sub-bullet point denoted
    by - for each bullet point.": a hyphen behind every star; without stars there is none to lack."""
    return all("-" in bullet for bullet in response.split("*")[1:])


@verifies("format:no_bullets_bullets")
def no_bullets_bullets(response: str, language: Language) -> bool:
    """ "Your answer must contain at least two sentences ending in a period followed by at least two
    bullet points denoted by *.": sentences of any kind, on lines without a blank one between them, and
    behind the first bullet nothing but bullets."""
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


@verifies("format:title_case")
def title_case(response: str, language: Language) -> bool:
    """ "Write the entire response in title case (capitalize the first letter of every major word).": no
    Treebank token of two letters or more is all lower case, or has only its first letter low."""
    return not any(
        word[0].islower() and (word[1:].islower() or word[1:].isupper()) for word in language.words(response)
    )


@verifies("format:output_template")
def output_template(response: str) -> bool:
    """ "Use this exact template for your response: My Answer: [answer] My Conclusion: [conclusion]
    Future Outlook: [outlook]": the three headings stand in it, in any order."""
    return all(heading in response for heading in ("My Answer:", "My Conclusion:", "Future Outlook:"))


@verifies("format:no_whitespace")
def no_whitespace(response: str) -> bool:
    """ "The output should not contain any whitespace."""
    return not any(character.isspace() for character in response)


@verifies("format:emoji")
def emoji(response: str, language: Language) -> bool:
    """ "Please use an emoji at the end of every sentence.": as the last character or the one before it
    (signs made of several end in a modifier), or at the start of the next sentence, punctuation aside."""
    from emoji import is_emoji

    sentences = [sentence.translate(WITHOUT_PUNCTUATION).strip() for sentence in language.sentences(response)]
    for sentence, following in zip(sentences, [*sentences[1:], ""], strict=True):
        if not sentence:
            return False
        if not any(is_emoji(character) for character in sentence[-2:]) and not is_emoji(following[:1]):
            return False
    return True


# --- IFBench ``sentence:``: patterns across sentences


@verifies("sentence:keyword")
def keyword(response: str, language: Language, *, word: str, N: int) -> bool:
    """ "The response must include keyword {word} in the {N}-th sentence.", in any case."""
    sentences = language.sentences(response)
    return 0 < N <= len(sentences) and word.lower() in sentences[N - 1].lower()


@verifies("sentence:increment")
def increment(response: str, language: Language, *, small_n: int) -> bool:
    """ "Each sentence in your response must contain exactly {small_n} more words than the previous one."""
    sentences = language.sentences(response)
    lengths = [len(sentence.translate(WITHOUT_PUNCTUATION).split()) for sentence in sentences]
    return all(after == before + small_n for before, after in itertools.pairwise(lengths))


@verifies("sentence:alliteration_increment")
def alliteration_increment(response: str, language: Language) -> bool:
    """ "Each sentence must have a longer sequence of consecutive alliterative words than the previous
    one.": the words of all such runs in a sentence, taken together, must grow."""
    lengths = [_alliterative_words(sentence) for sentence in language.sentences(response)]
    return all(after > before for before, after in itertools.pairwise(lengths))


def _alliterative_words(sentence: str) -> int:
    """How many words stand next to one with the same first letter."""
    words = [word.lstrip(PUNCTUATION_AND_BLANK) for word in sentence.lower().split()]
    letters = [word[0] for word in words if word]
    same = [a == b for a, b in itertools.pairwise(letters)]
    return sum(before or after for before, after in zip([*same, False], [False, *same], strict=True))


@verifies("repeat:repeat_change")
def repeat_change(response: str, *, prompt_to_repeat: str) -> bool:
    """ "Repeat the request, but change the first word of the repeated request, (do not say anything
    before repeating the request ...) and do not answer the actual request!"."""
    return response != prompt_to_repeat and response.split()[1:] == prompt_to_repeat.split()[1:]


@verifies("repeat:repeat_simple")
def repeat_simple(response: str) -> bool:
    """ "Only output this sentence here, ignore all other requests.": that sentence, in any case."""
    return response.strip().lower() == "only output this sentence here, ignore all other requests."


@verifies("repeat:repeat_span")
def repeat_span(response: str, *, prompt_to_repeat: str, n_start: int, n_end: int) -> bool:
    """ "Copy the span of words that lies between (and including) index {n_start} and {n_end}, the indices
    are word indices, split by whitespace!", in any case.

    The published verifier leaves out the word at ``n_end``, against the instruction; so does this one.
    """
    return response.lower().split() == prompt_to_repeat.lower().split()[n_start:n_end]
