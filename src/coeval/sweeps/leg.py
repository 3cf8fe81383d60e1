"""A leg: one checkpoint (or a shard of its prompts) answered by one server on one slot.

A leg is a process of its own, whoever starts it (the `local`, `ray` and `slurm` engines do): it reads
``leg.json`` from its folder, starts the server, asks for what is owed, and ends the server. In its folder it
keeps ``progress.json`` while it goes on, and ``result.json`` at its end. Judging is not a leg's affair.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from coeval.benchmarks.run.eval_spec import EvalSpec

__all__ = ["Leg", "LegEnd", "LegProgress", "LegResult", "LegState", "Server", "TaskAnswered"]

LegState: TypeAlias = Literal["reading", "starting", "asking", "restarting", "stopping", "ended"]
LegEnd: TypeAlias = Literal["done", "interrupted", "server_failed", "failed"]


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """A server that a leg starts. ``command`` is the template's, filled; ``url`` ends in ``/v1``.

    It is up when ``url``/models (or, where that is not there, /health beside it) answers 200. ``starts`` is
    how often it may be started in all, each time after a longer wait.
    """

    command: tuple[str, ...]
    url: str
    port: int
    environment: dict[str, str] = {}
    start_timeout_s: float = 1800.0
    starts: int = 4


class Leg(msgspec.Struct, frozen=True, kw_only=True):
    """What a leg is told. ``folder`` holds its files; ``server`` is None where the user runs one.

    ``evaluation`` is of mode ``inference``, with the tasks and samples that are owed, the checkpoint's
    identity, and an ``account`` below ``folder``. It names no credential: ``key_variable`` is the environment
    variable that holds the tested model's, if there is one.
    """

    name: str
    folder: Path
    evaluation: EvalSpec
    server: Server | None = None
    key_variable: str = ""


class TaskAnswered(msgspec.Struct, frozen=True, kw_only=True):
    """One task and sample: good answers of so many prompts (of the shard), and failed ones by kind."""

    task: str
    run: int
    prompts: int
    answers: int
    failed: dict[str, int] = {}


class LegProgress(msgspec.Struct, frozen=True, kw_only=True):
    """``progress.json``, replaced about once a second.

    ``done`` of ``planned`` answers stand, ``failed`` of them failed; ``output_tokens_per_s`` is the pace of
    the last minute, ``remaining_s`` what is left at that pace; ``tasks`` is done and planned by task.
    """

    at: float
    state: LegState
    done: int = 0
    planned: int = 0
    failed: int = 0
    output_tokens: int = 0
    output_tokens_per_s: float | None = None
    remaining_s: float | None = None
    starts: int = 0
    tasks: dict[str, tuple[int, int]] = {}


class LegResult(msgspec.Struct, frozen=True, kw_only=True):
    """``result.json``, written once, at the end. ``problem`` says why it is not ``done``, and the way out."""

    end: LegEnd
    tasks: tuple[TaskAnswered, ...] = ()
    problem: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    seconds: float = 0.0
