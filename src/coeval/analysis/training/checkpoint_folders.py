"""Where the checkpoints of a training run lie: one output folder of ``eval-framework`` for each."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from glob import escape
from pathlib import Path
from typing import NamedTuple

from coeval.core.errors import UsageError
from coeval.core.text import listed
from coeval.store.jsonl import store_error
from coeval.store.output_folder import task_folders

STEP = "{step}"
PATTERN = f"step_{STEP}"


class EvaluatedStep(NamedTuple):
    """A step of training, and the output folder of what was evaluated there."""

    step: int
    folder: Path


def evaluated_steps(
    root: Path, pattern: str = PATTERN, steps: Collection[int] | None = None
) -> tuple[EvaluatedStep, ...]:
    """The checkpoints below ``root`` whose folders hold results, by step; ``steps``: of these only.

    Parameters
    ----------
    pattern : the folders' name or path below ``root``, with ``{step}`` once

    Raises
    ------
    UsageError
        the pattern cannot be used, nothing fits it, or two folders are of one step.
    StoreError
        a folder cannot be looked into.
    """
    if pattern.count(STEP) != 1 or Path(pattern).is_absolute() or ".." in Path(pattern).parts:
        raise UsageError(f"{pattern!r} is no pattern of folders: it holds {STEP} once, as {PATTERN} does")
    if not root.is_dir():
        raise UsageError(f"there is no folder {root}")
    before, after = pattern.split(STEP)
    wanted = re.compile(re.escape(before) + r"(\d+)" + re.escape(after))
    try:
        paths = sorted(root.glob(f"{escape(before)}*{escape(after)}"))
    except OSError as error:
        raise store_error("read", root, error) from error
    found: dict[int, Path] = {}
    for path in paths:
        step_of = wanted.fullmatch(path.relative_to(root).as_posix())
        if step_of is None or not task_folders(path):
            continue
        step = int(step_of[1])
        if step in found:
            raise UsageError(f"{found[step]} and {path} are both of step {step}; move one of them away")
        found[step] = path
    if not found:
        raise UsageError(
            f"{root} holds no results in folders {pattern}; name theirs with --name-pattern, for example "
            f"--name-pattern 'global_step_{STEP}'"
        )
    if steps is not None and not found.keys() & set(steps):
        raise UsageError(
            f"{root} holds results of none of the steps {listed(map(str, steps))}; "
            f"there are {listed(map(str, sorted(found)))}"
        )
    chosen = found.keys() if steps is None else found.keys() & set(steps)
    return tuple(EvaluatedStep(step, found[step]) for step in sorted(chosen))


def require_base(base: int | None, checkpoints: Sequence[EvaluatedStep], root: Path) -> None:
    """
    Raises
    ------
    UsageError
        the step that others are to be held against is not there.
    """
    steps = [checkpoint.step for checkpoint in checkpoints]
    if base is not None and base not in steps:
        raise UsageError(
            f"--base {base}: {root} holds no results of this step; there are {listed(map(str, steps))}"
        )


def task_names(checkpoints: Sequence[EvaluatedStep]) -> tuple[str, ...]:
    """The tasks of any of them, by name."""
    return tuple(
        sorted({task.name for checkpoint in checkpoints for task in task_folders(checkpoint.folder)})
    )
