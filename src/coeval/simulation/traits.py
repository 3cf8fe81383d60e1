"""Traits of a simulated model: the known truth that a measured ranking is compared with."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Annotated, Any, TypeAlias, get_type_hints

import msgspec

from coeval.core.errors import UsageError
from coeval.core.model import ModelSpec

_Share: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=1)]
_Signed: TypeAlias = Annotated[float, msgspec.Meta(ge=-1, le=1)]


class Traits(msgspec.Struct, frozen=True):
    """Traits of a simulated model, from its options.

    Student: ``skill`` is the mean hidden quality of its answers. Judge: ``severity`` is subtracted from what
    it perceives, ``noise`` is the standard deviation of its error, ``family_bias`` is added for answers of
    its own ``family``, ``position_bias`` for the first answer of a pair; with ``gullible`` above 0 it obeys
    an order for the best level outside the answer's block. Teacher: ``difficulty_spread`` is the standard
    deviation of item difficulty around 0.5; of items about passages, ``invented_quotes`` is the share whose
    evidence is made up, ``repeated_items`` the share that asks the same of a passage. Every role:
    ``verbosity`` scales lengths, ``malformed_rate`` and ``failure_rate`` are the shares of spoiled replies
    and failed calls. ``latency_s`` is the time to the first token, ``tokens_per_s`` the pace afterwards; 0
    means at once.
    """

    skill: _Share = 0.6
    severity: _Signed = 0.0
    noise: _Share = 0.1
    difficulty_spread: _Share = 0.2
    invented_quotes: _Share = 0.0
    repeated_items: _Share = 0.0
    verbosity: Annotated[float, msgspec.Meta(ge=0, le=100)] = 1.0
    position_bias: _Signed = 0.0
    family_bias: _Signed = 0.0
    gullible: _Share = 0.0
    malformed_rate: _Share = 0.0
    failure_rate: _Share = 0.0
    latency_s: Annotated[float, msgspec.Meta(ge=0, le=3600)] = 0.0
    tokens_per_s: Annotated[float, msgspec.Meta(ge=0, le=1_000_000)] = 0.0
    family: str = ""


RANGES: dict[str, tuple[float, float]] = {
    name: (hint.__metadata__[0].ge, hint.__metadata__[0].le)
    for name, hint in get_type_hints(Traits, include_extras=True).items()
    if name != "family"
}
"""The least and the largest value of each number."""

VARIED = frozenset({"skill"})
"""Traits that a variant of a student's prompt may set: what that prompt is worth, as a known truth."""

SAMPLING = frozenset({
    "do_sample", "frequency_penalty", "length_penalty", "logit_bias", "logprobs",
    "max_completion_tokens", "max_new_tokens", "max_output_tokens", "max_tokens", "min_p", "min_tokens",
    "n", "num_ctx", "num_predict", "presence_penalty", "reasoning", "reasoning_effort",
    "repeat_penalty", "repetition_penalty", "seed", "service_tier", "stop", "stop_sequences",
    "temperature", "thinking", "top_a", "top_k", "top_logprobs", "top_p", "typical_p", "user",
})  # fmt: skip
"""Sampling parameters accepted as by providers; only length limits and stop sequences have an effect, so that
an experiment can be tried unchanged."""


def name_family(model: str) -> str:
    """Return a model's family: its name up to the first ``-``, ``:`` or digit.

    >>> name_family("sim-large"), name_family("llama3:8b") ('sim', 'llama')
    """
    head = re.match(r"[^-:\d]+", model)
    return head.group() if head else model


def parse_traits(spec: ModelSpec) -> Traits:
    """Parse ``spec.options``; raises UsageError: an option is unknown, no number, or out of range."""
    family = spec.options.get("family", name_family(spec.model))
    if not isinstance(family, str) or not family:
        raise UsageError(f"simulated model {spec.name}: family must be a name; it is {family!r}")
    numbers = {
        option: _check_option_and_number(spec.name, option, value)
        for option, value in spec.options.items()
        if option != "family"
    }
    return Traits(family=family, **numbers)


def _check_option_and_number(model: str, option: str, value: Any) -> float:
    if option not in RANGES:
        options = [*RANGES, "family"]
        close = get_close_matches(option, options, n=1)
        hint = f"did you mean {close[0]}?" if close else f"the options are {', '.join(options)}"
        raise UsageError(f"simulated model {model}: no option is called {option!r}; {hint}")
    low, high = RANGES[option]
    # A boolean is an int to Python, but `skill: true` is a slip.
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise UsageError(
            f"simulated model {model}: {option} must be a number from {low:g} to {high:g}; it is {value!r}"
        )
    return float(value)


def parse_model_option(text: str, defaults: Mapping[str, float] | None = None) -> ModelSpec:
    """Parse ``NAME`` or ``NAME:option=value,…`` of the command line. A name may contain a colon
    (``llama3:8b``): options begin at the first colon followed by ``word=``; ``defaults`` go first. Raises
    UsageError: no name, an option without a value or given twice, or as `parse_traits`."""
    cut = re.search(r":\s*\w*\s*=", text)
    name = (text[: cut.start()] if cut else text).strip()
    pairs = text[cut.start() + 1 :].split(",") if cut else []
    if not name:
        raise UsageError(f"{text!r} names no model; write NAME or NAME:skill=0.8,noise=0.1")
    tail = name.rpartition(":")[2].strip()
    if tail in (*RANGES, "family", ""):
        raise UsageError(f"{text!r}: an option needs a value; write NAME:skill=0.8,noise=0.1")
    options: dict[str, Any] = {}
    for pair in pairs:
        option, equals, value = (part.strip() for part in pair.partition("="))
        if not (option and equals and value):
            raise UsageError(f"{text!r}: {pair!r} is not OPTION=VALUE; write NAME:skill=0.8,noise=0.1")
        if option in options:
            raise UsageError(f"{text!r}: {option} is given twice; keep one of them")
        options[option] = value if option == "family" else _parse_number(value)
    spec = ModelSpec(name=name, interface="simulated", model=name, options={**(defaults or {}), **options})
    parse_traits(spec)
    return spec


def _parse_number(value: str) -> float | str:
    """Parse a number, or return the text itself, for `parse_traits` to refuse."""
    try:
        return float(value)
    except ValueError:
        return value
