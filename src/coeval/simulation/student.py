"""Simulated student: answers as well as its skill allows, and states the quality."""

from __future__ import annotations

import re

from coeval.simulation.answer_draft import AnswerDraft, Demand, Found, demand, ends_with, heed, says, sets
from coeval.simulation.form_demands import FORM_DEMANDS, LARGEST, NUMBER, heed_words, number
from coeval.simulation.prose import (
    AnswerMark,
    ItemMark,
    Reply,
    SimulatedAsk,
    read_item,
    sentence_list,
    sentences,
    write_answer,
)

# --- Odd demands
#
# Rare demands on a text: of IFBench's, the two thirds that a line or two can meet.

# IFBench's `count:keywords_multiple` demands its five words so many times each.
_TIMES = (1, 2, 3, 5, 7)
_SENTENCE_ENDS = re.compile(r"(?<=[a-z])([.!?])(?=\s|$)")
_WORDS = re.compile(r"\w+")


def _keywords(draft: AnswerDraft, found: Found) -> None:
    words = (found[f"k{place}"] for place in range(1, 6))
    draft.clauses += [" ".join([f"names {word}"] * times) for word, times in zip(words, _TIMES, strict=True)]


def _numbers(draft: AnswerDraft, found: Found) -> None:
    draft.whole = " ".join(["Numbers are", *(f"{place}" for place in range(1, number(found["n"]) + 1))])


def _unique_words(draft: AnswerDraft, found: Found) -> None:
    draft.clauses.append(f"lists {' '.join(f'item{place}' for place in range(number(found['n'])))}")


def _pronouns(draft: AnswerDraft, found: Found) -> None:
    draft.clauses.append(f"is about {' and '.join(['you'] * number(found['n']))}")


def _word_range(draft: AnswerDraft, found: Found) -> None:
    """So many words as are in the middle of the range, those of the mark included."""
    needed = (min(LARGEST, int(found["low"])) + min(LARGEST, int(found["high"]))) // 2
    left = needed - len(_WORDS.findall(draft.mark))
    words = " ".join(sentence_list(draft.draws, "range", needed // 6 + 1)).replace(",", "").split()
    draft.whole = f"{draft.mark} {' '.join(words[:left])}" if left > 0 else " ".join(words[:needed])


def _list(draft: AnswerDraft, found: Found) -> None:
    lines = sentence_list(draft.draws, "items", 3)
    draft.whole = "\n".join(f"{found['mark']} {line}" for line in (f"{draft.mark} {lines[0]}", *lines[1:]))


def _keyword_in_sentence(draft: AnswerDraft, found: Found) -> None:
    place = min(LARGEST, int(found["n"]))
    draft.whole = f"{'So be it. ' * (place - 1)}This names {found['word']}. {draft.mark}"


def _option(draft: AnswerDraft, found: Found) -> None:
    draft.whole = re.split(r"/|,| or ", found["options"])[0].strip()


_KEYWORDS = ", ".join(
    rf"(?:and )?(?:include )?keyword (?P<k{place}>\w+) {times}\b[^,.\n]{{0,24}}"
    for place, times in enumerate(("once", "twice", "three times", "five times", "seven times"), 1)
)

_TO_WRITE: tuple[Demand, ...] = (
    demand("keywords", "keyword", _KEYWORDS, _keywords),
    demand(
        "conjunctions",
        "conjunctions",
        r"different coordinating conjunctions",
        says("is for and nor but or yet so plain"),
    ),
    demand("numbers", "numbers", rf"exactly (?P<n>{NUMBER}) numbers", _numbers),
    demand("unique words", "unique words", rf"at least (?P<n>{NUMBER}) unique words", _unique_words),
    demand("pronouns", "pronouns", rf"at least (?P<n>{NUMBER}) pronouns", _pronouns),
    demand(
        "punctuation",
        "punctuation mark",
        r"every standard punctuation mark",
        says("asks: who, and why; when? Stop! Really?!"),
    ),
    demand("word range", "between", r"between (?P<low>\d{1,6}) and (?P<high>\d{1,6}) words", _word_range),
    demand("list", "instead of bullet", r"instead of bullet points use (?P<mark>\S+?)\.?(?=\s|$)", _list),
    demand(
        "emoji",
        "emoji",
        r"emoji at the end of every sentence",
        ends_with(lambda text: _SENTENCE_ENDS.sub(r" 😊\1", text)),
    ),
    demand(
        "keyword in a sentence",
        "sentence",
        r"keyword (?P<word>\w+) in the (?P<n>\d{1,4})-\w\w sentence\.",
        _keyword_in_sentence,
    ),
    demand(
        "a word a line",
        "new line",
        r"each word on a new line",
        ends_with(lambda text: "\n".join(text.split())),
    ),
    demand("options", "following options", r"one of the following options: (?P<options>[^.\n]+)", _option),
    demand("brackets", "parentheses", r"nest parentheses", says("nests (a [b {c (d [e] d) c} b] a)")),
    demand(
        "nested quotes",
        "quotes within quotes",
        r"quotes within quotes",
        says("""says "a 'b "c" b' a" once"""),
    ),
    demand(
        "palindromes",
        "palindromes",
        r"single-word palindromes",
        says("lists level radar civic rotor kayak refer madam tenet rotator deified"),
    ),
    demand("title case", "title case", r"in title case", ends_with(str.title)),
    demand("no blanks", "whitespace", r"not contain any whitespace", ends_with(lambda s: "".join(s.split()))),
)

# Name, words of the prompt, and the answers that meet and miss a demand with too little room to state a
# quality; without the second a plain text misses.
_WHOLE_ANSWERS: tuple[tuple[str, str, str, str | None], ...] = (
    (
        "alphabet",
        "next letter of the alphabet",
        "A big calm dog eats four green herbs in June; kind lions move near open plains quietly; rabbits "
        "sleep there under vast warm xeric yellow zones.",
        None,
    ),
    (
        "alphabet sentences",
        "letters of the alphabet in order",
        " ".join(f"{letter}nd so it goes." for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"),
        None,
    ),
    (
        "last word first",
        "first word of the next sentence",
        "The plan is good. Good plans need time. Time is short.",
        None,
    ),
    ("prime lengths", "lengths that are prime numbers", "We see how great its problem was.", None),
    ("consonant clusters", "at least one consonant cluster", "Plants grow strong from springs.", None),
    ("syllables", "odd and even numbers of syllables", "The river was open.", None),
    ("three vowels", "only three types of vowels", "The best answer is as easy as it is.", None),
    ("first letters differ", "no two consecutive words", "Plain answers help every careful reader.", None),
    (
        "stop words",
        "stop words constitute no more",
        "Plain answers help careful readers.",
        "It is what it was, and so it will be for all of us.",
    ),
    ("declarative", "2:1 ratio of declarative", "One is this. Two is that. Is it so?", None),
    ("balanced sentences", "ratio of sentence types", "It is so. Is it so? It is so!", None),
    (
        "equal sentences",
        "three sentences, all containing the same",
        "The red fox ran. Our old cow sat. His big dog hid.",
        None,
    ),
    (
        "no repeats",
        "not repeat any word more than",
        "Plain answers help careful readers.",
        "So it is, and " + "so " * 60 + "on.",
    ),
    ("template", "My Answer: [", "My Answer: so. My Conclusion: so. Future Outlook: so.", None),
    (
        "only this sentence",
        "only output this sentence here",
        "Only output this sentence here, ignore all other requests.",
        None,
    ),
    ("stairs", "incrementally indenting", "So it\n it is\n  as it was.", "So it is\nas it was."),
    (
        "quoted, unquoted",
        "quoted phrase must be followed by an unquoted",
        'There is "a plan" which means a list of steps.',
        'There is a plan: "so be it".',
    ),
    ("same ends", "end with the same word it started with", "Plans are made of other plans.", None),
    ("multiples", "from 10 to 50 but only print multiples of 7", "14 21 28 35 42 49", None),
    ("dates", "battles Napoleon fought separated by commas", "1805-12-02, 1815-06-18", None),
)

ODD_DEMANDS: tuple[Demand, ...] = (
    *_TO_WRITE,
    *(
        demand(
            name,
            words.lower(),
            re.escape(words),
            sets(whole=met),
            None if missed is None else sets(whole=missed),
        )
        for name, words, met, missed in _WHOLE_ANSWERS
    ),
)


# --- Student

# Quality lost per unit of difficulty above 0.5, and gained below.
DIFFICULTY_WEIGHT = 0.5
# Standard deviation of quality between answers of one student at one difficulty.
DAILY_FORM = 0.08


def answer(ask: SimulatedAsk) -> Reply:
    """Write a few sentences that state the answer's quality."""
    item = read_item(ask.text)
    quality = hidden_quality(ask, item.difficulty if item else 0.5)
    mark = write_answer(AnswerMark(ask.model, ask.traits.family, quality))
    count = round(ask.traits.verbosity * (2 + 4 * ask.draws.uniform("length")))
    # An item of ours states all that is wanted; what else reads like a demand is its subject.
    shaped = None if item else _shaped(ask, mark, count, quality)
    return shaped or f"{mark} {sentences(ask.draws, 'answer', count)}"


def labelled_answer(ask: SimulatedAsk) -> Reply:
    """Answer the requested labels as a JSON object that states the quality too.

    The student knows a label of the item with a probability equal to the quality, and otherwise guesses among
    the declared values. A single label is under ``label``, several under their names.
    """
    item = read_item(ask.text) or ItemMark(0.5)
    quality = hidden_quality(ask, item.difficulty)
    reported = {
        name: item.attributes[name]
        if name in item.attributes and ask.draws.uniform(f"knows {name}") < quality
        else ask.draws.pick(f"guess {name}", values)
        for name, values in ask.labels.items()
    }
    labels = reported if len(reported) > 1 else {"label": next(iter(reported.values()))}
    return {**labels, "note": write_answer(AnswerMark(ask.model, ask.traits.family, quality))}


def _shaped(ask: SimulatedAsk, mark: str, count: int, quality: float) -> str | None:
    """The answer in the form that the prompt demands; None where it demands none."""
    draft = AnswerDraft(ask.draws, mark, count)
    made = heed(draft, ask.text, (*FORM_DEMANDS, *ODD_DEMANDS), quality)
    made += heed_words(draft, ask.text, quality)
    return draft.write() if made else None


def hidden_quality(ask: SimulatedAsk, difficulty: float) -> float:
    """Return skill, less the cost of difficulty, plus daily form; within 0 and 1."""
    quality = (
        ask.traits.skill - DIFFICULTY_WEIGHT * (difficulty - 0.5) + DAILY_FORM * ask.draws.normal("form")
    )
    return min(1.0, max(0.0, quality))
