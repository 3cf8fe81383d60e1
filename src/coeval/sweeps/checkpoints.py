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
    ``content`` is the `content_of` a submitted one, which is another when its folder is overwritten."""

    step: int
    path: str
    content: str = ""

    @property
    def path_and_step(self) -> str:
        """Its path and step, whatever the folder holds."""
        return f"{self.path}@{self.step}"

    @property
    def identity(self) -> str:
        """What its answers are recorded as being of."""
        return f"{self.path_and_step}#{self.content}" if self.content else self.path_and_step

    @property
    def name(self) -> str:
        """Its folder in the output."""
        return f"step_{self.step}"


def find_step_folders(folder: Path, pattern: str) -> dict[int, Path]:
    """What there is below a folder, by step, in no order: as ``global_step_{step}/actor_hf``,
    ``step_{step}``. Steps may be written with zeros before them.

    Raises UsageError: the pattern has no ``{step}``, or leads out of the folder; StoreError: the folder
    cannot be looked into.
    """
    parts = Path(pattern).parts
    if pattern.count(STEP) != 1 or Path(pattern).is_absolute() or ".." in parts:
        raise UsageError(
            f"{pattern!r} is no pattern of checkpoints: it is to be a path below their folder with "
            f"{STEP} once in it, such as global_step_{STEP}/actor_hf"
        )
    at = next(number for number, part in enumerate(parts) if STEP in part)
    above = folder.joinpath(*parts[:at])
    before, after = map(re.escape, parts[at].split(STEP))
    needed = re.compile(f"{before}([0-9]+){after}")
    try:
        names = [entry.name for entry in above.iterdir()]
    except OSError as error:
        raise store_error("read", above, error) from error
    found: dict[int, Path] = {}
    for name in sorted(names, key=len, reverse=True):  # of step_010 and step_10 the last one counts
        step = needed.fullmatch(name)
        path = above.joinpath(name, *parts[at + 1 :])
        if step and path.is_dir():
            found[int(step[1])] = path
    return found


def find_checkpoints(
    folder: Path, pattern: str, steps: Collection[int] = (), *, merged: bool = False
) -> list[Checkpoint]:
    """The checkpoints of ``steps``, or all that are there and whole, in order of their steps.

    Raises UsageError: one of ``steps`` is not there; StoreError: the folder cannot be looked into.
    """
    there = find_step_folders(folder, pattern)
    if absent := sorted(set(steps) - there.keys()):
        known = ", ".join(map(str, sorted(there)[:20])) + (", …" if len(there) > 20 else "")
        place = folder / pattern.replace(STEP, str(absent[0]))
        raise UsageError(f"{place} is not there; steps below {folder} by {pattern}: {known or 'none'}")
    return [
        Checkpoint(step=step, path=str(path))
        for step, path in sorted(there.items())
        if (step in steps if steps else merged or is_whole(path))
    ]


def refuse_duplicate_steps(checkpoints: Sequence[Checkpoint]) -> None:
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
    return why_incomplete(folder) is None


def why_incomplete(folder: Path) -> str | None:
    """What a checkpoint or an adapter lacks to be whole; None: it has a configuration, weights, and all files
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


def hash_content(folder: Path) -> str:
    """Hash the names, sizes and times of a checkpoint's files, those below it too, but for the trainer's own
    state; empty where there is no such folder or it cannot be read. No file is opened."""
    found: list[tuple[str, int, int]] = []
    try:
        for above, _, names in os.walk(folder):
            for name in names:
                if not name.startswith((".", *_TRAINING_STATE)):
                    file = f"{above}/{name}"
                    stat = os.stat(file)  # noqa: PTH116  a trainer waits for it
                    found.append((file.removeprefix(str(folder)), stat.st_size, stat.st_mtime_ns))
    except OSError:
        return ""
    return digest(repr(sorted(found)))[:12] if found else ""


def why_not_served(checkpoint: Checkpoint, *, merged: bool = False) -> str:
    """Say why a submitted checkpoint is not to be served any more; empty where it is. One that is to be
    ``merged`` need not be whole."""
    if not checkpoint.content:
        return ""
    folder = Path(checkpoint.path)
    content = hash_content(folder)
    if content != checkpoint.content:
        what = "was overwritten" if content else "was removed"
        return (
            f"{folder} {what} after it was submitted as step {checkpoint.step}; keep a snapshot until it is "
            "scored"
        )
    lacking = None if merged else why_incomplete(folder)
    return "" if lacking is None else f"{folder} cannot be served: {lacking}"


def last_write_time(folder: Path) -> float:
    """When a file of a checkpoint was last written, in seconds since 1970; 0 for a model at a hub."""
    try:
        return max((entry.stat().st_mtime for entry in folder.iterdir()), default=0.0)
    except OSError:
        return 0.0


class _WeightIndex(msgspec.Struct):
    weight_map: dict[str, str] = {}


# --- Submitted checkpoints: ``OUT/sweep/queue``

log = logging.getLogger("coeval")


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """A file of the queue. It stays there, so that every start of the sweep knows it. ``at``: when it was
    submitted, in nanoseconds since 1970."""

    checkpoint: Checkpoint
    at: int


def read_submissions(queue: Path) -> Mapping[int, Submission]:
    """Read a queue, by step in their order; a damaged file is passed over with a warning."""
    found: dict[int, Submission] = {}
    for file in queue.glob("step_*.json"):
        try:
            each = read_json(file, Submission)
        except (FileNotFoundError, StoreError) as error:
            log.warning("%s; submit it again", error)
            continue
        found[each.checkpoint.step] = each
    return dict(sorted(found.items()))


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
    """``listed`` are named one by one; those below ``folder`` are found by ``pattern``, of ``steps`` only
    where any are named; ``queue`` has the submitted ones. Those that are
    to be ``merged`` need not be whole."""

    listed: tuple[Checkpoint, ...] = ()
    folder: Path | None = None
    pattern: str | None = None
    steps: Collection[int] = ()
    queue: Path | None = None
    merged: bool = False

    def read_submitted(self) -> Mapping[int, Submission]:
        """The submitted ones, by step."""
        return {} if self.queue is None else read_submissions(self.queue)

    def find_all(self) -> list[Checkpoint]:
        """Those that are there and whole now, in the order of their steps.

        Raises UsageError: one that is named by its step is not there, or a pattern is none; StoreError: the
        folder cannot be looked into.
        """
        submitted = self.read_submitted()
        found = self._find_unqueued(submitted)
        taken = {each.step for each in found}
        found += [each.checkpoint for step, each in submitted.items() if step not in taken]
        return sorted(found, key=lambda checkpoint: checkpoint.step)

    def _find_unqueued(self, submitted: Mapping[int, Submission]) -> list[Checkpoint]:
        """Those that are listed or found, but for the same ones of the queue, which knows their content."""
        found = list(self.listed)
        if self.folder is not None:
            pattern = self._choose_pattern(self.folder)
            found += find_checkpoints(self.folder, pattern, self.steps, merged=self.merged)
        queued = {each.checkpoint.path_and_step for each in submitted.values()}
        return [each for each in found if each.path_and_step not in queued]

    def _choose_pattern(self, folder: Path) -> str:
        """The one that is named, or the first of the usual ones that finds any."""
        patterns = USUAL_PATTERNS if self.pattern is None else (self.pattern,)
        return next((pattern for pattern in patterns if find_step_folders(folder, pattern)), patterns[-1])

    def explain_skipped(self) -> dict[str, str]:
        """Those that `found` leaves out, since they are not whole: their paths, and what they lack.

        Raises StoreError: the folder cannot be looked into.
        """
        submitted = self.read_submitted()
        taken = {each.step: each.path for each in self._find_unqueued(submitted)}
        queued = {each.checkpoint.path: step for step, each in submitted.items()}
        passed = {
            path: f"it was submitted as step {step}, which is {taken[step]}"
            for path, step in queued.items()
            if step in taken
        }
        if self.folder is None or self.steps:
            return passed
        there = find_step_folders(self.folder, self._choose_pattern(self.folder))
        lacking = {str(path): why_incomplete(path) for _, path in sorted(there.items())}
        return passed | {p: why for p, why in lacking.items() if why is not None and p not in queued}


@dataclass(slots=True)
class CheckpointWatch:
    """New checkpoints as they appear below a folder: whole, and unchanged since the last look.

    It ends with the first one of ``until_step`` or later; None: never by itself.
    """

    places: CheckpointPlaces
    interval_s: float
    until_step: int | None = None
    _known: set[int] = field(default_factory=set)
    _taken: dict[int, Submission] = field(default_factory=dict)
    _last: dict[int, str] = field(default_factory=dict)
    _waited: bool = False
    _problem: str = ""
    _ended: bool = False

    def find_ready(self) -> list[Checkpoint]:
        """Those that have become ready since the last look.

        Raises StoreError: the folder cannot be looked into.
        """
        submitted = self.places.read_submitted()
        ready = [each.checkpoint for step, each in submitted.items() if self._taken.get(step) != each]
        self._taken.update(submitted)
        try:
            found = self.places.find_all()
        except StoreError:
            if not ready:  # what was submitted does not wait for a folder
                raise
            found = []
        for checkpoint in found:
            if checkpoint.step in self._known or checkpoint.step in submitted:
                continue
            written = _written(Path(checkpoint.path), merged=self.places.merged)
            if checkpoint in self.places.listed and not Path(checkpoint.path).is_dir():
                ready.append(checkpoint)  # a name at a hub: nobody is writing it
            elif written and self._last.get(checkpoint.step) == written:
                ready.append(checkpoint)
            self._last[checkpoint.step] = written
        for checkpoint in ready:
            self._known.add(checkpoint.step)
            self._last.pop(checkpoint.step, None)
            self._ended |= self.until_step is not None and checkpoint.step >= self.until_step
        return ready

    async def wait_for_next(self) -> Sequence[Checkpoint] | None:
        """Wait for further ones; None after the last. A folder that is not there is waited for."""
        while not self._ended:
            try:
                if found := await asyncio.to_thread(self.find_ready):
                    return found
                self._problem = ""
            except StoreError as error:
                if str(error) != self._problem:
                    log.warning("%s; it is looked into again", error)
                self._problem = str(error)
            await asyncio.sleep(self.interval_s if self._waited else min(FIRST_WAIT_S, self.interval_s))
            self._waited = True
        return None


def _written(folder: Path, *, merged: bool) -> str:
    """What it holds; empty while it is not whole, which one that is to be merged need not be."""
    return hash_content(folder) if merged or is_whole(folder) else ""
