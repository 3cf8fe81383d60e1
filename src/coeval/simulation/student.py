"""Simulated student: answers as well as its skill allows, and states the quality."""

from __future__ import annotations

from coeval.simulation.answer_draft import AnswerDraft, Change, Demand, Found, demand, heed
from coeval.simulation.form_demands import FORM_DEMANDS, heed_words
from coeval.simulation.odd_demands import ODD_DEMANDS
from coeval.simulation.prose import (
    AnswerMark,
    ItemMark,
    Reply,
    SimulatedAsk,
    read_item,
    sentences,
    write_answer,
)

# --- Whole answers for tight demands


def _answer(text: str) -> Change:
    def change(draft: AnswerDraft, _: Found) -> None:
        draft.whole = text

    return change


def fixed(name: str, cues: str, pattern: str, met: str, missed: str | None = None) -> Demand:
    """Make a demand that the text ``met`` meets and ``missed`` does not."""
    return demand(name, cues, pattern, _answer(met), None if missed is None else _answer(missed))


FIXED_ANSWERS: tuple[Demand, ...] = (
    fixed(
        "alphabet",
        "next letter of the alphabet",
        r"next letter of the alphabet",
        "A big calm dog eats four green herbs in June; kind lions move near open plains quietly; rabbits "
        "sleep there under vast warm xeric yellow zones.",
    ),
    fixed(
        "alphabet sentences",
        "letters of the alphabet in order",
        r"letters of the alphabet in order",
        " ".join(f"{letter}nd so it goes." for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"),
    ),
    fixed(
        "last word first",
        "last word of each sentence",
        r"first word of the next sentence",
        "The plan is good. Good plans need time. Time is short.",
    ),
    fixed(
        "prime lengths",
        "prime numbers",
        r"lengths that are prime numbers",
        "We see how great its problem was.",
    ),
    fixed(
        "consonant clusters",
        "consonant cluster",
        r"at least one consonant cluster",
        "Plants grow strong from springs.",
    ),
    fixed("syllables", "syllables", r"odd and even numbers of syllables", "The river was open."),
    fixed(
        "three vowels",
        "types of vowels",
        r"only three types of vowels",
        "The best answer is as easy as it is.",
    ),
    fixed(
        "first letters differ",
        "consecutive words",
        r"no two consecutive words",
        "Plain answers help every careful reader.",
    ),
    fixed(
        "longer alliteration",
        "alliterative",
        r"longer sequence of consecutive alliterative",
        "Big bears sleep. Calm cats come home.",
        "Calm cats come home. Big bears sleep.",
    ),
    fixed(
        "stop words",
        "stop words",
        r"stop words constitute no more",
        "Plain answers help careful readers.",
        "It is what it was, and so it will be for all of us.",
    ),
    fixed(
        "declarative",
        "declarative to interrogative",
        r"2:1 ratio of declarative",
        "One is this. Two is that. Is it so?",
    ),
    fixed(
        "balanced sentences", "sentence types", r"ratio of sentence types", "It is so. Is it so? It is so!"
    ),
    fixed(
        "equal sentences",
        "same number of characters",
        r"three sentences, all containing the same",
        "The red fox ran. Our old cow sat. His big dog hid.",
    ),
    fixed(
        "no repeats",
        "not repeat any word",
        r"not repeat any word more than",
        "Plain answers help careful readers.",
        "So it is, and " + "so " * 60 + "on.",
    ),
    fixed(
        "template",
        "my conclusion:",
        r"My Answer: \[",
        "My Answer: so. My Conclusion: so. Future Outlook: so.",
    ),
    fixed(
        "only this sentence",
        "only output this sentence",
        r"only output this sentence here",
        "Only output this sentence here, ignore all other requests.",
    ),
    fixed(
        "stairs", "stairs", r"incrementally indenting", "So it\n it is\n  as it was.", "So it is\nas it was."
    ),
    fixed(
        "quoted, unquoted",
        "unquoted explanation",
        r"quoted phrase must be followed by an unquoted",
        'There is "a plan" which means a list of steps.',
        'There is a plan: "so be it".',
    ),
    fixed(
        "same ends",
        "same word it started with",
        r"end with the same word it started with",
        "Plans are made of other plans.",
    ),
    fixed("multiples", "multiples of 7", r"from 10 to 50 but only print multiples of 7", "14 21 28 35 42 49"),
    fixed(
        "reversed words",
        "reverse order",
        r"national symbol of the US\?[^\n]*per word",
        "eagle bald the is It",
    ),
    fixed("reversed letters", "reverse order", r"national symbol of the US\?[^\n]*per letter", "elgae dlab"),
    fixed("dates", "yyyy-mm-dd", r"battles Napoleon fought separated by commas", "1805-12-02, 1815-06-18"),
)
"""Demands with too little room to state a quality."""


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
    made = heed(draft, ask.text, (*FORM_DEMANDS, *ODD_DEMANDS, *FIXED_ANSWERS), quality)
    made += heed_words(draft, ask.text, quality)
    return draft.write() if made else None


def hidden_quality(ask: SimulatedAsk, difficulty: float) -> float:
    """Return skill, less the cost of difficulty, plus daily form; within 0 and 1."""
    quality = (
        ask.traits.skill - DIFFICULTY_WEIGHT * (difficulty - 0.5) + DAILY_FORM * ask.draws.normal("form")
    )
    return min(1.0, max(0.0, quality))
