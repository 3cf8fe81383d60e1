"""Lengths that calls are estimated by: means of what was seen, else rules of thumb, each with its range.

A figure is worked out three times at once (`Span`): as expected, with all that is unknown short, and with all
of it long. How far the ends lie apart is one factor for each source of a length.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
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

    @property
    def ends(self) -> tuple[float, float, float]:
        return self.central, self.low, self.high

    def within(self, factor: Factor) -> Span:
        """The part of the range that is not beyond a factor's."""
        most = factor.about(self.central)
        return Span(self.central, max(self.low, most.low), min(self.high, most.high))

    def up_to(self, limit: float | None) -> Span:
        return self if limit is None else Span(*(min(figure, limit) for figure in self.ends))


def exact(figure: float) -> Span:
    return Span(figure, figure, figure)


def each(function: Callable[..., float], *spans: Span) -> Span:
    """Apply a function as expected, at the low ends and at the high ends."""
    central, *ends = (function(*figures) for figures in zip(*(span.ends for span in spans), strict=True))
    return Span(central, min(central, *ends), max(central, *ends))


# --- How far each source of a length may be off. The factors are set on the 100 random experiments of
# tests/pipeline/test_estimate_holds.py, each estimated and then run: the range of the whole cost is to hold
# the true one in 95 of 100, and to be no wider than it must (docs/decisions/0012-a-plain-estimate.md)


class Factor(NamedTuple):
    """The ends of a range, as shares of what is expected."""

    low: float
    high: float

    def about(self, expected: float) -> Span:
        return self.widen(exact(expected))

    def widen(self, span: Span) -> Span:
        return Span(span.central, span.low * self.low, span.high * self.high)


# Rules are of large models. Terse ones, as simulated models are, write a third: the whole cost was 0.51 to
# 0.69 of what was expected, and a low end of 0.35 missed 2 of 100. Beyond 1.5 the range were wider than 3.
RULE_OF_THUMB = Factor(1 / 3, 1.5)
# What the same model wrote at another task, or another model at this one: 1.20 missed 3 of 100.
SEEN_NEARBY = Factor(1 / 1.25, 1.25)
# Tokens of a known text: tokenizers of large models take 3.6 to 4.4 characters of English prose to a token.
OF_PROMPTS = Factor(1 / 1.1, 1.1)
# Hosts of one model differ by so much in speed, and one host by so much within a day; time is no money.
OF_TIMES = Factor(1 / 3, 3.0)


def of_mean(items: int) -> Factor:
    """Return the factor of a mean over so many records or samples. Texts of a model at a task lie apart by a
    fifth (standard deviation over mean: 0.1 to 0.25); 3% are for what a whole run has and its first items
    have not. With 0.15 in the place of 0.2, 2 of 100 were missed."""
    factor = 1.03 + 0.2 / sqrt(items)
    return Factor(1 / factor, factor)


class Cell(NamedTuple):
    """A model at a task."""

    task: str
    model: str


Source: TypeAlias = Literal["record", "sample"]


class Lengths:
    """Means of what records and samples show, by quantity (``answer``, ``judge input``) and cell. Texts are
    in characters; input and output are tokens of a call, and seconds are a call's. Beside the input stand the
    texts that it held, where they are known: a few items may be shorter or longer than most."""

    def __init__(self) -> None:
        self._seen: dict[str, dict[Cell, tuple[int, float]]] = {}
        self._calls: dict[str, Counter[str]] = {}
        self._items: dict[str, Mapping[str, int]] = {}

    def know_item(self, item: str, texts: Mapping[str, int]) -> None:
        """Keep how long an item's texts are, for the calls about it."""
        self._items[item] = texts

    def add(self, quantity: str, cell: Cell, value: float) -> None:
        cells = self._seen.setdefault(quantity, {})
        items, total = cells.get(cell, (0, 0.0))
        cells[cell] = items + 1, total + value

    def add_call(
        self, role: str, cell: Cell, usage: Usage | None, seconds: float | None, calls: int, item: str = ""
    ) -> None:
        """Add a record's tokens and seconds, as those of each of its ``calls``, which are about an item."""
        if usage is not None and usage.input_tokens and not usage.uncounted:
            self.add(f"{role} input", cell, usage.input_tokens / calls)
            self.add(f"{role} output", cell, usage.output_tokens / calls)
            for kind, characters in self._items.get(item, {}).items():
                self.add(f"{role} {kind}", cell, characters)
        if usage is not None and usage.cost_usd is not None:
            self.add("cost", cell, usage.cost_usd / calls)
        if seconds is not None:
            self.add(f"{role} seconds", cell, seconds)

    def shown(self, role: str, cell: Cell) -> dict[str, Span]:
        """The mean of each text of the items that calls of a role were about, where known."""
        seen = {kind: self._seen.get(f"{role} {kind}", {}).get(cell) for kind in ("item", "reference")}
        return {kind: exact(found[1] / found[0]) for kind, found in seen.items() if found is not None}

    def count(self, model: str, source: Source) -> None:
        """Count a call of the model as seen."""
        self._calls.setdefault(model, Counter())[source] += 1

    def mean_usd(self, model: str) -> float:
        """What a call of the model has cost in the mean; 0 where none was seen that cost something."""
        found = [seen for cell, seen in self._seen.get("cost", {}).items() if model_of(cell.model) == model]
        return sum(total for _, total in found) / max(1, sum(items for items, _ in found))

    def items(self, quantity: str, cell: Cell) -> int:
        return self._seen.get(quantity, {}).get(cell, (0, 0.0))[0]

    def basis(self, model: str) -> str:
        """Say what a model's lengths are taken from."""
        counts = self._calls.get(model, Counter())
        return " and ".join(pluralize(n, noun) for noun, n in counts.items()) or "rules of thumb"

    def expected(
        self, quantity: str, rules: Mapping[Cell, Span], of_seen: Mapping[Cell, Span] = MappingProxyType({})
    ) -> dict[Cell, Span]:
        """Return what is to be expected of every cell: its rule of thumb, times how far it was off where the
        cell was seen; else times how far rules were off where the same model or the same task was seen.
        ``of_seen`` are the rules of what was seen, where that differs."""
        own: dict[Cell, tuple[int, float]] = {}
        off: dict[str, list[float]] = {}
        for cell, (items, total) in self._seen.get(quantity, {}).items():
            if (rule := of_seen.get(cell, rules.get(cell))) is not None and rule.central > 0:
                own[cell] = items, total / items / rule.central
                for near in ("", f"task {cell.task}", f"model {cell.model}"):
                    off.setdefault(near, []).append(own[cell][1])
        found = dict(rules)
        anywhere = fmean(off.get("", [1.0]))
        for cell, rule in rules.items() if off else ():
            if cell in own:
                items, ratio = own[cell]
                found[cell] = (rule * ratio).within(of_mean(items))
            else:
                nearby = off.get(f"task {cell.task}", []) + off.get(f"model {cell.model}", [])
                found[cell] = (rule * (fmean(nearby) if nearby else anywhere)).within(SEEN_NEARBY)
        return found


# --- Prompts as they will be, but for texts that no model has written yet

# Characters of Latin script to a token: what OpenAI's guide to tokens says of English prose.
LATIN_PER_TOKEN = 4.0
_OTHER, _IDEOGRAPH = 2.2, 1.2  # Cyrillic, Greek, Arabic; Chinese, Japanese, Korean: by tiktoken's o200k_base
_IDEOGRAPHS = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\U00020000-\U0003ffff]")
_NOT_LATIN = re.compile(r"[^\x00-\u024f\u2000-\u206f]")


def token_count(text: str) -> float:
    """Estimate how many tokens a text takes, by its script."""
    ideographs = len(_IDEOGRAPHS.findall(text))
    others = len(_NOT_LATIN.findall(text)) - ideographs
    return (len(text) - ideographs - others) / LATIN_PER_TOKEN + others / _OTHER + ideographs / _IDEOGRAPH


# What a host adds to each message: who speaks, where it ends (3 or 4, says OpenAI's cookbook).
_MESSAGE_TOKENS = 4


class PromptSize(NamedTuple):
    """The mean of some prompts: ``tokens`` of what is known of them, ``per_character`` those of a character
    of texts that are not there yet, and ``times`` how often each of these stands in a prompt. ``head`` and
    ``head_times`` are those of the part that other prompts begin with as well."""

    tokens: float
    per_character: float
    times: Mapping[str, float]
    head: float
    head_times: Mapping[str, float]

    def prompt(self, texts: Mapping[str, Span]) -> Span:
        """Tokens with texts of so many characters."""
        return OF_PROMPTS.widen(self._with(self.tokens, self.times, texts))

    def shared(self, texts: Mapping[str, Span]) -> Span:
        """Tokens of the head with texts of so many characters."""
        return self._with(self.head, self.head_times, texts)

    def _with(self, known: float, times: Mapping[str, float], texts: Mapping[str, Span]) -> Span:
        written = (texts[name] * (often * self.per_character) for name, often in times.items() if often)
        return sum(written, exact(known))


def prompt_size(requests: Sequence[Request], marks: Mapping[str, str]) -> PromptSize:
    """Measure requests in which ``marks``, by name, stand in the place of texts that are not there yet."""
    number = max(1, len(requests))

    def times(texts: Sequence[str]) -> dict[str, float]:
        return {name: sum(text.count(mark) for text in texts) / number for name, mark in marks.items()}

    def known(texts: Sequence[str]) -> str:
        return re.sub("|".join(marks.values()), "", "".join(texts)) if marks else "".join(texts)

    prompts = ["\n".join(message.content for message in request.messages) for request in requests]
    heads = [request.messages[-1].content[: request.shared] for request in requests]
    text, messages = known(prompts), sum(len(request.messages) for request in requests)
    tokens = token_count(text)
    return PromptSize(
        (tokens + _MESSAGE_TOKENS * messages) / number,
        tokens / len(text) if text else 1 / LATIN_PER_TOKEN,
        times(prompts),
        token_count(known(heads)) / number,
        times(heads),
    )
