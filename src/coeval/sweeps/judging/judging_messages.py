"""What a sweep and its judging process say to each other: one JSON object a line."""

from __future__ import annotations

import os
from typing import TypeAlias

import msgspec

from coeval.benchmarks.run.eval_spec import EvalSpec
from coeval.core.errors import Undecodable
from coeval.core.foreign import decode, decoder

__all__ = [
    "ConcludeOrder",
    "ConcludeProgress",
    "Concluded",
    "JudgingMessage",
    "SampleConcluded",
    "read_message",
    "read_order",
    "written",
]


class ConcludeOrder(msgspec.Struct, frozen=True, kw_only=True):
    """A task of a checkpoint is to be judged and scored: ``evaluation`` is of mode ``conclude``."""

    name: str
    evaluation: EvalSpec


class SampleConcluded(msgspec.Struct, frozen=True, kw_only=True):
    """One sample: of so many prompts there is no good answer, and so many judgments are missing besides.
    ``problem`` says why there is no figure."""

    run: int
    unanswered: int = 0
    unscored: int = 0
    problem: str = ""


class ConcludeProgress(msgspec.Struct, frozen=True, kw_only=True, tag="progress"):
    """How far the judging of an order is: ``done`` of ``planned`` judgments stand, ``failed`` have failed."""

    name: str
    done: int = 0
    planned: int = 0
    failed: int = 0


class Concluded(msgspec.Struct, frozen=True, kw_only=True, tag="concluded"):
    """The end of an order. ``samples`` are those that were scored; ``problem`` says why others were not, or
    are to be tried again since the judge was away.

    ``cost_usd`` is what its judging has cost over all starts, None where that is not known.
    """

    name: str
    samples: tuple[SampleConcluded, ...] = ()
    problem: str = ""
    interrupted: bool = False
    cost_usd: float | None = None


JudgingMessage: TypeAlias = ConcludeProgress | Concluded

read_order = decoder(ConcludeOrder)
"""Of a line; raises Undecodable."""


class _Kind(msgspec.Struct, frozen=True):
    type: str = ""


def read_message(line: bytes) -> JudgingMessage | None:
    """None where the line is none, such as a warning that some package prints."""
    try:
        if decode(line, _Kind).type == "concluded":
            return decode(line, Concluded)
        return decode(line, ConcludeProgress)
    except Undecodable:
        return None


def written(message: ConcludeOrder | JudgingMessage) -> bytes:
    """The line."""
    return msgspec.json.encode(message, enc_hook=os.fspath) + b"\n"
