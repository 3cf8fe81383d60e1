"""Whole answers that meet demands which leave little room: each letter, word or sentence counts."""

from __future__ import annotations

from coeval.simulation.answer_draft import AnswerDraft
from coeval.simulation.demand import Change, Demand, Found, demand


def _answer(text: str) -> Change:
    def change(draft: AnswerDraft, _: Found) -> None:
        draft.whole = text

    return change


def fixed(name: str, cues: str, pattern: str, met: str, missed: str | None = None) -> Demand:
    """A demand that ``met`` meets whole, and ``missed`` does not, where a plain text would."""
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
"""None of them states a quality: there is no room for it."""
