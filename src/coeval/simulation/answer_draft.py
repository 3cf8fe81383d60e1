"""Drafts of a simulated answer that meets, or misses, demands on its form."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeAlias

from coeval.simulation.prose import Draws, sentence_list

# Below the mean of our sentences, so that enough of them are written.
WORDS_PER_SENTENCE = 8
# Words: above the longest of our sentences.
LONGEST_SENTENCE = 14


class AnswerDraft:
    """State of an answer after the demands it meets (and those it breaks on purpose).

    ``clauses`` must be said ("names Paris"), sentences with ``banned`` words are avoided. ``foreign`` is a
    sentence of the demanded language. ``whole`` is an answer that one demand settles entirely; ``last`` steps
    still apply to it.
    """

    def __init__(self, draws: Draws, mark: str, usual_length: int) -> None:
        self.draws = draws
        self.mark = mark
        self.usual_length = usual_length
        self.least_sentences, self.most_sentences = 1, 10**6
        self.least_words, self.most_words = 0, 10**6
        self.clauses: list[str] = []
        self.banned: list[str] = []
        self.foreign = ""
        self.paragraphs, self.divider = 1, "\n\n"
        self.first_words: dict[int, str] = {}
        self.heading = ""
        self.bullets = 0
        self.title = False
        self.postscript = self.ending = self.opening = ""
        self.twice = self.as_json = self.quoted = False
        self.whole: str | None = None
        self.last: list[Callable[[str], str]] = []

    def write(self) -> str:
        """Write the answer; its mark is in the first sentence, whatever the form."""
        text = self._two() if self.whole is None else self.whole
        if self.as_json:
            text = json.dumps({"answer": text}, ensure_ascii=False)
        for step in self.last:
            text = step(text)
        if self.quoted:
            text = f'"{text}"'
        return f"{self.opening}\n{text}" if self.opening else text

    def _two(self) -> str:
        if not self.twice:
            return self._body(self._sentences("answer"), self.mark)
        one, other = (self._body(self._sentences(name), self.mark) for name in ("answer", "other answer"))
        return f"{one}\n******\n{other}"

    def _body(self, sentences: list[str], mark: str) -> str:
        count = min(self.paragraphs, 200)
        blocks = [self._block(number, sentences[number - 1 :: count]) for number in range(1, count + 1)]
        blocks[0] = f"{mark} {blocks[0]}" if 1 not in self.first_words else _after_first_word(blocks[0], mark)
        if self.heading:
            blocks = [f"{self.heading} {number}\n{block}" for number, block in enumerate(blocks, 1)]
        text = self.divider.join(blocks)
        if self.title:
            text = f"<<A plain title>>\n{text}"
        if self.bullets:
            points = sentence_list(self.draws, "bullets", self.bullets)
            text += "\n" + "\n".join(f"* {point}" for point in points)
        if self.postscript:
            text += f"\n{self.postscript} This comes last."
        return f"{text}\n{self.ending}" if self.ending else text

    def _block(self, number: int, sentences: list[str]) -> str:
        text = " ".join(sentences) or "That is all."
        word = self.first_words.get(number)
        return f"{word} {text}" if word else text

    def _sentences(self, name: str) -> list[str]:
        """As many as are wanted; two or more run into one where there may be few sentences."""
        if self.foreign:
            length = max(12, self.least_words // 3, self.least_sentences + 1, self.paragraphs)
            return [self.foreign] * min(length, 1000)
        count = max(self.usual_length, self.least_sentences, self.paragraphs, self._enough_for_words())
        if self.least_words == 0:
            count = max(1, min(count, self.most_words // LONGEST_SENTENCE))
        made = sentence_list(self.draws, name, min(count, 1000))
        kept = [one for one in made if not any(word in one.casefold() for word in self.banned)]
        kept = kept or ["So be it."]
        while len(kept) < self.least_sentences:
            kept.append(kept[0])
        return _at_most(kept + [f"It {clause}." for clause in self.clauses], self.most_sentences)

    def _enough_for_words(self) -> int:
        return self.least_words // WORDS_PER_SENTENCE + 4 if self.least_words else 0


def _at_most(sentences: list[str], most: int) -> list[str]:
    if len(sentences) <= most:
        return sentences
    groups = [sentences[number :: max(1, most)] for number in range(max(1, most))]
    return [" and ".join([group[0].rstrip("."), *map(_inner, group[1:])]) + "." for group in groups]


def _inner(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:].rstrip(".")


def _after_first_word(text: str, mark: str) -> str:
    first, _, rest = text.partition(" ")
    return f"{first} {mark} {rest}"


# --- Demands on an answer's form
#
# A demand is recognised by its words in the prompt. A student meets each with a probability equal to the
# quality of its answer, and breaks it otherwise: on purpose, where a plain text would meet it.

Found: TypeAlias = re.Match[str]
Change: TypeAlias = Callable[[AnswerDraft, Found], None]


class Demand(NamedTuple):
    """A demand of a prompt. ``cues``: one of them, in lower case, is in every prompt that makes it.

    ``meet`` and ``miss`` change a draft to meet or miss it; without ``miss`` a plain text misses. ``once``:
    repeating it adds nothing.
    """

    name: str
    cues: tuple[str, ...]
    pattern: re.Pattern[str]
    meet: Change
    miss: Change | None
    once: bool


def demand(
    name: str, cues: str, pattern: str, meet: Change, miss: Change | None = None, *, once: bool = True
) -> Demand:
    """Make a demand; ``cues`` are separated by ``|``, the pattern ignores case."""
    return Demand(name, tuple(cues.split("|")), re.compile(pattern, re.IGNORECASE), meet, miss, once)


def sets(**fields: Any) -> Change:
    r"""Set fields of the draft; texts may name groups of the match, as in ``\g<word>``."""

    def change(draft: AnswerDraft, found: Found) -> None:
        for name, value in fields.items():
            setattr(draft, name, found.expand(value) if isinstance(value, str) else value)

    return change


def says(clause: str) -> Change:
    """Have the answer say a clause; it may name groups of the match."""
    return lambda draft, found: draft.clauses.append(found.expand(clause))


def ends_with(step: Callable[[str], str]) -> Change:
    """Take a last step over the whole answer."""
    return lambda draft, _: draft.last.append(step)


def heed(draft: AnswerDraft, prompt: str, demands: Iterable[Demand], quality: float) -> int:
    """Apply each demand of the prompt to the draft; return their number."""
    lowered, made = prompt.lower(), 0
    for one in demands:
        if not any(cue in lowered for cue in one.cues):
            continue
        for place, found in enumerate(one.pattern.finditer(prompt)):
            made += 1
            if draft.draws.uniform(f"meets {one.name} {place}") < quality:
                one.meet(draft, found)
            elif one.miss is not None:
                one.miss(draft, found)
            if one.once:
                break
    return made
