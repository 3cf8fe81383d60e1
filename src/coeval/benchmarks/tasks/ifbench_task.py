"""IFBench: 300 prompts with 58 types of verifiable instructions (Pyatkin et al. 2025, arXiv:2507.02833)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from coeval.benchmarks.assets.library import checked_out
from coeval.benchmarks.task_registry import IFBENCH_FOLDER
from coeval.benchmarks.tasks.following import FollowingTask

PROMPTS = "ifbench/prompts"

# Asset → where it lies in a checkout.
_FILES = {PROMPTS: "data/IFBench_test.jsonl"}
_CHECKOUT = Path(".external/IFBench")


class IFBench(FollowingTask):
    name: ClassVar[str] = "ifbench"
    assets: ClassVar[tuple[str, ...]] = (PROMPTS,)
    optional_assets: ClassVar[tuple[str, ...]] = (
        "nltk/punkt_tab",
        "nltk/stopwords",
        "nltk/averaged_perceptron_tagger_eng",
    )

    @classmethod
    def found_files(cls, values: Mapping[str, Any]) -> dict[str, Path]:
        """Find the files of a checkout; without one, those the cache lacks in ``.external/``."""
        if (folder := values[IFBENCH_FOLDER.name]) is None:
            return checked_out(_CHECKOUT, _FILES)
        return {asset: IFBENCH_FOLDER.existing(folder / path) for asset, path in _FILES.items()}
