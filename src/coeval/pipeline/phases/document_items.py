"""Items that teachers write from passages of documents, and the filters for their replies."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

import msgspec
from rapidfuzz.fuzz import token_sort_ratio

from coeval.analysis.measures.near_duplicates import SIMILAR, jaccard_similarity, word_shingles
from coeval.core.errors import Filtered
from coeval.core.records import Completion, Datapoint, Message, Request
from coeval.engine.model_work import RecordFields
from coeval.pipeline.phases.evaluations import ItemWork
from coeval.pipeline.phases.proposals import parse_evidence
from coeval.pipeline.prompts import QUOTED_ITEM
from coeval.pipeline.samples import join_passage_keys

Filter: TypeAlias = Literal["invented quote", "copied passage", "answer in question", "duplicate"]

# Why a reply was discarded, for the next prompt, so that the teacher does not write the same again.
_HINTS: dict[Filter, str] = {
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


def reduce_to_letters_and_digits(text: str) -> str:
    """Reduce a text to what quotes are compared by: letters, digits and what changes a number."""
    plain = unicodedata.normalize("NFKC", _LINK.sub("]", text)).casefold().translate(_DASHES)
    return "".join(_COUNTS.findall(plain))


def is_quoted_from(quote: str, squeezed_passage: str) -> bool:
    """Check whether the passage contains a ``quote``, squeezed likewise, or its parts around an ellipsis in
    order. Nothing is compared by similarity: a changed word or digit is what an invented quote looks like."""
    at = 0
    pieces = [piece for piece in map(reduce_to_letters_and_digits, _OMISSION.split(quote)) if piece]
    for piece in pieces:
        position = squeezed_passage.find(piece, at)
        if position < 0 or len(piece) < _SHORTEST_QUOTE:
            return False
        at = position + len(piece)
    return bool(pieces)


def quotes_and_passages_match(quotes: Sequence[str], passages: Sequence[str]) -> bool:
    """Check that every quote is in a passage, and every passage is quoted."""
    passage_texts = [reduce_to_letters_and_digits(passage) for passage in passages]
    quoting_passages = [
        {at for at, passage in enumerate(passage_texts) if is_quoted_from(quote, passage)} for quote in quotes
    ]
    return (
        bool(quoting_passages)
        and all(quoting_passages)
        and len(set().union(*quoting_passages)) == len(passage_texts)
    )


def copies_passage(question: str, passages: Sequence[str]) -> bool:
    """Check whether a question copies at least `_COPIED` characters of a passage."""
    question_text = reduce_to_letters_and_digits(question)
    runs = {question_text[at : at + _COPIED] for at in range(len(question_text) - _COPIED + 1)}
    return any(
        passage_text[at : at + _COPIED] in runs
        for passage_text in (map(reduce_to_letters_and_digits, passages) if runs else ())
        for at in range(len(passage_text) - _COPIED + 1)
    )


def gives_answer_away(question: str, answer: str) -> bool:
    """Check whether a question contains the answer as whole words, unless it lists choices."""
    words, question_words = (" ".join(re.findall(r"\w+", text.casefold())) for text in (answer, question))
    return (
        len(reduce_to_letters_and_digits(answer)) >= _SHORTEST_ANSWER
        and f" {words} " in f" {question_words} "
        and len(_CHOICE.findall(question)) < 2
    )


# --- Duplicates among a task's items


class _AcceptedItem(NamedTuple):
    text: str
    squeezed_text: str
    shingles: frozenset[tuple[str, ...]]
    answer: str
    evidence: frozenset[str]

    def is_repetition_of(self, other: _AcceptedItem, *, same_passages: bool) -> bool:
        """Check whether both ask a similar question with a similar answer and evidence; of equal questions,
        the same passages or a similar answer suffice."""
        equal = self.squeezed_text == other.squeezed_text
        if equal and same_passages:
            return True
        alike = _NUMBER.findall(self.answer) == _NUMBER.findall(other.answer)
        if not alike or token_sort_ratio(self.answer, other.answer) < _SAME_ANSWER:
            return False
        shared = any(own in their or their in own for own in self.evidence for their in other.evidence)
        near = jaccard_similarity(self.shingles, other.shingles) >= SIMILAR
        return equal or (shared and (near or token_sort_ratio(self.text, other.text) >= _REWORDED))


class AcceptedItems:
    """The accepted items of a task by id, recorded ones first; indexed by words that they share."""

    def __init__(self, recorded: Iterable[Datapoint] = ()) -> None:
        self._items: dict[str, tuple[_AcceptedItem, str]] = {}
        self._ids_by_feature: defaultdict[object, set[str]] = defaultdict(set)
        for item in recorded:
            question = (item.prompt or "")[item.shown_passage :]
            self.accept_new(item.id, question, item.reference_response or "", item.evidence, item.input_hash)

    def accept_new(self, key: str, question: str, answer: str, evidence: Iterable[str], about: str) -> bool:
        """Keep an item, and return True, unless it repeats another. ``about``: its `join_passage_keys`."""
        shingles = word_shingles(question)
        quotes = frozenset(map(reduce_to_letters_and_digits, evidence))
        accepted = _AcceptedItem(
            question.casefold(), reduce_to_letters_and_digits(question), shingles, answer.casefold(), quotes
        )
        # Of two sets as similar as `SIMILAR`, neither lacks so many of the other; the rarest lead to few.
        rarest = sorted(shingles, key=lambda feature: (len(self._ids_by_feature[feature]), feature))
        rarest = rarest[: int(len(shingles) * (1 - SIMILAR)) + 1]
        near = set[str]().union(
            *(self._ids_by_feature[feature] for feature in (*rarest, accepted.squeezed_text, about))
        )
        for other in near - {key}:
            item, other_about = self._items[other]
            if accepted.is_repetition_of(item, same_passages=other_about == about):
                return False
        self._items[key] = accepted, about
        for feature in (*shingles, accepted.squeezed_text, about):
            self._ids_by_feature[feature].add(key)
        return True

    def drop(self, key: str) -> None:
        """Drop an item that will be made again."""
        if key in self._items:
            accepted, about = self._items.pop(key)
            for feature in (*accepted.shingles, accepted.squeezed_text, about):
                self._ids_by_feature[feature].discard(key)


# --- The work


@dataclass(slots=True)
class DocumentItemWork(ItemWork):
    """Asks a teacher for an item about its passages until a reply passes the filters (`MOST_REPLIES`)."""

    accepted: AcceptedItems = field(default_factory=AcceptedItems)
    filtered: Counter[str] = field(default_factory=Counter)
    hint: str = ""

    async def do(self) -> Datapoint:
        for _ in range(MOST_REPLIES):
            fields = await self.ask(self.key, self.question, self.parse_fields, self.tally)
            question, answer, evidence = fields["prompt"], fields["reference_response"], fields["evidence"]
            flaw = self.accept_or_find_flaw(question, answer, evidence)
            if flaw is None:
                return self.make_record(fields | self._prepend_passages_if_shown(question))
            self.filtered[flaw] += 1
            self.hint = f"\n\nAn earlier reply was not used: {_HINTS[flaw]}. That reply asked:\n{question}"
        counts = ", ".join(f"{name} {count}" for name, count in self.filtered.items())
        raise Filtered(f"{MOST_REPLIES} replies were discarded ({counts})")

    def question(self, _: int) -> Request:
        request = self.role_model.prompt(self.sample.prompt_variables, QUOTED_ITEM)
        (message,) = request.messages
        return msgspec.structs.replace(
            request, messages=(Message(message.role, message.content + self.hint),)
        )

    def parse_fields(self, completion: Completion) -> RecordFields:
        fields = ItemWork.parse_fields(self, completion)
        return {**fields, "evidence": parse_evidence(completion.text)}

    def accept_or_find_flaw(self, question: str, answer: str, evidence: Sequence[str]) -> Filter | None:
        """Return the first filter that rejects an item; None accepts it."""
        passages = [passage.text for passage in self.sample.passages]
        if not quotes_and_passages_match(evidence, passages):
            return "invented quote"
        if copies_passage(question, passages):
            return "copied passage"
        if not self.setup.labels and gives_answer_away(question, answer):
            return "answer in question"
        about = join_passage_keys(self.sample.passages)
        return None if self.accepted.accept_new(self.key, question, answer, evidence, about) else "duplicate"

    def _prepend_passages_if_shown(self, question: str) -> RecordFields:
        """Return the prompt with its passages, and their length, if students see them."""
        documents = self.setup.task.documents
        if documents is None or not documents.show:
            return {}
        above = "".join(f"{passage.text}\n\n" for passage in self.sample.passages)
        return {"prompt": above + question, "shown_passage": len(above)}

    def identity_fields(self) -> RecordFields:
        return {
            **ItemWork.identity_fields(self),
            "input_hash": join_passage_keys(self.sample.passages),
            "source": "; ".join(passage.source for passage in self.sample.passages),
            "filtered": dict(self.filtered),
        }
