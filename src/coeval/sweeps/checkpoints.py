"""The checkpoints of a training run: which there are, and whether one is whole.

A checkpoint is known by its path and its step, whatever name it is served under.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path

import msgspec

from coeval.core.errors import Undecodable, UsageError
from coeval.core.foreign import decode
from coeval.store.jsonl import store_error

__all__ = [
    "Checkpoint",
    "Pattern",
    "find_checkpoints",
    "is_whole",
    "newest_file",
    "refuse_doubles",
    "what_lacks",
]

STEP = "{step}"
_WEIGHTS = ("*.safetensors", "*.bin", "*.gguf", "*.pt")
_INDEX = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
_PARTIAL = (".tmp", ".part", ".incomplete", ".partial")


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """``path`` is a folder, or the name of a model at a hub; ``step`` counts training steps, 0 the base."""

    step: int
    path: str

    @property
    def identity(self) -> str:
        """What its answers are recorded as being of."""
        return f"{self.path}@{self.step}"

    @property
    def name(self) -> str:
        """Its folder in the output."""
        return f"step_{self.step}"


class Pattern:
    """Where checkpoints lie below a folder: ``global_step_{step}/actor_hf``, ``step_{step}``.

    Raises
    ------
    UsageError
        the pattern has no ``{step}``, or leads out of the folder.
    """

    def __init__(self, text: str) -> None:
        parts = Path(text).parts
        if text.count(STEP) != 1 or Path(text).is_absolute() or ".." in parts:
            raise UsageError(
                f"{text!r} is no pattern of checkpoints: it is to be a path below their folder with "
                f"{STEP} once in it, such as global_step_{STEP}/actor_hf"
            )
        self.text = text
        self._parts = parts
        self._at = next(number for number, part in enumerate(parts) if STEP in part)

    def path_of(self, folder: Path, step: int) -> Path:
        return folder / self.text.replace(STEP, str(step))

    def found_in(self, folder: Path) -> dict[int, Path]:
        """What there is below a folder, by step, in no order. Steps may be written with zeros before them.

        Raises
        ------
        StoreError
            the folder cannot be looked into.
        """
        above = folder.joinpath(*self._parts[: self._at])
        before, after = map(re.escape, self._parts[self._at].split(STEP))
        wanted = re.compile(f"{before}([0-9]+){after}")
        try:
            names = [entry.name for entry in above.iterdir()]
        except OSError as error:
            raise store_error("read", above, error) from error
        found: dict[int, Path] = {}
        for name in sorted(names, key=len, reverse=True):  # of step_010 and step_10 the last one counts
            step = wanted.fullmatch(name)
            path = above.joinpath(name, *self._parts[self._at + 1 :])
            if step and path.is_dir():
                found[int(step[1])] = path
        return found


def find_checkpoints(folder: Path, pattern: Pattern, steps: Collection[int] = ()) -> list[Checkpoint]:
    """The checkpoints of ``steps``, or all that are there and whole, in order of their steps.

    Raises
    ------
    UsageError
        one of ``steps`` is not there.
    StoreError
        the folder cannot be looked into.
    """
    there = pattern.found_in(folder)
    if not steps:
        found = [Checkpoint(step=step, path=str(there[step])) for step in sorted(there)]
        return [checkpoint for checkpoint in found if is_whole(Path(checkpoint.path))]
    for step in sorted(set(steps)):
        if step not in there:
            known = ", ".join(map(str, sorted(there)[:20])) + (", …" if len(there) > 20 else "")
            raise UsageError(
                f"{pattern.path_of(folder, step)} is not there; steps below {folder} by {pattern.text}: "
                f"{known or 'none'}"
            )
    return [Checkpoint(step=step, path=str(there[step])) for step in sorted(set(steps))]


def refuse_doubles(checkpoints: Sequence[Checkpoint]) -> None:
    """Raises UsageError where two checkpoints have one step, and so one folder."""
    by_step: dict[int, Checkpoint] = {}
    for checkpoint in checkpoints:
        other = by_step.setdefault(checkpoint.step, checkpoint)
        if other is not checkpoint:
            raise UsageError(
                f"step {checkpoint.step} is given twice: {other.path} and {checkpoint.path}; "
                "give each its own step, or sweep them into two output folders"
            )


def is_whole(folder: Path) -> bool:
    """Whether a checkpoint has been written to its end, as far as its files say."""
    return what_lacks(folder) is None


def what_lacks(folder: Path) -> str | None:
    """What a checkpoint lacks to be whole; None: it has a configuration, weights, and all files that an index
    of weights names, and none is being written."""
    try:
        names = {entry.name for entry in folder.iterdir()}
    except OSError as error:
        return f"it cannot be read ({error.strerror})"
    if "config.json" not in names:
        return "it has no config.json"
    if being_written := sorted(name for name in names if name.endswith(_PARTIAL)):
        return f"{being_written[0]} is being written"
    indices = [folder / name for name in _INDEX if name in names]
    for index in indices:
        try:
            parts = decode(index.read_bytes(), _WeightIndex).weight_map.values()
        except (OSError, Undecodable):
            return f"{index.name} cannot be read"
        if absent := sorted(set(parts) - names):
            return f"{absent[0]}, which {index.name} names, is not there"
    if indices or any(any(folder.glob(pattern)) for pattern in _WEIGHTS):
        return None
    return "it has no weights"


def newest_file(folder: Path) -> float:
    """When a file of a checkpoint was last written, in seconds since 1970; 0 for a model at a hub."""
    try:
        return max((entry.stat().st_mtime for entry in folder.iterdir()), default=0.0)
    except OSError:
        return 0.0


class _WeightIndex(msgspec.Struct):
    weight_map: dict[str, str] = {}
