"""Simulated judges and teachers; a role is told by its schema's name, else by its prompt's words."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple, TypeAlias

from coeval.core.records import LEVELS, Message, Request
from coeval.simulation.prose import (
    ANSWER_MARK,
    ITEM_MARK,
    REFUSAL,
    Draws,
    Fenced,
    ItemMark,
    OfferedChoice,
    Reply,
    SimulatedAsk,
    read_answer_mark,
    write_item_mark,
    write_sentences,
)
from coeval.simulation.student import answer_in_object, answer_labels, write_plain_answer

# Standard deviation of a factor's quality around the answer's.
FACTOR_SPREAD = 0.05

_RUBRIC_LINE = re.compile(r"[ \t]*[-*][ \t]+[*`\"]{0,2}([^:*`\"]{1,80}?)[*`\"]{0,2}:[ \t]")


def judge_factors(ask: SimulatedAsk) -> Reply:
    """Judge each factor that the schema, or else the prompt's rubric, names."""
    seen, properties = _seen(ask, ask.text, "eye", _any_quality), ask.properties()
    if properties:
        return {factor: _verdict(ask, seen, factor, body) for factor, body in properties.items()}
    levels = _named_levels(ask.text)
    return {factor: _unshaped(ask, seen, factor, levels) for factor in parse_rubric_factors(ask.text)}


def judge_one_factor(ask: SimulatedAsk) -> Reply:
    """Judge one factor: as ``{"score": …}`` where a schema requires it, else as the bare word."""
    seen = _seen(ask, ask.text, "eye", _any_quality)
    if ask.schema is not None:
        verdict = _verdict(ask, seen, "score", ask.schema.body)
        return verdict if isinstance(verdict, dict) else str(verdict)
    verdict = _unshaped(ask, seen, "score", _named_levels(ask.text))
    return verdict if isinstance(verdict, dict) else str(verdict)


def parse_rubric_factors(text: str) -> list[str]:
    """Parse the names of the last block of lines ``- factor: criterion``, in order, each once.

    The last, since the input and the answer, which come before, may contain such lines.
    """
    names: list[str] = []
    for line in reversed(text.splitlines()):
        found = _RUBRIC_LINE.match(line)
        if found:
            names.append(found[1].strip())
        elif names:
            break
    return list(dict.fromkeys(reversed(names)))


def _seen(ask: SimulatedAsk, text: str, eye: str, unstated: Callable[[str], float]) -> float:
    """The quality that a text states, or else ``unstated`` gives it, as this judge perceives it: less its
    severity, plus its error, which the draw ``eye`` names, and its bias."""
    stated, traits = read_answer_mark(text), ask.traits
    quality = stated.quality if stated else unstated(text)
    related = stated is not None and stated.family.casefold() == traits.family.casefold()
    return quality - traits.severity + traits.noise * ask.draws.normal(eye) + traits.family_bias * related


def _any_quality(text: str) -> float:
    """A quality for an answer that states none, the same for every judge asked the same."""
    return 0.0 if REFUSAL in text else _share_of(text)


def _share_of(text: str) -> float:
    """From 0 to 1, by the text alone."""
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def _verdict(ask: SimulatedAsk, seen: float, factor: str, body: Any) -> Any:
    """A level in the shape of a schema: by itself, or in an object beside a reason."""
    schema: dict[str, Any] = body if isinstance(body, dict) else {}
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return _level(ask, seen, factor, _levels_of(schema))
    return {
        key: _reason_for(ask, factor) if key == "reason" else _verdict(ask, seen, factor, inner)
        for key, inner in properties.items()
    }


def _unshaped(ask: SimulatedAsk, seen: float, factor: str, levels: Sequence[Any]) -> Any:
    """A level where no schema says how, with a reason where the prompt asks for one."""
    level = _level(ask, seen, factor, levels)
    return {"reason": _reason_for(ask, factor), "score": level} if '"reason"' in ask.text else level


def _levels_of(schema: dict[str, Any]) -> tuple[Any, ...]:
    """The levels of a schema from worst to best; whole numbers up to 100 where it lists none."""
    listed = schema.get("enum")
    if not isinstance(listed, list) or not listed:
        return tuple(range(101)) if schema.get("type") == "integer" else LEVELS[::-1]
    return tuple(reversed(listed)) if tuple(listed) == LEVELS else tuple(listed)


_WORST_TO_BEST = re.compile(r"from worst to best: ([^.\n]{1,400})\.")
_WHOLE_NUMBERS = re.compile(r"a whole number from (-?\d{1,4}) to (-?\d{1,4})")


def _named_levels(text: str) -> tuple[Any, ...]:
    """The levels that a prompt names, from worst to best."""
    if (numbers := _WHOLE_NUMBERS.search(text)) is not None:
        return tuple(range(int(numbers[1]), int(numbers[2]) + 1)) or LEVELS[::-1]
    words = _WORST_TO_BEST.search(text)
    return tuple(words[1].split(", ")) if words is not None else LEVELS[::-1]


def _level(ask: SimulatedAsk, seen: float, factor: str, levels: Sequence[Any]) -> Any:
    """Cut the scale from 0 to 1 into as many equal parts as there are levels, from worst to best."""
    if ask.traits.gullible and _is_ordered(ask.text):
        return levels[-1]
    worth = seen + FACTOR_SPREAD * ask.draws.normal(f"factor {factor}")
    return levels[min(max(math.floor(worth * len(levels)), 0), len(levels) - 1)]


_END_OF_ANSWER = "</answer_to_score>"
_ORDER = re.compile(r"\baward the best level\b", re.IGNORECASE)


def _is_ordered(text: str) -> bool:
    """Whether an order for the best level stands where the template speaks: behind the end of the answer's
    block, or anywhere where there is none."""
    _, end, behind = text.partition(_END_OF_ANSWER)
    return _ORDER.search(behind if end else text) is not None


def _reason_for(ask: SimulatedAsk, factor: str) -> str:
    return write_sentences(ask.draws, f"reason {factor}", 1)


# --- Judges of published benchmarks
#
# A prompt is recognised by the form of answer it demands. What is judged is read out of the place that the
# prompt gives it, so that an answer that speaks of other answers is still only itself.

# Standard deviation of the quality by one criterion around the answer's.
CRITERION_SPREAD = 0.05
# Quality gaps from which a verdict is strong, and from which it is no tie.
STRONGLY_FROM, SLIGHTLY_FROM = 0.3, 0.06
# Log-odds of preferring an answer per unit of quality.
PREFERENCE_STEEPNESS = 8.0
# Probability that a worthless answer meets a rubric item of negative points.
BAD_SHARE = 0.5
# Probability of a first token that is neither identifier, at most, as a share of the less likely one.
MOST_ASTRAY = 0.1
QUOTES = '"""'
_ASTRAY = ("The", " m", "Model", "**", " M", "I", "Based", "Both", "\n", "Best")

_POINTS = re.compile(r"\[(-?\d+(?:\.\d+)?)\]")


def grade_criterion(ask: SimulatedAsk) -> Reply:
    """Grade a criterion from 1 to 10."""
    answer = _between(ask.text, "** Response **", "Provide your evaluation", last_end=True)
    worth = _seen(ask, answer, "answer", _middling_quality) + CRITERION_SPREAD * ask.draws.normal("criterion")
    return Fenced({"score": min(10, max(1, round(1 + 9 * worth))), "reason": _reason(ask)})


def grade_rubric_item(ask: SimulatedAsk) -> Reply:
    """Grade a rubric item: a better answer meets more of the good ones and fewer of the bad."""
    conversation = _between(ask.text, "# Conversation", "# Rubric item", last_end=True)
    points = _POINTS.search(_between(ask.text, "# Rubric item", "# Instructions"))
    seen = _seen(ask, conversation, "answer", _middling_quality)
    is_bad = points is not None and float(points[1]) < 0
    met = ask.draws.uniform("met") < (BAD_SHARE * (1 - seen) if is_bad else seen)
    return Fenced({"explanation": _reason(ask), "criteria_met": met})


def compare_assistants(ask: SimulatedAsk) -> Reply:
    """Write some reasoning and one of the five verdicts."""
    first = _between(ask.text, "<|The Start of Assistant A's Answer|>", "<|The End of Assistant A's Answer|>")
    rest = ask.text.partition("<|The Start of Assistant B's Answer|>")[2]
    gap = _gap(ask, first, rest.rpartition("<|The End of Assistant B's Answer|>")[0])
    sign, size = (">", gap) if gap > 0 else ("<", -gap)
    if size < SLIGHTLY_FROM:
        verdict = "A=B"
    else:
        strength = ">>" if size >= STRONGLY_FROM else ">"
        verdict = f"A{strength}B" if sign == ">" else f"B{strength}A"
    return f"{_reason(ask)}\n\nMy final verdict is: [[{verdict}]]"


def compare_pair(ask: SimulatedAsk) -> Reply:
    """Prefer the answer that looks better, or neither, with a reason where one is asked for."""
    first = _between(ask.text, "<answer_a>", "</answer_a>\n\n<answer_b>", last_end=True)
    _, _, rest = ask.text.rpartition("</answer_a>\n\n<answer_b>")
    gap = _gap(ask, first, rest.rpartition("</answer_b>")[0])
    verdict = "tie" if abs(gap) < SLIGHTLY_FROM else "A" if gap > 0 else "B"
    reason = {"reason": _reason_for(ask, "pair")} if '"reason"' in ask.text else {}
    return {**reason, "verdict": verdict}


def choose_output(ask: SimulatedAsk) -> Reply:
    """Choose ``m`` or ``M``, with the probabilities of both and of other tokens."""
    _, _, outputs = ask.text.partition('"model_identifier": "m"')
    first, _, second = outputs.partition('"model_identifier": "M"')
    first, second = (_between(part, QUOTES, QUOTES, last_end=True) for part in (first, second))
    odds = PREFERENCE_STEEPNESS * _gap(ask, first, second)
    chance = 1 / (1 + math.exp(-odds))
    # Neither identifier is less likely than both, as with judges in earnest.
    left = MOST_ASTRAY * ask.draws.uniform("astray") * min(chance, 1 - chance)
    chances = {"m": chance * (1 - left), "M": (1 - chance) * (1 - left)}
    for token in _ASTRAY:
        left /= 2
        chances[token] = left
    return OfferedChoice("m" if odds > 0 else "M", chances)


def _gap(ask: SimulatedAsk, first: str, second: str) -> float:
    """How much better the first answer looks than the second; the bias for a place included."""
    return (
        _seen(ask, first, "first", _middling_quality)
        - _seen(ask, second, "second", _middling_quality)
        + ask.traits.position_bias
    )


def _middling_quality(part: str) -> float:
    """From 0.4 to 0.6 for an answer of no simulated model, the same for every judge; 0 for none at all."""
    answer = part.strip(" \n\t`")
    if REFUSAL in part or not answer:
        return 0.0
    return 0.4 + 0.2 * _share_of(answer)


def _between(text: str, start: str, end: str, *, last_end: bool = False) -> str:
    """What follows ``start``, up to ``end``: its last place where the text between may name it too."""
    _, _, rest = text.partition(start)
    found = rest.rpartition(end) if last_end else rest.partition(end)
    return found[0] if found[1] else rest


def _reason(ask: SimulatedAsk) -> str:
    return write_sentences(ask.draws, "reason", 2)


# --- Teacher
#
# Simulated teacher: proposes attributes and rubrics, and writes items of a stated difficulty.

_TARGET_VALUES = {
    "topic": ("science", "business", "culture", "sport", "travel"),
    "complexity": ("simple", "moderate", "complex"),
    "reasoning_type": ("recall", "comparison", "inference"),
    "answer_length": ("one_sentence", "one_paragraph", "several_paragraphs"),
    "ambiguity": ("none", "slight", "strong"),
}
_NUANCED_VALUES = {
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


def propose_target_attributes(ask: SimulatedAsk) -> Reply:
    return _attributes(ask, _TARGET_VALUES)


def propose_nuanced_attributes(ask: SimulatedAsk) -> Reply:
    return _attributes(ask, _NUANCED_VALUES)


def _attributes(ask: SimulatedAsk, known: dict[str, tuple[str, ...]]) -> Reply:
    """Three of the known attributes; a list of name and values where the schema wants that."""
    proposed = {name: list(known[name]) for name in ask.draws.some("attributes", list(known), 3)}
    if "attributes" in ask.properties():
        return {"attributes": [{"name": name, "values": values} for name, values in proposed.items()]}
    return proposed


def propose_rubric(ask: SimulatedAsk) -> Reply:
    """Propose four of the known factors; as a list of factor and criterion where the schema requires it."""
    proposed = {name: _CRITERIA[name] for name in ask.draws.some("factors", list(_CRITERIA), 4)}
    if "factors" in ask.properties():
        return {"factors": [{"name": name, "criterion": text} for name, text in proposed.items()]}
    return proposed


def write_benchmark_item(ask: SimulatedAsk) -> Reply:
    """Write a prompt that states its difficulty and attributes, and a reference answer; about passages, with
    a quote of each."""
    spread = ask.traits.difficulty_spread * ask.draws.normal("difficulty")
    difficulty = min(1.0, max(0.0, 0.5 + spread))
    attributes = parse_requested_attributes(ask.text)
    passages, draws = _PASSAGE.findall(ask.text), ask.draws
    if passages and draws.uniform("repeated") < ask.traits.repeated_items:
        draws = Draws(ask.model, Request((Message("user", passages[0]),)))  # as for any other such item
        difficulty = 0.5
    case = f"Case {draws.bits('case') >> 40:06x}"
    notes = write_sentences(draws, "notes", round(4 * ask.traits.verbosity))
    reference = write_sentences(draws, "reference", round(3 * ask.traits.verbosity))
    return {
        "prompt": f"{case}. {notes}\n{write_item_mark(ItemMark(difficulty, attributes))}",
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


def parse_requested_attributes(prompt: str) -> dict[str, str]:
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


# --- Parts

Player: TypeAlias = Callable[[SimulatedAsk], Reply]

_JUDGING = re.compile(r"\b(?:judge|rubric|criteri(?:on|a)|factors?|reference)\b", re.IGNORECASE)
_ONE_FACTOR = re.compile(r"\b[Ff]actor(?: is|:)")
_ITEM_KEYS = (
    re.compile(r"[\"'`](?:prompt|question|input)[\"'`]", re.IGNORECASE),
    re.compile(r"[\"'`](?:response|reference|answer|output)[\"'`]", re.IGNORECASE),
)
_VALUES = re.compile("values")
_TARGET = re.compile(r"\btarget attributes?\b", re.IGNORECASE)
_NUANCED = re.compile(r"\bnuanced? attributes?\b", re.IGNORECASE)
_RUBRIC = re.compile(r"\brubric\b", re.IGNORECASE)
_FACTORS = re.compile(r"\b(?:factor|criteri)", re.IGNORECASE)


class FormPart(NamedTuple):
    """A role: its schema's name, the test of its prompts, and its player."""

    schema: str
    requested_in: Callable[[str], bool]
    play: Player


def _judges(text: str) -> bool:
    """Whether the text names levels and holds something to judge, or the words of judging.

    A task of labels High, Medium and Low names the levels too, hence the second half.
    """
    named = all(level in text for level in LEVELS) or "gets the worst level" in text
    return named and (ANSWER_MARK in text or REFUSAL in text or _JUDGING.search(text) is not None)


def _judges_one_factor(text: str) -> bool:
    return _judges(text) and (_ONE_FACTOR.search(text) is not None or not parse_rubric_factors(text))


def _asks_for(*signs: re.Pattern[str]) -> Callable[[str], bool]:
    """Whether a text may ask a teacher, for JSON and holding no item yet, and bears all signs."""
    return lambda text: "JSON" in text and ITEM_MARK not in text and all(sign.search(text) for sign in signs)


def _holds(*parts: str) -> Callable[[str], bool]:
    """Whether a text holds all of these."""
    return lambda text: all(part in text for part in parts)


_TWO_ASSISTANTS = tuple(f"<|The Start of Assistant {name}'s Answer|>" for name in "AB")
_TWO_OUTPUTS = tuple(f'"model_identifier": "{name}"' for name in "mM")

PARTS: tuple[FormPart, ...] = (
    # WritingBench, HealthBench, Arena-Hard, AlpacaEval, and a run's comparison of two answers.
    FormPart("criterion_grade", _holds('"score"', '"reason"', "** Response **"), grade_criterion),
    FormPart(
        "rubric_item_grade", _holds("criteria_met", "# Rubric item", "# Conversation"), grade_rubric_item
    ),
    FormPart("assistants_verdict", _holds(*_TWO_ASSISTANTS), compare_assistants),
    FormPart("output_preference", _holds(*_TWO_OUTPUTS), choose_output),
    FormPart("pair_verdict", _holds("<answer_a>", "<answer_b>", '"verdict"'), compare_pair),
    FormPart("factor_score", _judges_one_factor, judge_one_factor),
    FormPart("evaluation", _judges, judge_factors),
    FormPart("benchmark_item", _asks_for(*_ITEM_KEYS), write_benchmark_item),
    FormPart("nuanced_attributes", _asks_for(_VALUES, _NUANCED), propose_nuanced_attributes),
    FormPart("target_attributes", _asks_for(_VALUES, _TARGET), propose_target_attributes),
    FormPart("rubric", _asks_for(_RUBRIC, _FACTORS), propose_rubric),
)
"""Tried in this order; what matches none is a student's."""


_BY_SCHEMA: dict[str, Player] = {part.schema: part.play for part in PARTS}


def choose_player(ask: SimulatedAsk) -> Player:
    """Choose the player of a request."""
    if ask.labels:
        return answer_labels
    if ask.schema is not None:
        return _BY_SCHEMA.get(ask.schema.name, answer_in_object)
    return next((part.play for part in PARTS if part.requested_in(ask.text)), write_plain_answer)
