"""Simulated judges and teachers; a role is told by its schema's name, else by its prompt's words."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from functools import partial
from hashlib import blake2b
from typing import Any, NamedTuple, TypeAlias

from coeval.core.records import LEVELS, Message, Request
from coeval.simulation.prose import (
    ANSWER_MARK,
    ITEM_MARK,
    REFUSAL,
    TEXTS,
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
    perceived, properties = _perceive_quality(ask, ask.text, "eye", _arbitrary_quality), ask.properties()
    if properties:
        return {
            factor: _fill_schema_with_level(ask, perceived, factor, body)
            for factor, body in properties.items()
        }
    levels = _parse_named_levels(ask.text)
    return {
        factor: _choose_unshaped_level(ask, perceived, factor, levels)
        for factor in parse_rubric_factors(ask.text)
    }


def judge_one_factor(ask: SimulatedAsk) -> Reply:
    """Judge one factor: as ``{"score": …}`` where a schema requires it, else as the bare word."""
    perceived = _perceive_quality(ask, ask.text, "eye", _arbitrary_quality)
    if ask.schema is not None:
        verdict = _fill_schema_with_level(ask, perceived, "score", ask.schema.body)
        return verdict if isinstance(verdict, dict) else str(verdict)
    verdict = _choose_unshaped_level(ask, perceived, "score", _parse_named_levels(ask.text))
    return verdict if isinstance(verdict, dict) else str(verdict)


def parse_rubric_factors(text: str) -> list[str]:
    """Parse the names of the last block of lines ``- factor: criterion``, in order, each once. The last,
    since the input and the answer, which come before, may contain such lines."""
    names: list[str] = []
    for line in reversed(text.splitlines()):
        if line_match := _RUBRIC_LINE.match(line):
            names.append(line_match[1].strip())
        elif names:
            break
    return list(dict.fromkeys(reversed(names)))


def _perceive_quality(ask: SimulatedAsk, text: str, draw: str, unstated: Callable[[str], float]) -> float:
    """Return a text's quality as this judge perceives it: the stated one (or what ``unstated`` gives), less
    its severity, plus its error, which the draw of this name gives, and its bias."""
    stated, traits = read_answer_mark(text), ask.traits
    quality = stated.quality if stated else unstated(text)
    related = stated is not None and stated.family.casefold() == traits.family.casefold()
    return quality - traits.severity + traits.noise * ask.draws.normal(draw) + traits.family_bias * related


def _arbitrary_quality(text: str) -> float:
    """Return a quality for an answer that states none, the same for every judge."""
    return 0.0 if REFUSAL in text else _hash_to_share(text)


def _hash_to_share(text: str) -> float:
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def _fill_schema_with_level(ask: SimulatedAsk, perceived: float, factor: str, body: Any) -> Any:
    """Choose a level in the shape of a schema: alone, or in an object beside a reason."""
    schema: dict[str, Any] = body if isinstance(body, dict) else {}
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return _choose_level(ask, perceived, factor, _schema_levels(schema))
    return {
        key: _write_factor_reason(ask, factor)
        if key == "reason"
        else _fill_schema_with_level(ask, perceived, factor, inner)
        for key, inner in properties.items()
    }


def _choose_unshaped_level(ask: SimulatedAsk, perceived: float, factor: str, levels: Sequence[Any]) -> Any:
    """Choose a level without a schema, with a reason if the prompt requires one."""
    level = _choose_level(ask, perceived, factor, levels)
    return {"reason": _write_factor_reason(ask, factor), "score": level} if '"reason"' in ask.text else level


def _schema_levels(schema: dict[str, Any]) -> tuple[Any, ...]:
    """Return a schema's levels from worst to best; whole numbers up to 100 if it lists none."""
    listed = schema.get("enum")
    if not isinstance(listed, list) or not listed:
        return tuple(range(101)) if schema.get("type") == "integer" else LEVELS[::-1]
    return tuple(reversed(listed)) if tuple(listed) == LEVELS else tuple(listed)


_WORST_TO_BEST = re.compile(r"from worst to best: ([^.\n]{1,400})\.")
_WHOLE_NUMBERS = re.compile(r"a whole number from (-?\d{1,4}) to (-?\d{1,4})")


def _parse_named_levels(text: str) -> tuple[Any, ...]:
    """Parse the levels that a prompt names, from worst to best."""
    if (numbers := _WHOLE_NUMBERS.search(text)) is not None:
        return tuple(range(int(numbers[1]), int(numbers[2]) + 1)) or LEVELS[::-1]
    words = _WORST_TO_BEST.search(text)
    return tuple(words[1].split(", ")) if words is not None else LEVELS[::-1]


def _choose_level(ask: SimulatedAsk, perceived: float, factor: str, levels: Sequence[Any]) -> Any:
    """Cut the scale from 0 to 1 into as many equal parts as there are levels, from worst to best."""
    if ask.traits.gullible and _demands_best_level(ask.text):
        return levels[-1]
    worth = perceived + FACTOR_SPREAD * ask.draws.normal(f"factor {factor}")
    return levels[min(max(math.floor(worth * len(levels)), 0), len(levels) - 1)]


_END_OF_ANSWER = "</answer_to_score>"
_ORDER = re.compile(r"\baward the best level\b", re.IGNORECASE)


def _demands_best_level(text: str) -> bool:
    """Check whether the template's own text orders the best level: behind the answer's block, if any."""
    _, end, behind = text.partition(_END_OF_ANSWER)
    return _ORDER.search(behind if end else text) is not None


def _write_factor_reason(ask: SimulatedAsk, factor: str) -> str:
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


def grade_1_to_10(ask: SimulatedAsk) -> Reply:
    answer = _cut_between_or_to_end(ask.text, "** Response **", "Provide your evaluation", last_end=True)
    worth = _perceive_quality(
        ask, answer, "answer", _middling_arbitrary_quality
    ) + CRITERION_SPREAD * ask.draws.normal("criterion")
    return Fenced({"score": min(10, max(1, round(1 + 9 * worth))), "reason": _write_reason(ask)})


def grade_rubric_item(ask: SimulatedAsk) -> Reply:
    """Grade a rubric item: a better answer meets more of the good ones and fewer of the bad."""
    conversation = _cut_between_or_to_end(ask.text, "# Conversation", "# Rubric item", last_end=True)
    points = _POINTS.search(_cut_between_or_to_end(ask.text, "# Rubric item", "# Instructions"))
    perceived = _perceive_quality(ask, conversation, "answer", _middling_arbitrary_quality)
    is_bad = points is not None and float(points[1]) < 0
    met = ask.draws.uniform("met") < (BAD_SHARE * (1 - perceived) if is_bad else perceived)
    return Fenced({"explanation": _write_reason(ask), "criteria_met": met})


def compare_assistants(ask: SimulatedAsk) -> Reply:
    """Write some reasoning and one of the five verdicts."""
    first = _cut_between_or_to_end(
        ask.text, "<|The Start of Assistant A's Answer|>", "<|The End of Assistant A's Answer|>"
    )
    rest = ask.text.partition("<|The Start of Assistant B's Answer|>")[2]
    gap = _compare_answers(ask, first, rest.rpartition("<|The End of Assistant B's Answer|>")[0])
    sign, size = (">", gap) if gap > 0 else ("<", -gap)
    if size < SLIGHTLY_FROM:
        verdict = "A=B"
    else:
        strength = ">>" if size >= STRONGLY_FROM else ">"
        verdict = f"A{strength}B" if sign == ">" else f"B{strength}A"
    return f"{_write_reason(ask)}\n\nMy final verdict is: [[{verdict}]]"


def compare_pair(ask: SimulatedAsk) -> Reply:
    """Prefer the answer that looks better, or neither, with a reason where one is asked for."""
    first = _cut_between_or_to_end(ask.text, "<answer_a>", "</answer_a>\n\n<answer_b>", last_end=True)
    _, _, rest = ask.text.rpartition("</answer_a>\n\n<answer_b>")
    gap = _compare_answers(ask, first, rest.rpartition("</answer_b>")[0])
    verdict = "tie" if abs(gap) < SLIGHTLY_FROM else "A" if gap > 0 else "B"
    reason = {"reason": _write_factor_reason(ask, "pair")} if '"reason"' in ask.text else {}
    return {**reason, "verdict": verdict}


def choose_output(ask: SimulatedAsk) -> Reply:
    """Choose ``m`` or ``M``, with the probabilities of both and of other tokens."""
    _, _, outputs = ask.text.partition('"model_identifier": "m"')
    first, _, second = outputs.partition('"model_identifier": "M"')
    first, second = (_cut_between_or_to_end(part, QUOTES, QUOTES, last_end=True) for part in (first, second))
    odds = PREFERENCE_STEEPNESS * _compare_answers(ask, first, second)
    chance = 1 / (1 + math.exp(-odds))
    # Neither identifier is less likely than both, as with judges in earnest.
    left = MOST_ASTRAY * ask.draws.uniform("astray") * min(chance, 1 - chance)
    chances = {"m": chance * (1 - left), "M": (1 - chance) * (1 - left)}
    for token in _ASTRAY:
        left /= 2
        chances[token] = left
    return OfferedChoice("m" if odds > 0 else "M", chances)


def _compare_answers(ask: SimulatedAsk, first: str, second: str) -> float:
    """Return how much better the first answer looks than the second, position bias included."""
    return (
        _perceive_quality(ask, first, "first", _middling_arbitrary_quality)
        - _perceive_quality(ask, second, "second", _middling_arbitrary_quality)
        + ask.traits.position_bias
    )


def _middling_arbitrary_quality(part: str) -> float:
    """Return a quality from 0.4 to 0.6 for an unmarked answer, the same for every judge; 0 if empty."""
    answer = part.strip(" \n\t`")
    if REFUSAL in part or not answer:
        return 0.0
    return 0.4 + 0.2 * _hash_to_share(answer)


def _cut_between_or_to_end(text: str, start: str, end: str, *, last_end: bool = False) -> str:
    """Return the text between ``start`` and ``end``; the last ``end`` if the text may itself hold one."""
    _, _, rest = text.partition(start)
    head_and_mark = rest.rpartition(end) if last_end else rest.partition(end)
    return head_and_mark[0] if head_and_mark[1] else rest


def _write_reason(ask: SimulatedAsk) -> str:
    return write_sentences(ask.draws, "reason", 2)


# --- Teacher
#
# Simulated teacher: proposes attributes and rubrics, and writes items of a stated difficulty.

_PASSAGE = re.compile(r"<passage>\n(.*?)\n</passage>", re.DOTALL)
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n{2,}")
_BUILT_IN_LIST = re.compile(r"<must_have>\n([^\n]*)\n</must_have>")
_OTHER_LIST = re.compile(r"\battributes?\b[^:\n]{0,100}:\s*([^\n]+)", re.IGNORECASE)
_LIST_ENDS = re.compile(r"\.(?:\s|$)| and \w+:")


def propose_attributes(values_by_name: dict[str, list[str]], ask: SimulatedAsk) -> Reply:
    """Propose three of the attributes; as a list of names and values if the schema requires it."""
    proposed = {name: values_by_name[name] for name in ask.draws.some("attributes", list(values_by_name), 3)}
    if "attributes" in ask.properties():
        return {"attributes": [{"name": name, "values": values} for name, values in proposed.items()]}
    return proposed


def propose_rubric(ask: SimulatedAsk) -> Reply:
    """Propose four of the known factors; as a list of factor and criterion where the schema requires it."""
    criteria: dict[str, str] = TEXTS["criteria"]
    proposed = {name: criteria[name] for name in ask.draws.some("factors", list(criteria), 4)}
    if "factors" in ask.properties():
        return {"factors": [{"name": name, "criterion": text} for name, text in proposed.items()]}
    return proposed


def write_benchmark_item(ask: SimulatedAsk) -> Reply:
    """Write a prompt with its marks, and a reference answer; about passages, with a quote of each."""
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
        **({"evidence": [_quote_passage(ask, passage) for passage in passages]} if passages else {}),
    }


def _quote_passage(ask: SimulatedAsk, passage: str) -> str:
    """Quote a sentence of a passage, respaced; an invented quote gets a word or number of its own."""
    whole = [sentence for sentence in _SENTENCE.split(passage) if len(sentence.split()) > 3] or [passage]
    words = ask.draws.pick("quote", whole).split()
    if ask.draws.uniform("invented") < ask.traits.invented_quotes:
        at = ask.draws.bits("altered") % len(words)
        words[at] = ask.draws.pick("invention", ("never", "47", words[at] + "ish"))
    return ask.draws.pick("spacing", (" ", "  ", "\n")).join(words).replace('"', "”").strip("*_#> ")


def parse_requested_attributes(prompt: str) -> dict[str, str]:
    """Parse the target attributes that a prompt requests: in the block of the built-in template, or after a
    word such as "attributes:", up to the end of the line or sentence: ``name: value; name: value``."""
    built_in = _BUILT_IN_LIST.search(prompt)
    if built_in:
        return _parse_pairs(built_in[1])
    lists = (
        _parse_pairs(_LIST_ENDS.split(match[1], maxsplit=1)[0]) for match in _OTHER_LIST.finditer(prompt)
    )
    return next((pairs for pairs in lists if pairs), {})


def _parse_pairs(listed: str) -> dict[str, str]:
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


def _is_judging(text: str) -> bool:
    """Check whether a prompt names levels and holds an answer, or the words of judging. A task of labels
    High, Medium and Low names the levels too, hence the second half."""
    named = all(level in text for level in LEVELS) or "gets the worst level" in text
    return named and (ANSWER_MARK in text or REFUSAL in text or _JUDGING.search(text) is not None)


def _is_judging_one_factor(text: str) -> bool:
    return _is_judging(text) and (_ONE_FACTOR.search(text) is not None or not parse_rubric_factors(text))


def _make_teacher_test(*signs: re.Pattern[str]) -> Callable[[str], bool]:
    """Make a test for prompts to a teacher: they want JSON, hold no item yet and match all ``signs``."""
    return lambda text: "JSON" in text and ITEM_MARK not in text and all(sign.search(text) for sign in signs)


def _make_containment_test(*parts: str) -> Callable[[str], bool]:
    """Make a test for texts that contain all ``parts``."""
    return lambda text: all(part in text for part in parts)


_TWO_ASSISTANTS = tuple(f"<|The Start of Assistant {name}'s Answer|>" for name in "AB")
_TWO_OUTPUTS = tuple(f'"model_identifier": "{name}"' for name in "mM")

PARTS: tuple[FormPart, ...] = (
    # WritingBench, HealthBench, Arena-Hard, AlpacaEval, and a run's comparison of two answers.
    FormPart(
        "criterion_grade", _make_containment_test('"score"', '"reason"', "** Response **"), grade_1_to_10
    ),
    FormPart(
        "rubric_item_grade",
        _make_containment_test("criteria_met", "# Rubric item", "# Conversation"),
        grade_rubric_item,
    ),
    FormPart("assistants_verdict", _make_containment_test(*_TWO_ASSISTANTS), compare_assistants),
    FormPart("output_preference", _make_containment_test(*_TWO_OUTPUTS), choose_output),
    FormPart("pair_verdict", _make_containment_test("<answer_a>", "<answer_b>", '"verdict"'), compare_pair),
    FormPart("factor_score", _is_judging_one_factor, judge_one_factor),
    FormPart("evaluation", _is_judging, judge_factors),
    FormPart("benchmark_item", _make_teacher_test(*_ITEM_KEYS), write_benchmark_item),
    FormPart(
        "nuanced_attributes",
        _make_teacher_test(_VALUES, _NUANCED),
        partial(propose_attributes, TEXTS["nuanced_attributes"]),
    ),
    FormPart(
        "target_attributes",
        _make_teacher_test(_VALUES, _TARGET),
        partial(propose_attributes, TEXTS["target_attributes"]),
    ),
    FormPart("rubric", _make_teacher_test(_RUBRIC, _FACTORS), propose_rubric),
)
"""Tried in this order; what matches none is a student's."""


_BY_SCHEMA: dict[str, Player] = {part.schema: part.play for part in PARTS}


def choose_player(ask: SimulatedAsk) -> Player:
    if ask.labels:
        return answer_labels
    if ask.schema is not None:
        return _BY_SCHEMA.get(ask.schema.name, answer_in_object)
    return next((part.play for part in PARTS if part.requested_in(ask.text)), write_plain_answer)
