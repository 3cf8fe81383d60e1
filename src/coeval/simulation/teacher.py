"""Simulated teacher: proposes attributes and rubrics, and writes items of a stated difficulty."""

from __future__ import annotations

import re

from coeval.core.records import Message, Request
from coeval.simulation.prose import Draws, ItemMark, Reply, SimulatedAsk, sentences, write_item

_TARGET = {
    "topic": ("science", "business", "culture", "sport", "travel"),
    "complexity": ("simple", "moderate", "complex"),
    "reasoning_type": ("recall", "comparison", "inference"),
    "answer_length": ("one_sentence", "one_paragraph", "several_paragraphs"),
    "ambiguity": ("none", "slight", "strong"),
}
_NUANCED = {
    "tone": ("neutral", "friendly", "impatient"),
    "register": ("formal", "everyday", "technical"),
    "audience": ("beginner", "practitioner", "expert"),
    "typing": ("clean", "hasty"),
    "setting": ("home", "workplace", "school"),
}
_CRITERIA = {
    "accuracy": "What the answer states is right and follows from the prompt.",
    "completeness": "The answer covers every part of what was asked.",
    "clarity": "A reader understands the answer at first reading.",
    "relevance": "The answer keeps to what was asked.",
    "conciseness": "The answer is no longer than it needs to be.",
    "format": "The answer has the form that the task asks for.",
}

_PASSAGE = re.compile(r"<passage>\n(.*?)\n</passage>", re.DOTALL)
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n{2,}")
_BUILT_IN_LIST = re.compile(r"<must_have>\n([^\n]*)\n</must_have>")
_OTHER_LIST = re.compile(r"\battributes?\b[^:\n]{0,100}:\s*([^\n]+)", re.IGNORECASE)
_LIST_ENDS = re.compile(r"\.(?:\s|$)| and \w+:")


def target_attributes(ask: SimulatedAsk) -> Reply:
    return _attributes(ask, _TARGET)


def nuanced_attributes(ask: SimulatedAsk) -> Reply:
    return _attributes(ask, _NUANCED)


def _attributes(ask: SimulatedAsk, known: dict[str, tuple[str, ...]]) -> Reply:
    """Three of the known attributes; a list of name and values where the schema wants that."""
    proposed = {name: list(known[name]) for name in ask.draws.some("attributes", list(known), 3)}
    if "attributes" in ask.properties():
        return {"attributes": [{"name": name, "values": values} for name, values in proposed.items()]}
    return proposed


def rubric(ask: SimulatedAsk) -> Reply:
    """Propose four of the known factors; as a list of factor and criterion where the schema requires it."""
    proposed = {name: _CRITERIA[name] for name in ask.draws.some("factors", list(_CRITERIA), 4)}
    if "factors" in ask.properties():
        return {"factors": [{"name": name, "criterion": text} for name, text in proposed.items()]}
    return proposed


def benchmark_item(ask: SimulatedAsk) -> Reply:
    """Write a prompt that states its difficulty and attributes, and a reference answer; about passages, with
    a quote of each."""
    spread = ask.traits.difficulty_spread * ask.draws.normal("difficulty")
    difficulty = min(1.0, max(0.0, 0.5 + spread))
    attributes = sampled_attributes(ask.text)
    passages, draws = _PASSAGE.findall(ask.text), ask.draws
    if passages and draws.uniform("repeated") < ask.traits.repeated_items:
        draws = Draws(ask.model, Request((Message("user", passages[0]),)))  # as for any other such item
        difficulty = 0.5
    case = f"Case {draws.bits('case') >> 40:06x}"
    notes = sentences(draws, "notes", round(4 * ask.traits.verbosity))
    reference = sentences(draws, "reference", round(3 * ask.traits.verbosity))
    return {
        "prompt": f"{case}. {notes}\n{write_item(ItemMark(difficulty, attributes))}",
        "response": f"[simulated reference for {case.lower()}] {reference}",
        **({"evidence": [_quote(ask, passage) for passage in passages]} if passages else {}),
    }


def _quote(ask: SimulatedAsk, passage: str) -> str:
    """A sentence of a passage, spaced and marked otherwise, or an invented one: with a word or number of its
    own."""
    whole = [each for each in _SENTENCE.split(passage) if len(each.split()) > 3] or [passage]
    words = ask.draws.pick("quote", whole).split()
    if ask.draws.uniform("invented") < ask.traits.invented_quotes:
        at = ask.draws.bits("altered") % len(words)
        words[at] = ask.draws.pick("invention", ("never", "47", words[at] + "ish"))
    return ask.draws.pick("spacing", (" ", "  ", "\n")).join(words).replace('"', "”").strip("*_#> ")


def sampled_attributes(prompt: str) -> dict[str, str]:
    """Parse the target attributes that a prompt requests.

    They are in the block of the built-in template, or in a user's after a word such as "attributes:", up to
    the end of the line or sentence: ``name: value; name: value``.
    """
    built_in = _BUILT_IN_LIST.search(prompt)
    if built_in:
        return _pairs(built_in[1])
    lists = (_pairs(_LIST_ENDS.split(found[1], maxsplit=1)[0]) for found in _OTHER_LIST.finditer(prompt))
    return next((pairs for pairs in lists if pairs), {})


def _pairs(listed: str) -> dict[str, str]:
    parts = (part.partition(": ") for part in listed.split("; "))
    return {name.strip(): value.strip() for name, colon, value in parts if colon}
