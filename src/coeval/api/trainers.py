"""Training code submits its snapshots to a running `coeval sweep --watch`."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from coeval.core.entry_points import install_command
from coeval.core.errors import CoevalError, UsageError
from coeval.sweeps.submission import no_sweep_runs, submit_checkpoint

log = logging.getLogger("coeval")


def sweep_callback(out: str | Path) -> Any:
    """Make a callback for the trainers of ``transformers`` and TRL: each checkpoint that they save is
    submitted to the sweep in ``out``. A submission that fails is a warning, and the training goes on.

    Raises UsageError: ``transformers`` is not installed.
    """
    try:
        from transformers import TrainerCallback
    except ImportError as error:
        raise UsageError(f"the callback needs transformers: {install_command('huggingface')}") from error

    class SweepCallback(TrainerCallback):  # type: ignore[misc]  # untyped
        """Submits what is saved; only the process of rank 0 does."""

        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002  theirs
            if state.is_world_process_zero and (idle := no_sweep_runs(Path(out))):
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
