"""IFEval: 541 prompts with 25 types of verifiable instructions (Zhou et al. 2023, arXiv:2311.07911)."""

from __future__ import annotations

from typing import ClassVar

from coeval.benchmarks.tasks.following import FollowingTask

PROMPTS = "ifeval/prompts"


class IFEval(FollowingTask):
    name: ClassVar[str] = "ifeval"
    assets: ClassVar[tuple[str, ...]] = (PROMPTS,)
    optional_assets: ClassVar[tuple[str, ...]] = ("nltk/punkt_tab",)
