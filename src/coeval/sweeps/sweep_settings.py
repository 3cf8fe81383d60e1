"""What a user may set of a sweep: the keys of its YAML file, which are the flags of the command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import msgspec

Count: TypeAlias = Annotated[int, msgspec.Meta(ge=1)]
Positive: TypeAlias = Annotated[float, msgspec.Meta(gt=0)]
Share: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=1)]
AtLeastZero: TypeAlias = Annotated[float, msgspec.Meta(ge=0)]

__all__ = ["EngineName", "ListedCheckpoint", "SweepSettings"]

EngineName: TypeAlias = Literal["local", "ray", "slurm"]


class ListedCheckpoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One of ``checkpoints``, where they are named one by one."""

    step: int
    path: str


class CheckpointFolder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``checkpoints`` as a mapping: those below a folder, and ``more`` by name."""

    folder: str | None = None
    name_pattern: str | None = None
    steps: tuple[int, ...] | str | None = None
    more: tuple[ListedCheckpoint, ...] = ()


class SweepSettings(msgspec.Struct, kw_only=True, omit_defaults=True):
    """None: nobody has said. Text with commas may stand for any list, as it does in a flag. ``slurm`` are
    submitit's parameters, such as ``slurm_partition``; they have no flag."""

    out: Path | None = None
    checkpoints: str | CheckpointFolder | tuple[ListedCheckpoint, ...] | None = None
    name_pattern: str | None = None
    steps: tuple[int, ...] | str | int | None = None
    base_model: str | None = None
    watch: bool | None = None
    until_step: int | None = None
    watch_interval: Positive | None = None

    tasks: dict[str, Count] | tuple[str, ...] | str | None = None
    n_samples: dict[str, Count] | Count | str | None = None
    max_examples: Count | None = None
    task_options: dict[str, Any] | tuple[str, ...] | None = None

    engine: EngineName | None = None
    slurm: dict[str, Any] | None = None
    gpus: tuple[int | str, ...] | str | int | None = None
    slots: Count | None = None
    tp_size: Count | None = None
    shards: Count | None = None

    server_command: str | None = None
    server_env: tuple[str, ...] | str | None = None
    served_name: str | None = None
    start_timeout: Positive | None = None
    external: tuple[str, ...] | str | None = None
    api_key: str | None = None

    num_threads: Count | None = None
    temperature: AtLeastZero | None = None
    top_p: Share | None = None
    top_k: int | None = None
    max_tokens: Count | None = None
    timeout: Positive | None = None
    seed: int | None = None

    judge_model: str | None = None
    judge_base_url: str | None = None
    judge_api_key: str | None = None
    judge_temperature: AtLeastZero | None = None
    judge_top_p: Share | None = None
    judge_top_k: int | None = None
    judge_max_tokens: Count | None = None
    judge_jobs: Count | None = None
    judge_batch: bool | None = None

    inference: bool | None = None
    judge: bool | None = None
    plot: bool | None = None
    log_dir: Path | None = None
    keys: Path | None = None

    def under(self, flags: SweepSettings) -> SweepSettings:
        """With what the flags say in place of these."""
        said = {name: value for name, value in msgspec.structs.asdict(flags).items() if value is not None}
        return msgspec.structs.replace(self, **said)
