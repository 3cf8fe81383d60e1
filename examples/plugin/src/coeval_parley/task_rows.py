"""The benchmark's row: its name, where its code is, and the flags that it brings."""

from __future__ import annotations

from coeval.benchmarks.task_registry import TaskOption, TaskRow

__all__ = ["SAY_THE_WORD", "TIMES"]

TIMES = TaskOption(
    name="say-the-word-times", kind=int, help="How often each answer is to use its word.", default=1
)

SAY_THE_WORD = TaskRow(name="say-the-word", place="coeval_parley.say_the_word:SayTheWord", options=(TIMES,))
