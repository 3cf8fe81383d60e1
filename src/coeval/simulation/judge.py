"""The judge: reads the quality that the answer states, and sees it through its own eyes."""

from __future__ import annotations

import re
from hashlib import blake2b

from coeval.core.records import Level
from coeval.simulation.ask import Reply, SimulatedAsk
from coeval.simulation.marks import REFUSAL, read_answer

HIGH_FROM = 2 / 3
MEDIUM_FROM = 1 / 3
FACTOR_SPREAD = 0.05
"""Standard deviation of what one factor of an answer is worth around the answer's quality."""

_RUBRIC_LINE = re.compile(r"[ \t]*[-*][ \t]+[*`\"]{0,2}([^:*`\"]{1,80}?)[*`\"]{0,2}:[ \t]")


def evaluation(ask: SimulatedAsk) -> Reply:
    """A level for each factor that the schema, or else the prompt's rubric, names."""
    factors = list(ask.properties()) or rubric_factors(ask.text)
    seen = seen_quality(ask)
    return {factor: _level(ask, seen, factor) for factor in factors}


def factor_score(ask: SimulatedAsk) -> Reply:
    """One level: as ``{"score": …}`` where a schema asks for it, else the bare word."""
    level = _level(ask, seen_quality(ask), "score")
    return dict.fromkeys(ask.properties(), level) or level


def rubric_factors(text: str) -> list[str]:
    """The names in the last run of lines ``- factor: criterion``, in order, each once.

    The last, because the input and the answer may hold such lines too, and stand before it.
    """
    names: list[str] = []
    for line in reversed(text.splitlines()):
        found = _RUBRIC_LINE.match(line)
        if found:
            names.append(found[1].strip())
        elif names:
            break
    return list(dict.fromkeys(reversed(names)))


def seen_quality(ask: SimulatedAsk) -> float:
    """The answer's quality as this judge sees it: less severity, plus its error and its bias."""
    stated = read_answer(ask.text)
    quality = stated.quality if stated else _unstated_quality(ask.text)
    return as_seen(ask, quality, stated.family if stated else None, "eye")


def as_seen(ask: SimulatedAsk, quality: float, family: str | None, eye: str) -> float:
    """A true quality through the judge's eyes; ``eye`` names the draw of its error."""
    traits = ask.traits
    kin = family is not None and family.casefold() == traits.family.casefold()
    return quality - traits.severity + traits.noise * ask.draws.normal(eye) + traits.family_bias * kin


def _unstated_quality(text: str) -> float:
    """A quality for an answer that states none, the same for every judge asked the same."""
    if REFUSAL in text:
        return 0.0
    return (
        int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big") / 2**64
    )


def _level(ask: SimulatedAsk, seen: float, factor: str) -> Level:
    worth = seen + FACTOR_SPREAD * ask.draws.normal(f"factor {factor}")
    if worth >= HIGH_FROM:
        return "High"
    return "Medium" if worth >= MEDIUM_FROM else "Low"
