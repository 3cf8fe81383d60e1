"""Simulated judge: reads the quality that an answer states, with its own bias and noise."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any

from coeval.core.records import LEVELS
from coeval.simulation.prose import (
    REFUSAL,
    Fenced,
    OfferedChoice,
    Reply,
    SimulatedAsk,
    read_answer,
    sentences,
)

# Standard deviation of a factor's quality around the answer's.
FACTOR_SPREAD = 0.05

_RUBRIC_LINE = re.compile(r"[ \t]*[-*][ \t]+[*`\"]{0,2}([^:*`\"]{1,80}?)[*`\"]{0,2}:[ \t]")


def evaluation(ask: SimulatedAsk) -> Reply:
    """Judge each factor that the schema, or else the prompt's rubric, names."""
    seen, properties = _seen(ask, ask.text, "eye", _any_quality), ask.properties()
    if properties:
        return {factor: _verdict(ask, seen, factor, body) for factor, body in properties.items()}
    levels = _named_levels(ask.text)
    return {factor: _unshaped(ask, seen, factor, levels) for factor in rubric_factors(ask.text)}


def factor_score(ask: SimulatedAsk) -> Reply:
    """Judge one factor: as ``{"score": …}`` where a schema requires it, else as the bare word."""
    seen = _seen(ask, ask.text, "eye", _any_quality)
    if ask.schema is not None:
        verdict = _verdict(ask, seen, "score", ask.schema.body)
        return verdict if isinstance(verdict, dict) else str(verdict)
    verdict = _unshaped(ask, seen, "score", _named_levels(ask.text))
    return verdict if isinstance(verdict, dict) else str(verdict)


def rubric_factors(text: str) -> list[str]:
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
    stated, traits = read_answer(text), ask.traits
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
    return sentences(ask.draws, f"reason {factor}", 1)


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


def grades_criterion(text: str) -> bool:
    """WritingBench: an integer score and a reason."""
    return '"score"' in text and '"reason"' in text and "** Response **" in text


def grades_rubric_item(text: str) -> bool:
    """HealthBench: an explanation and whether the criterion is met."""
    return "criteria_met" in text and "# Rubric item" in text and "# Conversation" in text


def compares_assistants(text: str) -> bool:
    """Arena-Hard: both answers between marks; the system message defines the verdict's form."""
    return "<|The Start of Assistant A's Answer|>" in text and "<|The Start of Assistant B's Answer|>" in text


def prefers_output(text: str) -> bool:
    """AlpacaEval: two outputs under the identifiers m and M."""
    return '"model_identifier": "m"' in text and '"model_identifier": "M"' in text


def criterion_grade(ask: SimulatedAsk) -> Reply:
    """Grade a criterion from 1 to 10."""
    answer = _between(ask.text, "** Response **", "Provide your evaluation", last_end=True)
    worth = _seen(ask, answer, "answer", _middling_quality) + CRITERION_SPREAD * ask.draws.normal("criterion")
    return Fenced({"score": min(10, max(1, round(1 + 9 * worth))), "reason": _reason(ask)})


def rubric_item_grade(ask: SimulatedAsk) -> Reply:
    """Grade a rubric item: a better answer meets more of the good ones and fewer of the bad."""
    conversation = _between(ask.text, "# Conversation", "# Rubric item", last_end=True)
    points = _POINTS.search(_between(ask.text, "# Rubric item", "# Instructions"))
    seen = _seen(ask, conversation, "answer", _middling_quality)
    is_bad = points is not None and float(points[1]) < 0
    met = ask.draws.uniform("met") < (BAD_SHARE * (1 - seen) if is_bad else seen)
    return Fenced({"explanation": _reason(ask), "criteria_met": met})


def assistants_verdict(ask: SimulatedAsk) -> Reply:
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


def compares_answers(text: str) -> bool:
    """A run's comparison of two answers."""
    return "<answer_a>" in text and "<answer_b>" in text and '"verdict"' in text


def pair_verdict(ask: SimulatedAsk) -> Reply:
    """Prefer the answer that looks better, or neither, with a reason where one is asked for."""
    first = _between(ask.text, "<answer_a>", "</answer_a>\n\n<answer_b>", last_end=True)
    _, _, rest = ask.text.rpartition("</answer_a>\n\n<answer_b>")
    gap = _gap(ask, first, rest.rpartition("</answer_b>")[0])
    verdict = "tie" if abs(gap) < SLIGHTLY_FROM else "A" if gap > 0 else "B"
    reason = {"reason": _reason_for(ask, "pair")} if '"reason"' in ask.text else {}
    return {**reason, "verdict": verdict}


def output_preference(ask: SimulatedAsk) -> Reply:
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
    return sentences(ask.draws, "reason", 2)
