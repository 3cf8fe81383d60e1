"""IFEval: 541 prompts with 25 types of verifiable instructions (Zhou et al. 2023, arXiv:2311.07911)."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from coeval.benchmarks.task_option import RESPONSES, TaskOption
from coeval.benchmarks.tasks.following_task import FollowingTask

PROMPTS = "ifeval/prompts"


class IFEval(FollowingTask):
    name: ClassVar[str] = "ifeval"
    assets: ClassVar[tuple[str, ...]] = (PROMPTS,)
    options: ClassVar[tuple[TaskOption, ...]] = (
        TaskOption(
            name="ifeval-input",
            kind=Path,
            help="Your own prompts, in place of the official ones.",
            fills=PROMPTS,
        ),
        TaskOption(
            name="ifeval-responses",
            kind=Path,
            help="Score these: JSONL of {key or prompt, response}. Asks nobody.",
            fills=RESPONSES,
        ),
    )
    optional_assets: ClassVar[tuple[str, ...]] = ("nltk/punkt_tab",)
