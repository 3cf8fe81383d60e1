"""Options of a run in the user's words: flags on a command line, keywords in Python.

A message that suggests one holds an `Option`, whose text depends on the caller: ``f"use {CONTINUE} to go
on"``. A command line declares itself once at its start (`word_messages_for`); the default is Python.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import Enum
from typing import Literal, TypeAlias

ProbeMode: TypeAlias = Literal["full", "answer", "resume", "disable"]


class Frontend(Enum):
    """A user interface: a command line or Python."""

    PYTHON = "python"
    COEVAL = "coeval"
    EVAL_FRAMEWORK = "eval-framework"
    SWEEP = "coeval sweep"


_face: ContextVar[Frontend] = ContextVar("face", default=Frontend.PYTHON)


@contextmanager
def word_messages_for(frontend: Frontend) -> Iterator[None]:
    """Make messages in this context, and in tasks started in it, use the words of ``frontend``."""
    token = _face.set(frontend)
    try:
        yield
    finally:
        _face.reset(token)


@dataclass(frozen=True, slots=True)
class Option:
    """A flag of ``coeval``, with its keyword in Python and its flag of ``eval-framework`` where that differs.

    ``coeval sweep`` speaks as ``eval-framework`` does unless ``sweep`` is given; empty: it has none.
    """

    flag: str
    keyword: str
    evaluation: str = ""
    sweep: str | None = None

    def __str__(self) -> str:
        match _face.get():
            case Frontend.PYTHON:
                return self.keyword
            case Frontend.EVAL_FRAMEWORK:
                return self.evaluation or self.flag
            case Frontend.SWEEP:
                return (self.evaluation or self.flag) if self.sweep is None else self.sweep
            case Frontend.COEVAL:
                return self.flag


CONTINUE = Option("--continue", "continue_run=True", "the same command")
OVERWRITE = Option("--overwrite", "overwrite=True")
REDO_CHANGED = Option("--redo-changed", 'changed="redo"')
KEEP_CHANGED = Option("--keep-changed", 'changed="keep"')
ALLOW_UNSANDBOXED = Option("--allow-unsandboxed", "allow_unsandboxed=True")
ONLY_MODELS = Option("--only-models", "only_models")
BASE_URL = Option("parameters.base_url", "parameters.base_url", "--base-url (a judge's: --judge-base-url)")
ACCESS_KEY = Option("access_key", "access_key", "--api-key (a judge's: --judge-api-key)")
TIMEOUT = Option("parameters.timeout_s", "parameters.timeout_s", "--timeout")
DEVICE = Option("device: cpu", "device: cpu", "--device cpu")
KEYS = Option("--keys", "keys")
BATCH = Option("--batch and --judge-batch", "batched", "--batch and --judge-batch", "--judge-batch")
BATCH_OFF = Option(
    "batch_enabled: false",
    "batch_enabled: false",
    "leave out --batch and --judge-batch",
    "leave out --judge-batch",
)
PROBE_OFF = Option("--probe disable", "probe_mode: disable in the section experiment", sweep="")
NO_SAMPLES = Option("--estimate-samples 0", "estimate_samples: 0 in the section experiment")
PROBE_WARNS = Option("--probe-on-fail warn", "probe_on_fail: warn in the section experiment", sweep="")
STUDENTS = Option("--students", "students")
TASK_OPTION = Option("--task-option", "task_options")
NO_JUDGE = Option("--no-judge", "judge=False")
BUDGET = Option("experiment.budget_usd", "experiment.budget_usd", "--budget-usd")


def spell(name: str) -> str:
    """Return a setting's name for the current frontend: ``--judge-only`` or, in Python, ``judge_only``."""
    return name if _face.get() is Frontend.PYTHON else f"--{name.replace('_', '-')}"


def max_tokens(*, judge: bool) -> Option:
    """Name the setting that limits answers, or judgments."""
    key = "parameters.max_tokens"
    return Option(key, key, "--judge-max-tokens" if judge else "--max-tokens")


def max_calls(model: str) -> Option:
    """Name the setting that limits a model's requests."""
    key = f"experiment.quota.{model}.max_calls"
    return Option(key, key, "--max-calls")


def max_cost(model: str) -> Option:
    """Name the setting that limits a model's cost."""
    key = f"experiment.quota.{model}.max_cost_usd"
    return Option(key, key, "--budget-usd")
