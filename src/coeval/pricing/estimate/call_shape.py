"""What calls look like before they are priced: what is known of their prompts and what is drawn, and the
tokens and seconds that this comes to. The same for a run of our own and for a published benchmark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from coeval.core.records import Role
from coeval.pricing.estimate.call_group import CallGroup, Pricing
from coeval.pricing.estimate.evidence import Quantity, ScenarioDraws
from coeval.pricing.estimate.span import CENTRAL, Scenarios
from coeval.pricing.estimate.tokens import TextSize
from coeval.pricing.estimate.unknowns import SCENARIOS, Cell, ErrorSpread, Guess

__all__ = ["MESSAGE_TOKENS", "REPLY_RATE", "AskedModel", "CallShape", "Speed", "call_groups", "surely"]

MESSAGE_TOKENS = 4
"""What a host adds to each message: who speaks, where it ends."""
REPLY_RATE: Mapping[Role, Quantity] = {
    "teacher": "teacher's tokens per character",
    "student": "student's tokens per character",
    "judge": "judge's tokens per character",
}
_PROMPT = ErrorSpread(shared=0.05, task=0.03, model=0.06, cell=0.02, item=0.04)
_PLAIN = ErrorSpread(shared=0.05, task=0.03, model=0.06, cell=0.04, item=0.12)
_THINKING = ErrorSpread(shared=0.35, task=0.15, model=0.4, cell=0.2, item=0.6)
_SPEED = ErrorSpread(shared=0.25, task=0.0, model=0.45, cell=0.0, item=0.3)
_MUCH_MORE = 1.6
"""A reply that takes so many times the tokens of its text was thought about, whatever was expected."""
_LEAST_CACHED = 1024
"""Tokens that hosts keep in their caches at the least."""
_CACHE_HITS = (0.4, 0.85, 1.0)
"""The share of prompts that could be read from a cache and are: at the least, as expected, at the most."""


class Speed(NamedTuple):
    """Seconds to the first token, and tokens in a second from then on (None: at once)."""

    first_s: float
    tokens_per_s: float | None


class AskedModel(NamedTuple):
    """A model as its calls in one role are priced and timed. ``thinking`` are the tokens that it is
    expected to think for a reply, ``limit`` the most that a reply may have."""

    name: str
    role: Role
    pricing: Pricing
    speed: Speed
    thinking: int = 0
    limit: int | None = None
    caches: bool = True


class CallShape(NamedTuple):
    """Calls of a model for a phase of a task. A prompt has a ``known`` part in ``messages`` messages and
    ``unknown`` characters of texts that are not there yet; ``reply`` is how many characters are answered.
    ``together`` calls begin with the same ``head`` tokens, which a host's cache may keep."""

    phase: str
    task: str
    asked: AskedModel
    calls: Scenarios
    known: TextSize
    messages: int
    unknown: Scenarios
    reply: Scenarios
    together: float = 1.0
    head: Scenarios | None = None


def surely(figure: float) -> Scenarios:
    """A figure that is the same in all scenarios."""
    return np.full(SCENARIOS + 1, float(figure))


def call_groups(shapes: Sequence[CallShape], draws: ScenarioDraws) -> list[CallGroup]:
    """Tokens and seconds of all calls."""
    rates = draws.means("tokens per character", _rate_guesses(shapes), _PROMPT)
    replies = _reply_rates(shapes, rates, draws)
    models = {Cell("", shape.asked.name): Guess(1.0, 30) for shape in shapes}
    slowness = draws.means("slowness", models, _SPEED)
    hits = draws.between(*_CACHE_HITS)
    return [
        _group(shape, rates[_cell(shape)], replies[_place(shape)], slowness[Cell("", shape.asked.name)], hits)
        for shape in shapes
    ]


def _group(
    shape: CallShape, rate: Scenarios, reply_rate: Scenarios, slowness: Scenarios, hits: Scenarios
) -> CallGroup:
    asked = shape.asked
    taken = (shape.known.characters + shape.unknown) * rate + MESSAGE_TOKENS * shape.messages
    made = shape.reply * reply_rate
    if asked.limit is not None:
        made = np.minimum(made, asked.limit)
    read = written = surely(0.0)
    if shape.head is not None and asked.caches and not asked.pricing.batched:
        head = shape.head * (shape.head >= _LEAST_CACHED)
        read = head * hits * (1 - 1 / np.maximum(shape.together, 1.0))
        written = head / np.maximum(shape.together, 1.0) * bool(asked.pricing.writes_cache)
    speed = asked.speed
    seconds = slowness * (speed.first_s + (made / speed.tokens_per_s if speed.tokens_per_s else 0.0))
    return CallGroup(
        shape.phase, shape.task, asked.name, asked.pricing, shape.calls, taken, made, read, written, seconds
    )


def _cell(shape: CallShape) -> Cell:
    return Cell(shape.task, shape.asked.name)


def _place(shape: CallShape) -> tuple[Role, Cell]:
    return shape.asked.role, _cell(shape)


def _rate_guesses(shapes: Iterable[CallShape]) -> dict[Cell, Guess]:
    """About how many tokens a character of a prompt takes: by what is known of the longest one."""
    sizes: dict[Cell, TextSize] = {}
    for shape in shapes:
        cell = _cell(shape)
        sizes[cell] = max(sizes.get(cell, TextSize(0.0, 0.0)), shape.known)
    return {
        cell: Guess(max(size.tokens, 1.0) / max(size.characters, 1.0), 30) for cell, size in sizes.items()
    }


def _reply_rates(
    shapes: Sequence[CallShape], rates: Mapping[Cell, Scenarios], draws: ScenarioDraws
) -> dict[tuple[Role, Cell], Scenarios]:
    """Tokens of a reply for each of its characters, what was thought included."""
    found: dict[tuple[Role, Cell], Scenarios] = {}
    for role, quantity in REPLY_RATE.items():
        seen = draws.evidence.of(quantity)
        plain: dict[Cell, Guess] = {}
        thinking: dict[Cell, Guess] = {}
        for shape in shapes:
            if shape.asked.role != role:
                continue
            cell, length = _cell(shape), max(float(shape.reply[CENTRAL]), 1.0)
            rate = float(rates[cell][CENTRAL])
            guess = Guess((length * rate + shape.asked.thinking) / length, _whole(shape.calls))
            thinks = shape.asked.thinking or any(
                each.mean > _MUCH_MORE * rate for at, each in seen.items() if at.model == cell.model
            )
            (thinking if thinks else plain)[cell] = guess
        for guesses, spread in ((plain, _PLAIN), (thinking, _THINKING)):
            drawn = draws.means(quantity, guesses, spread)
            found |= {(role, cell): figures for cell, figures in drawn.items()}
    return found


def _whole(calls: Scenarios) -> int:
    return round(float(calls[CENTRAL]))
