"""Settings of a sweep: flags of `coeval sweep`, keys of its YAML file, keywords of ``coeval.sweep``.

Text with commas may stand for any list, as it does in a flag.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

import msgspec

from coeval.benchmarks.run.eval_settings import (
    CHECKPOINTS,
    COURSE,
    JUDGE,
    SERVER,
    TASKS,
    Count,
    SharedSettings,
    split_names,
)
from coeval.core.errors import UsageError
from coeval.core.options import spell
from coeval.core.settings import Setting


class ListedCheckpoint(TypedDict):
    """An entry of ``checkpoints``, if they are listed one by one."""

    step: int
    path: str


class SweepSettings(SharedSettings, frozen=True, kw_only=True):
    """All settings of a sweep. None: not set."""

    checkpoints: Annotated[
        str | Path | Sequence[ListedCheckpoint] | None,
        Setting("Folder of the checkpoints. Example: --checkpoints ckpts/run_a", CHECKPOINTS, metavar="DIR"),
    ] = None
    name_pattern: Annotated[
        str | None,
        Setting(
            "Checkpoint folders below it, with {step}.",
            CHECKPOINTS,
            shown="global_step_{step}/actor_hf and other usual ones",
            metavar="PATTERN",
        ),
    ] = None
    steps: Annotated[
        Sequence[int] | str | int | None,
        Setting("Only these steps.", CHECKPOINTS, shown="all there are", metavar="120,240"),
    ] = None
    base_model: Annotated[
        str | None, Setting("The model before training, as step 0.", CHECKPOINTS, metavar="PATH")
    ] = None
    watch: Annotated[
        bool, Setting("Evaluate each new checkpoint as it appears, until Ctrl-C.", CHECKPOINTS)
    ] = False
    until_step: Annotated[
        Annotated[int, msgspec.Meta(ge=0)] | None,
        Setting("Watch until this step, or a later one, has appeared.", CHECKPOINTS),
    ] = None
    # 30 s: a checkpoint takes minutes to train, and a look lists one folder.
    watch_interval: Annotated[
        Annotated[float, msgspec.Meta(ge=0.1)], Setting("Seconds between checks of the folder.", CHECKPOINTS)
    ] = 30.0

    out: Annotated[
        str | Path | None,
        Setting("Where results go.", TASKS, metavar="DIR", flags=("--out", "--out-dir", "--output-dir")),
    ] = None
    tasks: Annotated[
        Mapping[str, Count] | Sequence[str] | str | None,
        Setting("The tasks.", TASKS, shown="all six", metavar="NAME,…"),
    ] = None
    n_samples: Annotated[
        Mapping[str, Count] | Count | str | None,
        Setting(
            "Samples per prompt: one number, or one per task.",
            TASKS,
            shown="ifeval, ifbench, healthbench 8; writingbench 4; others 1",
            metavar="ifeval=8,…",
            flags=("--n-samples", "--num-runs"),
        ),
    ] = None

    merge_command: Annotated[
        str | None,
        Setting(
            "A command that merges a sharded checkpoint before it is served, with {path} and {merged}.",
            SERVER,
            metavar="TEMPLATE",
        ),
    ] = None
    engine: Annotated[
        Literal["local", "ray", "slurm"],
        Setting("Where servers run: here, on a Ray cluster, or as Slurm jobs.", SERVER),
    ] = "local"
    slurm: Annotated[
        Mapping[str, Any] | None,
        Setting("Parameters of submitit, such as slurm_partition.", SERVER, only_key=True),
    ] = None
    gpus: Annotated[
        Sequence[int | str] | str | int | None,
        Setting("GPUs to use.", SERVER, shown="all there are", metavar="0,1,…"),
    ] = None
    slots: Annotated[Count | None, Setting("Concurrent servers.", SERVER, shown="GPUs / tp-size, or 1")] = (
        None
    )
    tp_size: Annotated[Count, Setting("GPUs per server.", SERVER)] = 1
    shards: Annotated[Count, Setting("Servers per checkpoint, which share its prompts.", SERVER)] = 1
    server_command: Annotated[
        str,
        Setting(
            "vllm, sglang, transformers, or a command with {checkpoint}, {name}, {port}, {tp_size}, {host}, "
            "{gpus}.",
            SERVER,
            metavar="TEMPLATE",
        ),
    ] = "vllm"
    swap: Annotated[
        Literal["lora"] | None,
        Setting(
            "Keep a slot's server and load the next LoRA adapter into it; restart it if eight test "
            "prompts do not confirm the swap.",
            SERVER,
            shown="a server for each checkpoint",
        ),
    ] = None
    server_env: Annotated[
        Sequence[str] | str,
        Setting(
            "Environment variable with a credential that servers need, such as HF_TOKEN; repeatable. "
            "They get no other credential.",
            SERVER,
            metavar="NAME",
            repeated=True,
        ),
    ] = ()
    served_name: Annotated[
        str | None,
        Setting(
            "Model name at the server; may use {step}, {path}.", SERVER, shown="step_{step}", metavar="NAME"
        ),
    ] = None
    # Half an hour: a model of 70 B parameters from a network file system, and its compilation.
    start_timeout: Annotated[
        Annotated[float, msgspec.Meta(ge=1)], Setting("Seconds for a server to start.", SERVER)
    ] = 1800.0
    external: Annotated[
        Sequence[str] | str,
        Setting(
            "A running server, for this step or for all; repeatable. No server is started.",
            SERVER,
            metavar="[STEP=]URL",
            repeated=True,
        ),
    ] = ()

    judge_model: Annotated[str | None, Setting("The judge.", JUDGE)] = None
    judge_base_url: Annotated[str | None, Setting("Server of the judge.", JUDGE, metavar="URL")] = None
    judge_api_key: Annotated[
        str | None, Setting("API key of the judge's server; without it, as --keys says.", JUDGE)
    ] = None
    judge_jobs: Annotated[Count, Setting("Tasks judged in parallel.", JUDGE)] = 4

    inference: Annotated[bool, Setting("Have the checkpoints answer.", COURSE, shown="on")] = True
    judge: Annotated[bool, Setting("Judge the answers that need a judge.", COURSE, shown="on")] = True
    plot: Annotated[bool, Setting("At the end, aggregate and draw curves.", COURSE, shown="on")] = True
    log_dir: Annotated[
        str | Path | None,
        Setting("Folder that links the logs of servers and workers.", COURSE, metavar="DIR"),
    ] = None


# --- Lists as text


def parse_names(text: str | None) -> list[str] | None:
    """Split ``a,b`` into a list, each name once; None without the flag."""
    return None if text is None else split_names(text)


def parse_steps(value: Sequence[int] | str | int | None) -> list[int] | None:
    """Parse ``120,240``, a list or a number, and sort the steps. Raises UsageError: one is not a number."""
    if value is None:
        return None
    numbers = split_names(value) if isinstance(value, str) else value
    steps = list(map(str, [numbers] if isinstance(numbers, int) else numbers))
    if wrong := [step for step in steps if not (step.isascii() and step.isdigit())]:
        flag = spell("steps")
        raise UsageError(f"{flag} {wrong[0]}: steps are whole numbers, for example {flag} 120,240,360")
    return sorted(set(map(int, steps)))


def parse_counts(text: str | None) -> dict[str, int]:
    """Parse ``ifeval=8,arena-hard=1`` into numbers by name. Raises UsageError: it is no such list."""
    numbers = {}
    for part in split_names(text or ""):
        name, sign, number = part.partition("=")
        if not (name and sign and number.isascii() and number.isdigit() and int(number)):
            flag = spell("n_samples")
            raise UsageError(f"{flag} {part}: give a task and a number above 0, for example {flag} ifeval=8")
        numbers[name] = int(number)
    return numbers
