"""IFBench: 300 prompts with 58 types of verifiable instructions (Pyatkin et al. 2025, arXiv:2507.02833)."""

from __future__ import annotations

from typing import ClassVar

from coeval.benchmarks.tasks.following_task import FollowingTask

PROMPTS = "ifbench/prompts"


class IFBench(FollowingTask):
    name: ClassVar[str] = "ifbench"
    assets: ClassVar[tuple[str, ...]] = (PROMPTS,)
    optional_assets: ClassVar[tuple[str, ...]] = (
        "nltk/punkt_tab",
        "nltk/stopwords",
        "nltk/averaged_perceptron_tagger_eng",
    )
