"""Whose answers lie in the folder of a step: those of one checkpoint, known by its path and step."""

from __future__ import annotations

from collections.abc import Sequence

from coeval.benchmarks.run.task_folder import first_answer
from coeval.core.errors import UsageError
from coeval.store.output_folder import RESPONSES, task_folders
from coeval.sweeps.checkpoints import Checkpoint
from coeval.sweeps.sweep import Sweep

__all__ = ["refuse_others"]


def refuse_others(sweep: Sweep, checkpoints: Sequence[Checkpoint]) -> None:
    """
    Raises
    ------
    UsageError
        the folder of a step holds answers of another checkpoint; nothing is ever relabelled.
    """
    for checkpoint in checkpoints:
        output = sweep.out / checkpoint.name
        if not output.is_dir():
            continue
        for folder in task_folders(output)[:1]:
            first = first_answer(folder / RESPONSES)
            if first is not None and first.model not in ("", checkpoint.identity):
                raise UsageError(
                    f"{folder} holds answers of {first.model}, not of {checkpoint.identity}; sweep into "
                    "another folder (--out), or give the checkpoint that path"
                )
