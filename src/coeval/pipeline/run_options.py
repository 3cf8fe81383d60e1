"""How a run is started: what a command's flags, or Python's keywords, say beside the experiment file."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from coeval.core.errors import UsageError
from coeval.core.options import CONTINUE, OVERWRITE
from coeval.models.batch.job_list import BatchMode
from coeval.pipeline.config.schema import PHASES, Config, Mode, ModelConfig, Phase
from coeval.store.rundir import RunDir


class Stance(Enum):
    """What a run does with good records of another configuration, or made from other content.

    ``TELL`` is for whoever only looks: they stand, as with ``KEEP``, and are named, as with ``REFUSE``.
    """

    REFUSE = "refuse"
    REDO = "redo"
    KEEP = "keep"
    TELL = "tell"


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How a run is started; the defaults are those of ``coeval run`` without flags.

    ``only_asked``: the judge that is checked, which alone is opened and has work; the others need neither a
    key nor their code, and no check is computed. The store of paid answers is not used, as it may hold that
    judge's replies to the run.
    """

    continue_run: bool = False
    overwrite: bool = False
    only_models: tuple[str, ...] = ()
    stance: Stance = Stance.REFUSE
    phase_barriers: bool = False
    batches: BatchMode = BatchMode.WAIT
    allow_unsandboxed: bool = False
    only_asked: str | None = None

    def __post_init__(self) -> None:
        if self.continue_run and self.overwrite:
            raise UsageError(f"{CONTINUE} and {OVERWRITE} exclude each other; give one of them")

    @classmethod
    def so_far(cls, config: Config) -> RunOptions:
        """To go on with the run where there is one, else to begin it."""
        return cls(continue_run=run_folder(config).meta.exists())

    def opened(self, config: Config) -> list[ModelConfig]:
        """Return the models that are opened."""
        return [model for model in config.models if self.only_asked in (None, model.name)]

    def mode(self, config: Config, phase: Phase) -> Mode:
        """A phase's mode: ``--continue`` is Keep for phases 1–2 and Extend for 3–5."""
        if self.continue_run:
            return "Keep" if phase in PHASES[:2] else "Extend"
        return config.experiment.mode(phase)


def run_folder(config: Config) -> RunDir:
    """The folder of a configuration's run, whether or not it is there."""
    return RunDir(Path(config.experiment.storage_folder) / config.experiment.id)
