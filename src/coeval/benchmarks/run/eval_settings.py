"""What a user may set of an evaluation: flags of ``eval-framework``, keywords of ``coeval.evaluate``.

A flag is added here, and read in `coeval.benchmarks.run.eval_choice`. A sweep shares some of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from coeval.core.model import DEFAULT_TIMEOUT_S
from coeval.core.options import ProbeMode
from coeval.core.settings import Setting


class Group(StrEnum):
    """Sections of ``--help``, in order."""

    CHECKPOINTS = "Checkpoints"
    TASKS = "What is evaluated"
    SERVER = "Server"
    SAMPLING = "Sampling"
    JUDGE = "Judge"
    COURSE = "Phases and limits"


CHECKPOINTS, TASKS, SERVER, SAMPLING, JUDGE, COURSE = Group

Count: TypeAlias = Annotated[int, msgspec.Meta(ge=1)]
Seconds: TypeAlias = Annotated[float, msgspec.Meta(ge=0.001)]
Share: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=1)]
AtLeastZero: TypeAlias = Annotated[float, msgspec.Meta(ge=0)]


class SharedSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings that an evaluation and a sweep share. None: not set."""

    max_examples: Annotated[
        Count | None, Setting("Only the first N prompts of each task, as a smoke test.", TASKS)
    ] = None
    task_options: Annotated[
        Mapping[str, Any] | Sequence[str] | None,
        Setting(
            "A task option of eval-framework; repeatable. Example: --task-option ifeval-input=prompts.jsonl",
            TASKS,
            metavar="NAME=VALUE",
            flags=("--task-option",),
            repeated=True,
        ),
    ] = None

    api_key: Annotated[str | None, Setting("API key of the server; else as --keys says.", SERVER)] = None
    num_threads: Annotated[Count, Setting("Requests in flight to a server, from the start.", SERVER)] = 64
    timeout: Annotated[Seconds, Setting("Seconds for one request.", SERVER)] = DEFAULT_TIMEOUT_S
    wait_for_server: Annotated[
        Seconds | None,
        Setting(
            "Seconds to wait for a server that refuses connections: 300 on this machine, else 35.",
            SERVER,
            metavar="SECONDS",
        ),
    ] = None
    keys: Annotated[
        str | Path | None, Setting("Key file, read first. Example: --keys ~/work.keys.yaml", SERVER)
    ] = None

    # 0.7, 0.8 and 20 are what the model cards of Qwen3 recommend without thinking.
    temperature: Annotated[
        AtLeastZero | None, Setting("Temperature of the tested model.", SAMPLING, usual=0.7)
    ] = None
    top_p: Annotated[Share | None, Setting("Top-p of the tested model.", SAMPLING, usual=0.8)] = None
    top_k: Annotated[
        int | None, Setting("Top-k of the tested model, sent to hosts that know it.", SAMPLING, usual=20)
    ] = None
    max_tokens: Annotated[Count, Setting("Longest answer.", SAMPLING)] = 2048
    seed: Annotated[
        int | Literal["none"],
        Setting(
            "Seed for sampling, if the server accepts one, and for bootstraps; none sends no seed.",
            SAMPLING,
            metavar="N|none",
        ),
    ] = 0

    log_to: Annotated[
        Sequence[str] | str,
        Setting(
            "At the end, log to mlflow, wandb or trackio, as coeval log does; repeatable. "
            "Example: --log-to wandb:my-project",
            COURSE,
            metavar="TRACKER[:PROJECT]",
            repeated=True,
        ),
    ] = ()

    judge_temperature: Annotated[
        AtLeastZero | None, Setting("Temperature of the judge, in place of the official one.", JUDGE)
    ] = None
    judge_top_p: Annotated[Share | None, Setting("Top-p of the judge.", JUDGE)] = None
    judge_top_k: Annotated[int | None, Setting("Top-k of the judge.", JUDGE)] = None
    judge_max_tokens: Annotated[Count | None, Setting("Longest judgment.", JUDGE)] = None
    judge_batch: Annotated[bool, Setting("Use batch jobs for the judge.", JUDGE)] = False


class EvalSettings(SharedSettings, frozen=True, kw_only=True):
    """All settings of an evaluation."""

    tasks: Annotated[
        Sequence[str] | str,
        Setting(
            "Comma-separated or repeated: {tasks}, coeval:PATH_TO_RUN. Example: --tasks ifeval,ifbench",
            TASKS,
            metavar="NAME,…",
            flags=("--tasks", "--task"),
            repeated=True,
        ),
    ] = ()
    model: Annotated[
        str | None, Setting("The model, as its server names it. Example: --model Qwen3-4B", TASKS)
    ] = None
    checkpoint: Annotated[
        str | None,
        Setting(
            "Path of the checkpoint served as MODEL, if others share that name; its results are separate.",
            TASKS,
            metavar="PATH",
        ),
    ] = None
    num_runs: Annotated[Count, Setting("Samples of each prompt, in OUTPUT_DIR/run_<k>/<task>/.", TASKS)] = 1
    output_dir: Annotated[str | Path, Setting("Where one model's results go: OUTPUT_DIR/<task>/.", TASKS)] = (
        "outputs"
    )

    base_url: Annotated[
        str | None,
        Setting(
            "OpenAI-compatible server of the model.", SERVER, shown="http://localhost:8000/v1", metavar="URL"
        ),
    ] = None
    local: Annotated[
        bool, Setting("Load the model in this process: by vLLM if installed, else transformers.", SERVER)
    ] = False
    device: Annotated[str, Setting("With --local: auto (GPU), cuda:0, cpu.", SERVER)] = "auto"
    max_model_len: Annotated[
        Count | None, Setting("With --local: maximum tokens of a prompt plus its answer.", SERVER)
    ] = None
    dtype: Annotated[str | None, Setting("With --local: precision, such as bfloat16.", SERVER)] = None
    gpu_memory_utilization: Annotated[
        Share | None, Setting("With --local and vLLM: fraction of GPU memory to use.", SERVER)
    ] = None

    judge_model: Annotated[str | None, Setting("The judge.", JUDGE, shown="the model itself")] = None
    judge_base_url: Annotated[
        str | None, Setting("Server of the judge.", JUDGE, shown="the model's", metavar="URL")
    ] = None
    judge_api_key: Annotated[
        str | None, Setting("API key of the judge's server.", JUDGE, shown="the model's")
    ] = None

    inference_only: Annotated[
        bool, Setting("Only collect answers; tasks scored by rules are still scored.", COURSE)
    ] = False
    judge_only: Annotated[
        bool, Setting("Judge the answers in OUTPUT_DIR; not for ifeval, ifbench.", COURSE)
    ] = False
    batch: Annotated[bool, Setting("Use batch jobs for the model, often at half the price.", COURSE)] = False
    no_wait: Annotated[
        bool, Setting("Exit once batch jobs are submitted; the same command collects them.", COURSE)
    ] = False
    max_calls: Annotated[
        Count | None, Setting("Limit of requests to each model, probes included, over all starts.", COURSE)
    ] = None
    budget_usd: Annotated[
        AtLeastZero | None, Setting("Budget for all models together, over all starts.", COURSE)
    ] = None
    probe: Annotated[
        ProbeMode, Setting("Models to probe first; answer: all, with a one-token request each.", COURSE)
    ] = "resume"
    probe_on_fail: Annotated[
        Literal["abort", "warn"], Setting("What to do if a probed model does not answer.", COURSE)
    ] = "abort"


def split_names(text: Iterable[str] | str) -> list[str]:
    """Split ``a,b``, or several such texts, into a list, each name once."""
    parts = [text] if isinstance(text, str) else text
    names = (name.strip() for part in parts for name in part.split(","))
    return list(dict.fromkeys(filter(None, names)))
