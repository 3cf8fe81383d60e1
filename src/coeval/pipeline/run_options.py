"""Options of a start that are not in the experiment file: a command's flags, or Python's keywords."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from coeval.core.errors import UsageError
from coeval.core.options import CONTINUE, OVERWRITE
from coeval.models.batch.job_list import BatchMode
from coeval.pipeline.config.schema import PHASES, Config, Mode, ModelConfig, Phase
from coeval.store.rundir import RunDir


class ChangePolicy(Enum):
    """What a run does with good records of another configuration, or made from content that has changed. With
    ``REPORT``, for commands that only read, they count as with ``KEEP`` and are named as with ``REFUSE``."""

    REFUSE = "refuse"
    REDO = "redo"
    KEEP = "keep"
    REPORT = "tell"


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options of one start; the defaults are those of ``coeval run`` without flags.

    ``checked_judge``: the only model that is opened, for a check of this judge; the others need neither a
    key nor their code, and no check is computed. The store of paid answers is not used then: it may hold
    that judge's replies to the run.
    """

    continue_run: bool = False
    overwrite: bool = False
    only_models: tuple[str, ...] = ()
    change_policy: ChangePolicy = ChangePolicy.REFUSE
    phase_barriers: bool = False
    batches: BatchMode = BatchMode.WAIT
    allow_unsandboxed: bool = False
    checked_judge: str | None = None

    def __post_init__(self) -> None:
        if self.continue_run and self.overwrite:
            raise UsageError(f"{CONTINUE} and {OVERWRITE} exclude each other; give one of them")

    @classmethod
    def continue_if_started(cls, config: Config) -> RunOptions:
        """Return options that continue the run if its folder holds one, else start it."""
        return cls(continue_run=run_folder(config).meta.exists())

    def models_to_open(self, config: Config) -> list[ModelConfig]:
        return [model for model in config.models if self.checked_judge in (None, model.name)]

    def mode(self, config: Config, phase: Phase) -> Mode:
        """Return a phase's mode: with ``--continue``, Keep for phases 1–2 and Extend for 3–5."""
        if self.continue_run:
            return "Keep" if phase in PHASES[:2] else "Extend"
        return config.experiment.mode(phase)


def run_folder(config: Config) -> RunDir:
    """Return the folder of a configuration's run, whether or not it exists."""
    return RunDir(Path(config.experiment.storage_folder) / config.experiment.id)
