"""Snapshots that a trainer submits to a sweep: one small file in ``OUT/sweep/queue`` for each, and the wait
for what becomes of it."""

from __future__ import annotations

import logging
import os
import shlex
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from coeval.core.entry_points import extra_pip_command
from coeval.core.errors import GAPS, CoevalError, StoreError, UsageError
from coeval.store.jsonl import read_json, store_error
from coeval.store.rundir import RunDir
from coeval.sweeps.checkpoints import Checkpoint, Submission, hash_file_stamps
from coeval.sweeps.job_table import JobTable
from coeval.sweeps.sweep import JobPlan, queue_folder, sweep_folder

log = logging.getLogger("coeval")

# A job takes minutes, and a look reads the journal.
LOOK_S = 2.0


def submit_checkpoint(
    out: str | Path, step: int, path: str | Path, wait: bool = False, say: Callable[[str], None] = log.info
) -> int:
    """Put a snapshot into the queue of the sweep in ``out``. Return 0 at once; with ``wait``, once it is
    scored (answered, if the sweep does not judge), or 3 if it has failed. Reads only names, sizes and
    times of its files. Raises UsageError: there is no such folder, the step is that of another path, or
    ``out`` is not a sweep's; StoreError: the queue cannot be written.

    >>> coeval.submit_checkpoint("outputs/run_a", step=30, path="checkpoints/step_30")
    0
    """
    out, folder = Path(out), Path(path).absolute()
    if step < 0:
        raise UsageError(f"step {step!r}: give a whole number, 0 or more")
    content = hash_file_stamps(folder)
    if not content:
        raise UsageError(f"{path} is not a folder with files in it; save the checkpoint, then submit it")
    checkpoint = Checkpoint(step=step, path=str(folder), content=content)
    _refuse_unfit_folder_or_step(out, checkpoint)
    submission = Submission(checkpoint=checkpoint, at=time.time_ns())
    _write_submission(_queue_file(out, step), submission)
    return _wait_until_scored(out, submission, say) if wait else 0


def explain_idle_sweep(out: Path) -> str:
    """Explain what to start if no sweep of this machine is at work in ``out``; empty if one is."""
    if RunDir(sweep_folder(out)).writer_pid() is not None:
        return ""
    return (
        f"no sweep runs in {out} on this machine; the snapshot is kept in its queue. Start "
        f"coeval sweep --watch --out {shlex.quote(str(out))} with its tasks and servers"
    )


def _refuse_unfit_folder_or_step(out: Path, checkpoint: Checkpoint) -> None:
    """Raise UsageError if ``out`` is not a sweep's, or has the step with another path; StoreError if it is a
    link."""
    own = sweep_folder(out)
    if out.is_dir() and not own.is_dir() and any(out.iterdir()):
        raise UsageError(f"{out} is not a sweep's folder; give the --out of the sweep, or a new folder")
    for path in (own, queue_folder(out), _queue_file(out, checkpoint.step)):
        if path.is_symlink():
            raise StoreError(f"{path} is a link, and nothing is written through one; remove it")
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} is a file; give the --out of the sweep")
    earlier: list[Checkpoint] = []
    with suppress(FileNotFoundError, StoreError):  # not submitted yet, or damaged
        earlier.append(read_json(_queue_file(out, checkpoint.step), Submission).checkpoint)
    with suppress(FileNotFoundError, StoreError):  # the sweep has not begun
        earlier += JobPlan.read(own).checkpoints
    for other in earlier:
        if other.step == checkpoint.step and other.path != checkpoint.path:
            raise UsageError(
                f"step {other.step} of {out} is {other.path} already; give {checkpoint.path} another step, "
                "or another --out"
            )


def _queue_file(out: Path, step: int) -> Path:
    return queue_folder(out) / f"step_{step}.json"


def _write_submission(file: Path, submission: Submission) -> None:
    """Replace a file without waiting for the disk: beside a checkpoint that is being flushed, that would take
    seconds of training."""
    temporary = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary.unlink(missing_ok=True)
        with temporary.open("xb") as new:  # through no link
            new.write(msgspec.json.encode(submission))
        temporary.replace(file)
    except OSError as error:
        raise store_error("write", file, error) from error


def _wait_until_scored(out: Path, submission: Submission, say: Callable[[str], None]) -> int:
    """Report how far a submission is whenever that changes; return 0 once it is scored, 3 if it failed."""
    reported = ""
    while True:
        code, message = _read_outcome(out, submission)
        if code is None:
            message = explain_idle_sweep(out) or message
        if message != reported:
            say(message)
        if code is not None:
            return code
        reported = message
        time.sleep(LOOK_S)


def _read_outcome(out: Path, submission: Submission) -> tuple[int | None, str]:
    """Return the exit code, None while it is under way, and the message. Raises UsageError: another snapshot
    has taken its step."""
    checkpoint, name = submission.checkpoint, submission.checkpoint.name
    try:
        latest = read_json(_queue_file(out, checkpoint.step), Submission).checkpoint
        plan = JobPlan.read(sweep_folder(out))
    except FileNotFoundError:
        return None, f"{name}: in the queue"
    if latest != checkpoint:
        raise UsageError(f"{name} was submitted again since; wait for that one")
    if checkpoint not in plan.checkpoints:
        return None, f"{name}: in the queue"
    table = JobTable(out, plan)
    statuses = [table.summarise_task(checkpoint, task) for task in plan.tasks]
    jobs, done = sum(task.samples for task in statuses), sum(task.concluded for task in statuses)
    counts = f"{name}: {done} of {jobs} jobs scored"
    if not plan.judges:
        pairs = zip(plan.tasks, statuses, strict=True)
        if left := sum(status.answered - status.concluded for task, status in pairs if task.judged):
            counts += f", {left} answered and not judged: the sweep runs with --no-judge"
            done += left
    if done == jobs:
        return 0, counts
    if not table.is_whole_or_ended_since(checkpoint, submission.at // 10**9):
        return None, counts
    why = next((status.problem for status in statuses if status.problem), "answers or judgments are missing")
    return GAPS, f"{counts}; {why}"


# --- Callback of trainers


def sweep_callback(out: str | Path) -> Any:
    """Make a callback for the trainers of ``transformers`` and TRL: each checkpoint that they save is
    submitted to the sweep in ``out``. A submission that fails is a warning, and the training goes on. Raises
    UsageError: ``transformers`` is not installed.

    >>> callback = coeval.sweep_callback("outputs/run_a")  # Trainer(…, callbacks=[callback])
    """
    try:
        from transformers import TrainerCallback
    except ImportError as error:
        raise UsageError(f"the callback needs transformers: {extra_pip_command('huggingface')}") from error

    class SweepCallback(TrainerCallback):  # type: ignore[misc]  # untyped
        """Submits what is saved; only the process of rank 0 does."""

        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002  theirs
            if state.is_world_process_zero and (idle := explain_idle_sweep(Path(out))):
                log.warning("%s", idle)

        def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002  theirs
            if not state.is_world_process_zero:
                return
            step = state.global_step
            try:
                submit_checkpoint(out, step, Path(args.output_dir) / f"checkpoint-{step}")
            except CoevalError as error:
                log.warning("step %d was not submitted: %s", step, error)

    return SweepCallback()
