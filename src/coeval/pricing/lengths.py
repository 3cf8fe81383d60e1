"""Lengths for estimating calls: means of records and samples, else rules of thumb, each with its range.

Every figure is computed three times (`Span`): as expected, with every unknown at its low end, and with
every one at its high end. Each source of a length has one factor for how far the ends lie apart.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import sqrt
from statistics import fmean
from types import MappingProxyType
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from coeval.core.records import Request, Usage, model_of
from coeval.core.text import pluralize


class Span(msgspec.Struct, frozen=True):
    """A figure as expected, and the ends of the range that is to hold it in 95 of 100 cases."""

    central: float
    low: float
    high: float

    def __add__(self, other: Span) -> Span:
        return Span(self.central + other.central, self.low + other.low, self.high + other.high)

    def __mul__(self, times: float) -> Span:
        return Span(self.central * times, self.low * times, self.high * times)

    def clip_to(self, shares: RangeShares) -> Span:
        """Clip the range to that of a factor around ``central``."""
        most = shares.span_around(self.central)
        return Span(self.central, max(self.low, most.low), min(self.high, most.high))

    def cap_at(self, limit: float | None) -> Span:
        return self if limit is None else map_spans(partial(min, limit), self)


def exact(figure: float) -> Span:
    return Span(figure, figure, figure)


def map_spans(function: Callable[..., float], *spans: Span) -> Span:
    """Apply a function to the central figures, the low ends and the high ends."""
    central, *ends = (
        function(*figures) for figures in zip(*map(msgspec.structs.astuple, spans), strict=True)
    )
    return Span(central, min(central, *ends), max(central, *ends))


# --- How far each source of a length may be off. The factors are set on the 100 random experiments of
# tests/pipeline/test_estimate_holds.py, each estimated and then run: the range of the whole cost is to hold
# the true one in 95 of 100, and to be no wider than it must (docs/decisions/0012-a-plain-estimate.md)


class RangeShares(NamedTuple):
    """The ends of a range, as shares of what is expected."""

    low: float
    high: float

    def span_around(self, expected: float) -> Span:
        return self.widen(exact(expected))

    def widen(self, span: Span) -> Span:
        return Span(span.central, span.low * self.low, span.high * self.high)


# Rules are of large models. Terse ones, as simulated models are, write a third: the whole cost was 0.51 to
# 0.69 of what was expected, and a low end of 0.35 missed 2 of 100. Beyond 1.5 the range were wider than 3.
RULE_OF_THUMB = RangeShares(1 / 3, 1.5)
# What the same model wrote at another task, or another model at this one: 1.20 missed 3 of 100.
SEEN_NEARBY = RangeShares(1 / 1.25, 1.25)
# Tokens of a known text: tokenizers of large models take 3.6 to 4.4 characters of English prose to a token.
PROMPT_FACTOR = RangeShares(1 / 1.1, 1.1)
# Hosts of one model differ by so much in speed, and one host by so much within a day; time is no money.
TIME_FACTOR = RangeShares(1 / 3, 3.0)


def mean_range(items: int) -> RangeShares:
    """Return the range of a mean over so many records or samples. Texts of a model at a task vary by a fifth
    (standard deviation over mean: 0.1 to 0.25); 3% are for how a whole run differs from its first items.
    With 0.15 instead of 0.2, 2 of 100 were missed."""
    factor = 1.03 + 0.2 / sqrt(items)
    return RangeShares(1 / factor, factor)


class Cell(NamedTuple):
    """A model at a task."""

    task: str
    model: str


Source: TypeAlias = Literal["record", "sample"]


class Lengths:
    """Mean lengths seen in records and samples, by quantity (``answer``, ``judge input``) and cell. Texts are
    in characters; input and output are tokens of a call, seconds are of a call. Beside the input the texts
    in it are kept, where known: a few items may be shorter or longer than most."""

    def __init__(self) -> None:
        self._seen: dict[str, dict[Cell, tuple[int, float]]] = {}
        self._calls: dict[str, Counter[str]] = {}
        self._item_texts: dict[str, Mapping[str, int]] = {}

    def add_item_texts(self, item_id: str, characters_by_kind: Mapping[str, int]) -> None:
        """Remember an item's text lengths for `add_call_usage`."""
        self._item_texts[item_id] = characters_by_kind

    def add_value(self, quantity: str, cell: Cell, value: float) -> None:
        cells = self._seen.setdefault(quantity, {})
        items, total = cells.get(cell, (0, 0.0))
        cells[cell] = items + 1, total + value

    def add_call_usage(
        self, role: str, cell: Cell, usage: Usage | None, seconds: float | None, calls: int, item_id: str = ""
    ) -> None:
        """Add a record's tokens, cost and seconds as the mean of its ``calls`` about an item."""
        if usage is not None and usage.input_tokens and not usage.uncounted:
            self.add_value(f"{role} input", cell, usage.input_tokens / calls)
            self.add_value(f"{role} output", cell, usage.output_tokens / calls)
            for kind, characters in self._item_texts.get(item_id, {}).items():
                self.add_value(f"{role} {kind}", cell, characters)
        if usage is not None and usage.cost_usd is not None:
            self.add_value("cost", cell, usage.cost_usd / calls)
        if seconds is not None:
            self.add_value(f"{role} seconds", cell, seconds)

    def mean_item_characters(self, role: str, cell: Cell) -> dict[str, Span]:
        """Return the mean characters of each text of the items in calls of a role, where known."""
        sums = {kind: self._seen.get(f"{role} {kind}", {}).get(cell) for kind in ("item", "reference")}
        return {kind: exact(seen[1] / seen[0]) for kind, seen in sums.items() if seen is not None}

    def count_call(self, model: str, source: Source) -> None:
        self._calls.setdefault(model, Counter())[source] += 1

    def mean_observed_usd_per_call(self, model: str) -> float:
        """Return the mean cost of a call of the model; 0 if no call with a cost was seen."""
        costs = [seen for cell, seen in self._seen.get("cost", {}).items() if model_of(cell.model) == model]
        return sum(total for _, total in costs) / max(1, sum(items for items, _ in costs))

    def count_values(self, quantity: str, cell: Cell) -> int:
        return self._seen.get(quantity, {}).get(cell, (0, 0.0))[0]

    def describe_basis(self, model: str) -> str:
        """Say what a model's lengths are estimated from: ``3 records and 1 sample`` or ``rules of thumb``."""
        counts = self._calls.get(model, Counter())
        return " and ".join(pluralize(n, noun) for noun, n in counts.items()) or "rules of thumb"

    def predict(
        self,
        quantity: str,
        rules: Mapping[Cell, Span],
        seen_rules: Mapping[Cell, Span] = MappingProxyType({}),
    ) -> dict[Cell, Span]:
        """Predict a quantity for each cell of ``rules``. A cell that was seen: its rule of thumb times how
        far it was off. Another: times how far rules were off for the same model or task, else for all.
        ``seen_rules`` replace the rules of seen cells where those differ."""
        own: dict[Cell, tuple[int, float]] = {}
        ratios: dict[str, list[float]] = {}
        for cell, (items, total) in self._seen.get(quantity, {}).items():
            if (rule := seen_rules.get(cell, rules.get(cell))) is not None and rule.central > 0:
                own[cell] = items, total / items / rule.central
                for near in ("", f"task {cell.task}", f"model {cell.model}"):
                    ratios.setdefault(near, []).append(own[cell][1])
        predicted = dict(rules)
        anywhere = fmean(ratios.get("", [1.0]))
        for cell, rule in rules.items() if ratios else ():
            if cell in own:
                items, ratio = own[cell]
                predicted[cell] = (rule * ratio).clip_to(mean_range(items))
            else:
                nearby = ratios.get(f"task {cell.task}", []) + ratios.get(f"model {cell.model}", [])
                predicted[cell] = (rule * (fmean(nearby) if nearby else anywhere)).clip_to(SEEN_NEARBY)
        return predicted


# --- Prompts as they will be, but for texts that no model has written yet

# Characters of Latin script to a token: what OpenAI's guide to tokens says of English prose.
LATIN_PER_TOKEN = 4.0
_OTHER, _IDEOGRAPH = 2.2, 1.2  # Cyrillic, Greek, Arabic; Chinese, Japanese, Korean: by tiktoken's o200k_base
_IDEOGRAPHS = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\U00020000-\U0003ffff]")
_NOT_LATIN = re.compile(r"[^\x00-\u024f\u2000-\u206f]")


def estimate_tokens(text: str) -> float:
    """Estimate how many tokens a text takes, by its script."""
    ideographs = len(_IDEOGRAPHS.findall(text))
    others = len(_NOT_LATIN.findall(text)) - ideographs
    return (len(text) - ideographs - others) / LATIN_PER_TOKEN + others / _OTHER + ideographs / _IDEOGRAPH


# What a host adds to each message: who speaks, where it ends (3 or 4, says OpenAI's cookbook).
_MESSAGE_TOKENS = 4


class PromptSize(NamedTuple):
    """The mean size of some prompts: ``tokens`` of their known text, ``per_character`` the tokens of a
    character of text not written yet, ``times`` how often each such text occurs in a prompt. ``head`` and
    ``head_times`` are the same for the part that other prompts share."""

    tokens: float
    per_character: float
    times: Mapping[str, float]
    head: float
    head_times: Mapping[str, float]

    def prompt_tokens(self, texts: Mapping[str, Span]) -> Span:
        """Return the tokens of a prompt, given the characters of each text."""
        return PROMPT_FACTOR.widen(self._sum_tokens(self.tokens, self.times, texts))

    def head_tokens(self, texts: Mapping[str, Span]) -> Span:
        """Return the tokens of the shared head, given the characters of each text."""
        return self._sum_tokens(self.head, self.head_times, texts)

    def _sum_tokens(self, known_tokens: float, times: Mapping[str, float], texts: Mapping[str, Span]) -> Span:
        written = (texts[name] * (often * self.per_character) for name, often in times.items() if often)
        return sum(written, exact(known_tokens))


def measure_prompts(requests: Sequence[Request], placeholders: Mapping[str, str]) -> PromptSize:
    """Measure the mean size of requests in which ``marks`` (by name) stand for texts not written yet."""
    number = max(1, len(requests))

    def mean_counts(texts: Sequence[str]) -> dict[str, float]:
        return {name: sum(text.count(mark) for text in texts) / number for name, mark in placeholders.items()}

    def strip_marks(texts: Sequence[str]) -> str:
        return re.sub("|".join(placeholders.values()), "", "".join(texts)) if placeholders else "".join(texts)

    prompts = ["\n".join(message.content for message in request.messages) for request in requests]
    heads = [request.messages[-1].content[: request.shared] for request in requests]
    text, messages = strip_marks(prompts), sum(len(request.messages) for request in requests)
    tokens = estimate_tokens(text)
    return PromptSize(
        (tokens + _MESSAGE_TOKENS * messages) / number,
        tokens / len(text) if text else 1 / LATIN_PER_TOKEN,
        mean_counts(prompts),
        estimate_tokens(strip_marks(heads)) / number,
        mean_counts(heads),
    )
