"""Calls before they are priced: what is known of their prompts, what is drawn, how many tokens models think,
and the tokens and seconds that this comes to.

Whether a model thinks unless told otherwise is taken from the families' own pages; how many tokens it
thinks is a rule of thumb for questions of a paragraph, to be corrected by what is seen.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from coeval.core.records import Role, SamplingParameters
from coeval.pricing.tariff import Rates, Tariff
from coeval.pricing.unknowns import (
    CENTRAL,
    SCENARIOS,
    Cell,
    ErrorSpread,
    Evidence,
    Guess,
    Quantity,
    ScenarioDraws,
    Scenarios,
)

# --- Calls that are alike: so many of a model for a phase of a task, what each takes, and what all of them
# cost


class Pricing(NamedTuple):
    """What a model's calls are priced by: ``tariff`` None where nobody knows; ``share`` of it is paid for
    those that are ``batched``. ``provider`` is who is paid."""

    provider: str
    tariff: Tariff | None
    share: float = 1.0
    batched: bool = False

    @property
    def writes_cache(self) -> bool:
        """Whether what goes into a cache has a price of its own."""
        return self.tariff is not None and self.tariff.rates.cache_write_usd_per_mtok is not None


class CallGroup(NamedTuple):
    """Calls of one model for one phase of one task. Tokens are those of one call in the mean:
    ``read_tokens`` of the input come from the host's cache, ``written_tokens`` go into it. ``seconds`` is how
    long one call takes that is asked live."""

    phase: str
    task: str
    model: str
    pricing: Pricing
    calls: Scenarios
    input_tokens: Scenarios
    output_tokens: Scenarios
    read_tokens: Scenarios
    written_tokens: Scenarios
    seconds: Scenarios


def cost_of(group: CallGroup) -> Scenarios | None:
    """US dollars; None where the price is not known."""
    tariff = group.pricing.tariff
    if tariff is None:
        return None
    rates = _rates_for(tariff, float(group.input_tokens[CENTRAL]))
    of_input, of_output = rates.input_usd_per_mtok, rates.output_usd_per_mtok
    read = of_input if rates.cached_usd_per_mtok is None else rates.cached_usd_per_mtok
    written = of_input if rates.cache_write_usd_per_mtok is None else rates.cache_write_usd_per_mtok
    plain = np.maximum(group.input_tokens - group.read_tokens - group.written_tokens, 0.0)
    of_tokens = (
        plain * of_input
        + group.read_tokens * read
        + group.written_tokens * written
        + group.output_tokens * of_output
    )
    return group.calls * (of_tokens / 1e6 + rates.usd_per_request) * group.pricing.share


def _rates_for(tariff: Tariff, input_tokens: float) -> Rates:
    """The rates of a prompt of this length."""
    return next((tier for tier in reversed(tariff.tiers) if input_tokens > tier.above), tariff.rates)


# --- About how many tokens a text takes, where no tokenizer is there to count them
#
# By what the tokenizers of large models make of prose: some four characters of Latin script to a token, two
# of Cyrillic, Greek, Arabic and the like, one of Chinese, Japanese and Korean.

LATIN_PER_TOKEN = 4.2
"""Characters of Latin script to a token."""
_OTHER, _IDEOGRAPH = 2.2, 1.2
_IDEOGRAPHS = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\U00020000-\U0003ffff]")
_NOT_LATIN = re.compile(r"[^\x00-\u024f\u2000-\u206f]")


class TextSize(NamedTuple):
    """A text, or the mean of several, in characters and tokens."""

    characters: float
    tokens: float

    def __add__(self, other: object) -> TextSize:
        if not isinstance(other, TextSize):
            return NotImplemented
        return TextSize(self.characters + other.characters, self.tokens + other.tokens)


def size_of(text: str) -> TextSize:
    """A text's length, and about how many tokens it takes."""
    ideographs = len(_IDEOGRAPHS.findall(text))
    others = len(_NOT_LATIN.findall(text)) - ideographs
    latin = len(text) - ideographs - others
    return TextSize(len(text), latin / LATIN_PER_TOKEN + others / _OTHER + ideographs / _IDEOGRAPH)


# --- What calls look like before they are priced: what is known of their prompts and what is drawn, and the
# tokens and seconds that this comes to. The same for a run of our own and for a published benchmark

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
# A reply that takes so many times the tokens of its text was thought about, whatever was expected.
_MUCH_MORE = 1.6
# Tokens that hosts keep in their caches at the least.
_LEAST_CACHED = 1024
# The share of prompts that could be read from a cache and are: at the least, as expected, at the most.
_CACHE_HITS = (0.4, 0.85, 1.0)


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


# --- A call that has been made, as evidence of those to come

Source: TypeAlias = Literal["record", "sample"]
# What a model is expected to take at the least, for its time to be held against that.
_LEAST_S = 0.05


class ToldCall(NamedTuple):
    """One call: the tokens that its host counted (0: it told none), how many characters its prompt of
    ``messages`` messages and its reply had (None: that is not known), and the seconds that it took. ``texts``
    are the lengths of what was written."""

    role: Role
    task: str
    model: str
    texts: Mapping[Quantity, float]
    prompt: float | None
    messages: int
    reply: float
    input_tokens: float
    output_tokens: float
    seconds: float | None = None


def add_told(evidence: Evidence, told: ToldCall, speed: Speed, source: Source) -> None:
    """``speed`` is what is expected of the model."""
    cell = Cell(told.task, told.model)
    for quantity, characters in told.texts.items():
        evidence.add(quantity, cell, characters)
    if told.prompt and told.input_tokens:
        taken = max(told.input_tokens - MESSAGE_TOKENS * told.messages, 1.0)
        evidence.add("tokens per character", cell, taken / told.prompt)
    if told.reply and told.output_tokens:
        evidence.add(REPLY_RATE[told.role], cell, told.output_tokens / told.reply)
    if told.seconds is not None:
        pace = told.output_tokens / speed.tokens_per_s if speed.tokens_per_s else 0.0
        if (expected := speed.first_s + pace) >= _LEAST_S:
            evidence.add("slowness", Cell("", told.model), told.seconds / expected)
    evidence.count(told.model, source)


_BY_EFFORT = {"none": 0, "minimal": 40, "low": 200, "medium": 500, "high": 1400, "xhigh": 3000, "max": 4000}
_USUALLY = 500
# Start of a model's id → tokens, the first that fits; others think only where they are told to.
_FAMILIES = {
    r"(.*/)?(ft:)?(o[1-9]|gpt-[5-9](?!.*chat))": 450,
    r"(.*/)?gpt-oss": 250,
    r"(.*/)?gemini-(2\.5|3)[\d.]*-flash-lite": 0,
    r"(.*/)?gemini-(2\.5|[3-9])[\d.]*-flash": 280,
    r"(.*/)?gemini-(2\.5|[3-9])": 700,
    r"(.*[/.])?deepseek-(r1|reasoner)": 800,
    r"(.*/)?(qwq|qwen3(?!.*instruct)|.*thinking)": 700,
    r"(.*/)?(magistral|grok-4(?!.*non-reasoning))": 500,
}


def thinking_tokens(model: str, sampling: SamplingParameters) -> int:
    """What is expected of one answer; 0 for a model that does not think."""
    if sampling.thinking_budget is not None:
        return max(0, min(sampling.thinking_budget // 2, 2000))
    if sampling.reasoning_effort is not None:
        return _BY_EFFORT.get(sampling.reasoning_effort, _USUALLY)
    fitting = (tokens for pattern, tokens in _FAMILIES.items() if re.match(pattern, model, re.IGNORECASE))
    return next(fitting, 0)
