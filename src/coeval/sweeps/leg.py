"""A leg: one checkpoint (or a shard of its prompts) answered by one server on one slot.

A leg is a process of its own, whoever starts it (the `local`, `ray` and `slurm` engines do): it reads
``leg.json`` from its folder, starts the server, asks for what is owed, and ends the server. In its folder it
keeps ``progress.json`` while it goes on, and ``result.json`` at its end. Judging is not a leg's affair.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from coeval.benchmarks.run.eval_spec import EvalSpec
from coeval.core.errors import UsageError

__all__ = ["Leg", "LegEnd", "LegProgress", "LegResult", "LegState", "Server", "TaskAnswered"]

LegState: TypeAlias = Literal["reading", "starting", "asking", "restarting", "stopping", "ended"]
LegEnd: TypeAlias = Literal["done", "interrupted", "server_failed", "failed"]


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """A server that a leg starts: ``template`` is its command (see `servers.server_command`), which the leg
    fills with the other fields.

    ``name`` is what it is to serve the checkpoint as. ``gpus`` are those it may use, all that the leg sees
    where none is named. With ``port`` 0 the leg takes a free one, anew for each start. ``environment`` goes
    over the leg's own; it holds no credential, since it stands in ``leg.json``. Of the leg's credentials the
    server gets those whose variables are ``passed``, or named in the command. ``starts`` is how often it may
    be started in all; ``wait_s`` is waited before the second one, and longer before each further one.
    """

    template: str
    checkpoint: str
    name: str
    gpus: tuple[str, ...] = ()
    tp_size: int = 1
    port: int = 0
    environment: dict[str, str] = {}
    passed: tuple[str, ...] = ()
    start_timeout_s: float = 1800.0
    starts: int = 4
    wait_s: float = 5.0


class Leg(msgspec.Struct, frozen=True, kw_only=True):
    """What a leg is told. ``folder`` holds its files; ``server`` is None where the user runs one.

    ``evaluation`` is of mode ``inference``, with the tasks and samples that are owed, the checkpoint's
    identity, and an ``account`` below ``folder``; the leg puts in the address of the server that it starts.
    It names no credential: ``key_variable`` is the environment variable that holds the tested model's, if
    there is one. ``logs`` is a folder where both logs can be found too, under the leg's name. ``start`` is
    this attempt's own: what a leg of an earlier start tells late in the same folder is not this one's. A
    server that lists its models and not the tested one is refused, unless its name is ``vouched`` for.
    """

    name: str
    folder: Path
    evaluation: EvalSpec
    server: Server | None = None
    key_variable: str = ""
    logs: Path | None = None
    start: str = ""
    vouched: bool = False

    def key_of(self, environment: Mapping[str, str]) -> str | None:
        """The tested model's credential; raises UsageError where it is none that can be sent."""
        key = environment.get(self.key_variable, "").strip() if self.key_variable else ""
        if not key.isprintable():
            raise UsageError(f"{self.key_variable} holds a line break or the like; check the key in it")
        return key or None


class TaskAnswered(msgspec.Struct, frozen=True, kw_only=True):
    """One task and sample: good answers of so many prompts (of the shard), and failed ones by kind."""

    task: str
    run: int
    prompts: int
    answers: int
    failed: dict[str, int] = {}


class LegProgress(msgspec.Struct, frozen=True, kw_only=True):
    """``progress.json``, replaced about once a second.

    Of ``planned`` answers ``done`` stand; ``failed`` have failed since the leg began, and are asked again by
    another leg. ``output_tokens_per_s`` is the pace of the last minute, ``remaining_s`` what is left at that
    pace; ``tasks`` is done and planned by task and sample. ``message`` is what is worth a line: while the
    server starts, the last line that it wrote. ``at`` is seconds since 1970.
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
    message: str = ""


class LegResult(msgspec.Struct, frozen=True, kw_only=True):
    """``result.json``, written once, at the end. ``problem`` says why it is not ``done``, and the way out.

    ``done``: each prompt has been asked, and has an answer or a failure. Tokens are those of this leg, and
    ``start`` is its.
    """

    end: LegEnd
    start: str = ""
    tasks: tuple[TaskAnswered, ...] = ()
    problem: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    seconds: float = 0.0
    starts: int = 0
