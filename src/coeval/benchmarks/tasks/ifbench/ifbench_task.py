"""IFBench: 300 prompts with 58 types of verifiable instructions (Pyatkin et al. 2025, arXiv:2507.02833)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from coeval.benchmarks.assets.checkout import checked_out
from coeval.benchmarks.task_option import RESPONSES, TaskOption
from coeval.benchmarks.tasks.following_task import FollowingTask

PROMPTS = "ifbench/prompts"

_FILES = {PROMPTS: "data/IFBench_test.jsonl"}
"""Asset → where it lies in a checkout."""
_CHECKOUT = Path(".external/IFBench")
_FOLDER = TaskOption(name="ifbench-dir", kind=Path, help="A checkout of IFBench, for its prompts.")


class IFBench(FollowingTask):
    name: ClassVar[str] = "ifbench"
    assets: ClassVar[tuple[str, ...]] = (PROMPTS,)
    options: ClassVar[tuple[TaskOption, ...]] = (
        _FOLDER,
        TaskOption(name="ifbench-input", kind=Path, help="Your own prompts.", fills=PROMPTS),
        TaskOption(name="ifbench-responses", kind=Path, help="As --ifeval-responses.", fills=RESPONSES),
    )
    optional_assets: ClassVar[tuple[str, ...]] = (
        "nltk/punkt_tab",
        "nltk/stopwords",
        "nltk/averaged_perceptron_tagger_eng",
    )

    @classmethod
    def given_files(cls, values: Mapping[str, Any]) -> dict[str, Path]:
        """Also of a checkout; where none is named, what the cache lacks is taken from ``.external/``."""
        if (folder := values[_FOLDER.name]) is not None:
            found = {asset: _FOLDER.existing(folder / path) for asset, path in _FILES.items()}
        else:
            found = checked_out(_CHECKOUT, _FILES)
        return found | super().given_files(values)
