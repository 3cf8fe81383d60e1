"""The checkpoints of a training run: which there are, and whether one is whole.

A checkpoint is known by its path and its step, whatever name it is served under.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from coeval.core.errors import StoreError, Undecodable, UsageError
from coeval.core.foreign import decode
from coeval.core.text import digest
from coeval.store.jsonl import read_json, store_error

STEP = "{step}"
ADAPTER = "adapter_config.json"
"""What makes a folder a LoRA adapter, which is served on its base model."""
_WEIGHTS = ("*.safetensors", "*.bin", "*.gguf", "*.pt")
_INDEX = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
_PARTIAL = (".tmp", ".part", ".incomplete", ".partial")


# What trainers put beside a model for themselves; other ranks may still be writing it when one submits.
_TRAINING_STATE = ("optimizer", "scheduler", "rng_state", "trainer_state", "training_args", "scaler")


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``path`` is a folder, or the name of a model at a hub; ``step`` counts training steps, 0 the base.
    ``content`` is the `hash_file_stamps` of a submitted one, which changes when its folder is overwritten."""

    step: int
    path: str
    content: str = ""

    @property
    def path_and_step(self) -> str:
        return f"{self.path}@{self.step}"

    @property
    def identity(self) -> str:
        """Return the name under which its answers are recorded."""
        return f"{self.path_and_step}#{self.content}" if self.content else self.path_and_step

    @property
    def name(self) -> str:
        return f"step_{self.step}"


def find_step_folders(folder: Path, pattern: str) -> dict[int, Path]:
    """Find the folders that match a pattern such as ``global_step_{step}/actor_hf``, by step. Steps may have
    leading zeros. Raises UsageError: the pattern has no ``{step}``, or leads out of the folder;
    StoreError: the folder cannot be read."""
    parts = Path(pattern).parts
    if pattern.count(STEP) != 1 or Path(pattern).is_absolute() or ".." in parts:
        raise UsageError(
            f"{pattern!r} is not a pattern of checkpoints: it is to be a path below their folder with "
            f"{STEP} once in it, such as global_step_{STEP}/actor_hf"
        )
    at = next(number for number, part in enumerate(parts) if STEP in part)
    above = folder.joinpath(*parts[:at])
    before, after = map(re.escape, parts[at].split(STEP))
    folder_name = re.compile(f"{before}([0-9]+){after}")
    try:
        names = [entry.name for entry in above.iterdir()]
    except OSError as error:
        raise store_error("read", above, error) from error
    by_step: dict[int, Path] = {}
    for name in sorted(names, key=len, reverse=True):  # of step_010 and step_10 the last one counts
        step = folder_name.fullmatch(name)
        path = above.joinpath(name, *parts[at + 1 :])
        if step and path.is_dir():
            by_step[int(step[1])] = path
    return by_step


def find_whole_or_named(
    folder: Path, pattern: str, steps: Collection[int] = (), *, to_merge: bool = False
) -> list[Checkpoint]:
    """Find the checkpoints of ``steps``, or all whole ones, in order of their steps. Raises UsageError: one
    of ``steps`` is absent; StoreError: the folder cannot be read."""
    by_step = find_step_folders(folder, pattern)
    if absent := sorted(set(steps) - by_step.keys()):
        present = ", ".join(map(str, sorted(by_step)[:20])) + (", …" if len(by_step) > 20 else "")
        path = folder / pattern.replace(STEP, str(absent[0]))
        raise UsageError(f"{path} is not there; steps below {folder} by {pattern}: {present or 'none'}")
    return [
        Checkpoint(step=step, path=str(path))
        for step, path in sorted(by_step.items())
        if (step in steps if steps else to_merge or why_incomplete(path) is None)
    ]


def refuse_duplicate_steps(checkpoints: Sequence[Checkpoint]) -> None:
    """Raise UsageError if two checkpoints have one step, and so one folder."""
    by_step: dict[int, Checkpoint] = {}
    for checkpoint in checkpoints:
        other = by_step.setdefault(checkpoint.step, checkpoint)
        if other is not checkpoint:
            raise UsageError(
                f"step {checkpoint.step} is given twice: {other.path} and {checkpoint.path}; "
                "give each its own step, or sweep them into two output folders"
            )


def why_incomplete(folder: Path) -> str | None:
    """Describe what a checkpoint or an adapter lacks. None: it has a configuration, weights, and all files
    that an index of weights names, and none is being written."""
    try:
        names = {entry.name for entry in folder.iterdir()}
    except OSError as error:
        return f"it cannot be read ({error.strerror})"
    if names.isdisjoint(("config.json", ADAPTER)):
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


def hash_file_stamps(folder: Path) -> str:
    """Hash the names, sizes and times of a checkpoint's files, without the trainer's own state; empty if
    there is no such folder or it cannot be read. No file is opened."""
    stamps: list[tuple[str, int, int]] = []
    try:
        for above, _, names in os.walk(folder):
            for name in names:
                if not name.startswith((".", *_TRAINING_STATE)):
                    file = f"{above}/{name}"
                    stat = os.stat(file)  # noqa: PTH116  a trainer waits for it
                    stamps.append((file.removeprefix(str(folder)), stat.st_size, stat.st_mtime_ns))
    except OSError:
        return ""
    return digest(repr(sorted(stamps)))[:12] if stamps else ""


def why_submitted_not_servable(checkpoint: Checkpoint, *, to_merge: bool = False) -> str:
    """Explain why a submitted checkpoint must not be served any more; else empty. One
    ``to_merge`` need not be whole."""
    if not checkpoint.content:
        return ""
    folder = Path(checkpoint.path)
    content = hash_file_stamps(folder)
    if content != checkpoint.content:
        change = "was overwritten" if content else "was removed"
        return (
            f"{folder} {change} after it was submitted as step {checkpoint.step}; keep a snapshot until it "
            "is scored"
        )
    lacking = None if to_merge else why_incomplete(folder)
    return "" if lacking is None else f"{folder} cannot be served: {lacking}"


def last_write_epoch_s(folder: Path) -> float:
    """Return when a checkpoint's newest file was written, in seconds since 1970; 0 for a model at a hub."""
    try:
        return max((entry.stat().st_mtime for entry in folder.iterdir()), default=0.0)
    except OSError:
        return 0.0


class _WeightIndex(msgspec.Struct):
    weight_map: dict[str, str] = {}


# --- Submitted checkpoints: ``OUT/sweep/queue``

log = logging.getLogger("coeval")


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """A file of the queue, which stays for later starts of the sweep. ``at``: when it was submitted, in
    nanoseconds since 1970."""

    checkpoint: Checkpoint
    at: int


def read_submissions(queue: Path | None) -> Mapping[int, Submission]:
    """Read a queue, in order of steps; skip a damaged file with a warning. No queue is an empty one."""
    by_step: dict[int, Submission] = {}
    for file in () if queue is None else queue.glob("step_*.json"):
        try:
            submission = read_json(file, Submission)
            by_step[submission.checkpoint.step] = submission
        except (FileNotFoundError, StoreError) as error:
            log.warning("%s; submit it again", error)
    return dict(sorted(by_step.items()))


# --- Checkpoint discovery

USUAL_PATTERNS = (
    "global_step_{step}/actor_hf",
    "global_step_{step}/actor/huggingface",
    "global_step_{step}",
    "step_{step}",
    "checkpoint-{step}",
)
"""Tried in turn where nobody names a pattern; the first that finds any holds."""
# Between the first two looks: what is there at the start need not wait long.
FIRST_WAIT_S = 2.0


@dataclass(frozen=True, slots=True)
class CheckpointPlaces:
    """Where checkpoints come from: ``listed`` by the user, in ``folder`` by ``pattern`` (only ``steps``, if
    any), or submitted to ``queue``. Those ``to_merge`` need not be whole."""

    listed: tuple[Checkpoint, ...] = ()
    folder: Path | None = None
    pattern: str | None = None
    steps: Collection[int] = ()
    queue: Path | None = None
    to_merge: bool = False

    def find_all(self) -> list[Checkpoint]:
        """Find all whole checkpoints, in order of their steps. Raises as `find_whole_or_named`."""
        submitted = read_submissions(self.queue)
        checkpoints = self._find_unqueued(submitted)
        steps = {checkpoint.step for checkpoint in checkpoints}
        checkpoints += [queued.checkpoint for step, queued in submitted.items() if step not in steps]
        return sorted(checkpoints, key=lambda checkpoint: checkpoint.step)

    def _find_unqueued(self, submitted: Mapping[int, Submission]) -> list[Checkpoint]:
        """Find listed checkpoints and those in the folder, except queued ones."""
        checkpoints = list(self.listed)
        if self.folder is not None:
            pattern = self._choose_pattern(self.folder)
            checkpoints += find_whole_or_named(self.folder, pattern, self.steps, to_merge=self.to_merge)
        queued = {submission.checkpoint.path_and_step for submission in submitted.values()}
        return [checkpoint for checkpoint in checkpoints if checkpoint.path_and_step not in queued]

    def _choose_pattern(self, folder: Path) -> str:
        """Return the user's pattern, or the first usual one that matches any folder."""
        patterns = USUAL_PATTERNS if self.pattern is None else (self.pattern,)
        return next((pattern for pattern in patterns if find_step_folders(folder, pattern)), patterns[-1])

    def explain_skipped(self) -> dict[str, str]:
        """Return the paths that `find_all` leaves out, with what each lacks, or which path has its step.
        Raises StoreError: the folder cannot be read."""
        submitted = read_submissions(self.queue)
        path_by_step = {checkpoint.step: checkpoint.path for checkpoint in self._find_unqueued(submitted)}
        queued = {submission.checkpoint.path: step for step, submission in submitted.items()}
        skipped = {
            path: f"it was submitted as step {step}, which is {path_by_step[step]}"
            for path, step in queued.items()
            if step in path_by_step
        }
        if self.folder is not None and not self.steps:
            by_step = find_step_folders(self.folder, self._choose_pattern(self.folder))
            for _, folder in sorted(by_step.items()):
                if str(folder) not in queued and (why := why_incomplete(folder)) is not None:
                    skipped[str(folder)] = why
        return skipped


@dataclass(slots=True)
class CheckpointWatch:
    """Waits for new checkpoints: whole, and unchanged between two looks. It ends with the first one of
    ``until_step`` or later; None: never by itself."""

    places: CheckpointPlaces
    interval_s: float
    until_step: int | None = None
    _known: set[int] = field(default_factory=set)
    _taken: dict[int, Submission] = field(default_factory=dict)
    _last: dict[int, str] = field(default_factory=dict)
    _waited: bool = False
    _problem: str = ""
    _ended: bool = False

    def find_newly_ready(self) -> list[Checkpoint]:
        """Return the checkpoints that have become ready since the last call. Raises StoreError: the folder
        cannot be read."""
        submitted = read_submissions(self.places.queue)
        ready = [queued.checkpoint for step, queued in submitted.items() if self._taken.get(step) != queued]
        self._taken.update(submitted)
        try:
            checkpoints = self.places.find_all()
        except StoreError:
            if not ready:  # what was submitted does not wait for a folder
                raise
            checkpoints = []
        for checkpoint in checkpoints:
            if checkpoint.step in self._known or checkpoint.step in submitted:
                continue
            folder = Path(checkpoint.path)
            whole = self.places.to_merge or why_incomplete(folder) is None
            content = hash_file_stamps(folder) if whole else ""
            at_hub = checkpoint in self.places.listed and not folder.is_dir()  # so nobody is writing it
            if at_hub or (content and self._last.get(checkpoint.step) == content):
                ready.append(checkpoint)
            self._last[checkpoint.step] = content
        for checkpoint in ready:
            self._known.add(checkpoint.step)
            self._last.pop(checkpoint.step, None)
            self._ended |= self.until_step is not None and checkpoint.step >= self.until_step
        return ready

    async def wait_for_next(self) -> Sequence[Checkpoint] | None:
        """Wait for further checkpoints; None after the last. An absent folder is waited for."""
        while not self._ended:
            try:
                if checkpoints := await asyncio.to_thread(self.find_newly_ready):
                    return checkpoints
                self._problem = ""
            except StoreError as error:
                if str(error) != self._problem:
                    log.warning("%s; it is looked into again", error)
                self._problem = str(error)
            await asyncio.sleep(self.interval_s if self._waited else min(FIRST_WAIT_S, self.interval_s))
            self._waited = True
        return None
