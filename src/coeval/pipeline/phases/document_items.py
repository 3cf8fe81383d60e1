"""Items that teachers write from passages of documents, and the filters that a reply has to pass."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec
from rapidfuzz.fuzz import token_sort_ratio

from coeval.analysis.measures.near_duplicates import SIMILAR, jaccard_similarity, word_shingles
from coeval.core.errors import Filtered
from coeval.core.records import Completion, Datapoint, Message, Request
from coeval.pipeline.phases.evaluations import ItemWork
from coeval.pipeline.phases.proposals import parse_evidence
from coeval.pipeline.prompts import QUOTED_ITEM
from coeval.pipeline.samples import passage_keys

Filter: TypeAlias = Literal["invented quote", "copied passage", "answer in question", "duplicate"]

# What a teacher is told beside its reply that was discarded, so that it does not write the same again.
_TOLD: dict[Filter, str] = {
    "invented quote": "its evidence is not, word for word, in the passages",
    "copied passage": "it copies a sentence of the passages; ask in your own words",
    "answer in question": "it gives the answer away",
    "duplicate": "another item of the test set asks the same; ask about another detail",
}
# Replies for one item. A teacher that invents a fifth and repeats a third fails so often for one item in 400.
MOST_REPLIES = 8

# --- What counts of a text

# Letters, digits, signs of amounts; marks inside numbers, so that 1.5 is not 15 and -5 not 5.
_COUNTS = re.compile(r"[^\W_]|[%‰]|[$€£¥](?=\s?\d)|(?<=\d)[.,:/](?=\d)|(?<![\w-])-(?=\d)")
# Neither this nor `_CHOICE` reads a character twice: a reply of half a million "](" took two hours.
_LINK = re.compile(r"\]\([^)\]\s]*\)")
_DASHES = str.maketrans("‐‑‒–—−", "------", "\u00ad\u200b\u2060\ufeff")
_OMISSION = re.compile(r"\[?(?:\.{3,}|…)\]?")
# A shorter quote occurs nearly anywhere.
_SHORTEST_QUOTE = 8
# About ten words in a row, of any script: names and terms are shorter.
_COPIED = 60
# A shorter answer, such as "yes" or "5", may be in a question by chance.
_SHORTEST_ANSWER = 4
# Similarity of answers (0 to 100, words in any order) from which two with the same numbers say the same.
_SAME_ANSWER = 70.0
# Of questions whose answer and evidence are the same: reworded ones have more, other questions less.
_REWORDED = 55.0
_NUMBER = re.compile(r"\d+")
_CHOICE = re.compile(r"^[^\S\n]*\(?[A-Ha-h1-8][.):]\s", re.MULTILINE)


def squeezed(text: str) -> str:
    """What a quote is compared by: letters, digits, and what changes a number; no blanks, marks or markup."""
    plain = unicodedata.normalize("NFKC", _LINK.sub("]", text)).casefold().translate(_DASHES)
    return "".join(_COUNTS.findall(plain))


def occurs(quote: str, passage: str) -> bool:
    """Whether a ``quote`` is in the `squeezed` ``passage``; its parts around an ellipsis, in their order.

    Nothing is compared by similarity: one other word or digit is what an invented quote looks like.
    """
    at = 0
    pieces = [piece for piece in map(squeezed, _OMISSION.split(quote)) if piece]
    for piece in pieces:
        found = passage.find(piece, at)
        if found < 0 or len(piece) < _SHORTEST_QUOTE:
            return False
        at = found + len(piece)
    return bool(pieces)


def supported(evidence: Sequence[str], passages: Sequence[str]) -> bool:
    """Whether every quote is in a passage, and every passage quoted."""
    of = [squeezed(passage) for passage in passages]
    found = [{at for at, passage in enumerate(of) if occurs(quote, passage)} for quote in evidence]
    return bool(found) and all(found) and len(set().union(*found)) == len(of)


def copies(question: str, passages: Sequence[str]) -> bool:
    asked = squeezed(question)
    runs = {asked[at : at + _COPIED] for at in range(len(asked) - _COPIED + 1)}
    return any(
        of[at : at + _COPIED] in runs
        for of in (map(squeezed, passages) if runs else ())
        for at in range(len(of) - _COPIED + 1)
    )


def gives_away(question: str, answer: str) -> bool:
    """Whether the answer is in the question as whole words; not where the question lists choices."""
    said, asked = (" ".join(re.findall(r"\w+", text.casefold())) for text in (answer, question))
    return (
        len(squeezed(answer)) >= _SHORTEST_ANSWER
        and f" {said} " in f" {asked} "
        and len(_CHOICE.findall(question)) < 2
    )


# --- Duplicates among a task's items


class _Asked(NamedTuple):
    text: str
    squeezed: str
    shingles: frozenset[tuple[str, ...]]
    answer: str
    evidence: frozenset[str]

    def repeats(self, other: _Asked, *, same_passages: bool) -> bool:
        """Whether it asks a similar question with a similar answer and the same evidence; of the same
        question, the passages or the answer alone decide."""
        equal = self.squeezed == other.squeezed
        if equal and same_passages:
            return True
        alike = _NUMBER.findall(self.answer) == _NUMBER.findall(other.answer)
        if not alike or token_sort_ratio(self.answer, other.answer) < _SAME_ANSWER:
            return False
        shared = any(one in two or two in one for one in self.evidence for two in other.evidence)
        near = jaccard_similarity(self.shingles, other.shingles) >= SIMILAR
        return equal or (shared and (near or token_sort_ratio(self.text, other.text) >= _REWORDED))


class AcceptedItems:
    """The items of a task by id, those on record first; looked up by words that they share."""

    def __init__(self, recorded: Iterable[Datapoint] = ()) -> None:
        self._items: dict[str, tuple[_Asked, str]] = {}
        self._with: defaultdict[object, set[str]] = defaultdict(set)
        for item in recorded:
            question = (item.prompt or "")[item.shown_passage :]
            self.accept(item.id, question, item.reference_response or "", item.evidence, item.input_hash)

    def accept(self, key: str, question: str, answer: str, evidence: Iterable[str], about: str) -> bool:
        """Keep an item, unless it repeats another; returns whether it was kept. ``about``: `passage_keys`."""
        shingles = word_shingles(question)
        quotes = frozenset(map(squeezed, evidence))
        asked = _Asked(question.casefold(), squeezed(question), shingles, answer.casefold(), quotes)
        # Of two sets as similar as `SIMILAR`, neither lacks so many of the other; the rarest lead to few.
        rarest = sorted(shingles, key=lambda each: (len(self._with[each]), each))
        rarest = rarest[: int(len(shingles) * (1 - SIMILAR)) + 1]
        near = set[str]().union(*(self._with[each] for each in (*rarest, asked.squeezed, about)))
        for other in near - {key}:
            item, of = self._items[other]
            if asked.repeats(item, same_passages=of == about):
                return False
        self._items[key] = asked, about
        for each in (*shingles, asked.squeezed, about):
            self._with[each].add(key)
        return True

    def drop(self, key: str) -> None:
        """Forget an item that is made again."""
        if key in self._items:
            asked, about = self._items.pop(key)
            for each in (*asked.shingles, asked.squeezed, about):
                self._with[each].discard(key)


# --- The work


@dataclass(slots=True)
class DocumentItemWork(ItemWork):
    """Ask a teacher for an item about its passages until a reply passes the filters, at most `MOST_REPLIES`
    times."""

    accepted: AcceptedItems = field(default_factory=AcceptedItems)
    filtered: Counter[str] = field(default_factory=Counter)
    told: str = ""

    async def do(self) -> Datapoint:
        for _ in range(MOST_REPLIES):
            fields = await self.ask(self.key, self.question, self.parse_fields, self.tally)
            question, answer, evidence = fields["prompt"], fields["reference_response"], fields["evidence"]
            flaw = self.flaw(question, answer, evidence)
            if flaw is None:
                return self.make_record(fields | self._shown(question))
            self.filtered[flaw] += 1
            self.told = f"\n\nAn earlier reply was not used: {_TOLD[flaw]}. That reply asked:\n{question}"
        counts = ", ".join(f"{name} {count}" for name, count in self.filtered.items())
        raise Filtered(f"{MOST_REPLIES} replies were discarded ({counts})")

    def question(self, _: int) -> Request:
        asked = self.role_model.prompt(self.sample.values, QUOTED_ITEM)
        (message,) = asked.messages
        return msgspec.structs.replace(asked, messages=(Message(message.role, message.content + self.told),))

    def parse_fields(self, completion: Completion) -> dict[str, Any]:
        fields = ItemWork.parse_fields(self, completion)
        return {**fields, "evidence": parse_evidence(completion.text)}

    def flaw(self, question: str, answer: str, evidence: Sequence[str]) -> Filter | None:
        """The first filter that discards an item; one without flaw is accepted."""
        passages = [passage.text for passage in self.sample.passages]
        if not supported(evidence, passages):
            return "invented quote"
        if copies(question, passages):
            return "copied passage"
        if not self.setup.labels and gives_away(question, answer):
            return "answer in question"
        about = passage_keys(self.sample.passages)
        return None if self.accepted.accept(self.key, question, answer, evidence, about) else "duplicate"

    def _shown(self, question: str) -> dict[str, Any]:
        """The prompt that students see, and how much of it is passage."""
        documents = self.setup.task.documents
        if documents is None or not documents.show:
            return {}
        above = "".join(f"{passage.text}\n\n" for passage in self.sample.passages)
        return {"prompt": above + question, "shown_passage": len(above)}

    def identity_fields(self) -> dict[str, Any]:
        return {
            **ItemWork.identity_fields(self),
            "input_hash": passage_keys(self.sample.passages),
            "source": "; ".join(passage.source for passage in self.sample.passages),
            "filtered": dict(self.filtered),
        }
