"""`coeval sweep`: evaluate the checkpoints of a training run."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from coeval.cli.command_names import KeyFile, LogLevel
from coeval.cli.starting import nothing_begun


class ShownEngine(StrEnum):
    LOCAL = "local"
    RAY = "ray"
    SLURM = "slurm"


@nothing_begun()
def sweep(
    context: typer.Context,
    config: Annotated[
        Path | None,
        typer.Option("--config", help="A YAML file with these flags as keys, _ for -; flags go over it."),
    ] = None,
    checkpoints: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="The folder of the checkpoints. Example: --checkpoints ckpts/run_a"),
    ] = None,
    name_pattern: Annotated[
        str | None,
        typer.Option(
            metavar="PATTERN",
            help="Where they lie below it, with {step}.",
            show_default="global_step_{step}/actor_hf and other usual ones",
        ),
    ] = None,
    steps: Annotated[
        str | None, typer.Option(metavar="120,240", help="Of these steps only.", show_default="all there are")
    ] = None,
    base_model: Annotated[
        str | None, typer.Option(metavar="PATH", help="The model before training, as step 0.")
    ] = None,
    watch: Annotated[
        bool | None,
        typer.Option("--watch", help="Evaluate each new checkpoint as it appears, until Ctrl-C."),
    ] = None,
    until_step: Annotated[
        int | None, typer.Option(min=0, help="Watch until this step, or a later one, has appeared.")
    ] = None,
    watch_interval: Annotated[
        float | None, typer.Option(min=0.1, help="Seconds between two looks.", show_default="30")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "--out-dir", "--output-dir", metavar="DIR", help="Where results go."),
    ] = None,
    tasks: Annotated[
        str | None, typer.Option(metavar="NAME,…", help="The tasks.", show_default="all six")
    ] = None,
    n_samples: Annotated[
        str | None,
        typer.Option(
            "--n-samples",
            "--num-runs",
            metavar="ifeval=8,…",
            help="Samples of each prompt, by task; a number alone is that of all.",
            show_default="ifeval, ifbench, healthbench 8; writingbench 4; others 1",
        ),
    ] = None,
    max_examples: Annotated[
        int | None, typer.Option(min=1, help="Only the first N prompts of each task, as a smoke test.")
    ] = None,
    task_option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="An option that eval-framework has for a task; repeatable. "
            "Example: --task-option ifeval-input=prompts.jsonl",
        ),
    ] = None,
    engine: Annotated[
        ShownEngine | None,
        typer.Option(
            help="Where servers run: here, on a Ray cluster, or as Slurm jobs.", show_default="local"
        ),
    ] = None,
    gpus: Annotated[
        str | None, typer.Option(metavar="0,1,…", help="GPUs to use.", show_default="all there are")
    ] = None,
    slots: Annotated[
        int | None, typer.Option(min=1, help="Servers at a time.", show_default="GPUs / tp-size, or 1")
    ] = None,
    tp_size: Annotated[int | None, typer.Option(min=1, help="GPUs of one server.", show_default="1")] = None,
    shards: Annotated[
        int | None,
        typer.Option(min=1, help="Servers for each checkpoint: the prompts are divided among them."),
    ] = None,
    server_command: Annotated[
        str | None,
        typer.Option(
            metavar="TEMPLATE",
            help="vllm, sglang, transformers, or a command with {checkpoint}, {name}, {port}, {tp_size}, "
            "{host}, {gpus}.",
            show_default="vllm",
        ),
    ] = None,
    server_env: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A variable with a credential that servers are to get, such as HF_TOKEN; repeatable. Your "
            "other credentials stay out of their environment.",
        ),
    ] = None,
    served_name: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="What a server calls the model: {step}, {path}.", show_default="step_{step}"
        ),
    ] = None,
    start_timeout: Annotated[
        float | None, typer.Option(min=1, help="Seconds for a server to start.", show_default="1800")
    ] = None,
    external: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[STEP=]URL",
            help="A server that runs already, of this step or of all; repeatable. No server is started.",
        ),
    ] = None,
    api_key: Annotated[str | None, typer.Option(help="The key of these servers.")] = None,
    num_threads: Annotated[
        int | None, typer.Option(min=1, help="Requests in flight to a server.", show_default="64")
    ] = None,
    temperature: Annotated[
        float | None, typer.Option(min=0, help="Sampling of the checkpoints.", show_default="0.7")
    ] = None,
    top_p: Annotated[float | None, typer.Option(min=0, max=1, help="Likewise.", show_default="0.8")] = None,
    top_k: Annotated[int | None, typer.Option(help="Likewise.", show_default="20")] = None,
    max_tokens: Annotated[
        int | None, typer.Option(min=1, help="Longest answer.", show_default="2048")
    ] = None,
    timeout: Annotated[
        float | None, typer.Option(min=0.001, help="Seconds for one request.", show_default="600")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Of sampling and of bootstraps.", show_default="0")] = None,
    judge_model: Annotated[str | None, typer.Option(help="The judge.")] = None,
    judge_base_url: Annotated[str | None, typer.Option(metavar="URL", help="Its server.")] = None,
    judge_api_key: Annotated[str | None, typer.Option(help="Its key; else as --keys says.")] = None,
    judge_temperature: Annotated[
        float | None, typer.Option(min=0, help="Judge's sampling in place of the task's official one.")
    ] = None,
    judge_top_p: Annotated[float | None, typer.Option(min=0, max=1, help="Likewise.")] = None,
    judge_top_k: Annotated[int | None, typer.Option(help="Likewise.")] = None,
    judge_max_tokens: Annotated[int | None, typer.Option(min=1, help="Likewise.")] = None,
    judge_jobs: Annotated[
        int | None, typer.Option(min=1, help="Tasks judged at a time.", show_default="4")
    ] = None,
    judge_batch: Annotated[
        bool | None, typer.Option("--judge-batch", help="Ask the judge by batch jobs.")
    ] = None,
    inference: Annotated[
        bool | None,
        typer.Option("--inference/--no-inference", help="Ask the checkpoints.", show_default="on"),
    ] = None,
    judge: Annotated[
        bool | None, typer.Option("--judge/--no-judge", help="Judge what needs a judge.", show_default="on")
    ] = None,
    plot: Annotated[
        bool | None,
        typer.Option("--plot/--no-plot", help="At the end, aggregate and draw curves.", show_default="on"),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Count jobs and calls, price the judging; ask and write nothing."),
    ] = False,
    status: Annotated[
        bool,
        typer.Option("--status", help="Show how far OUT is, also while a sweep runs; needs --out alone."),
    ] = False,
    log_dir: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where the logs of servers and workers are found too.")
    ] = None,
    keys: KeyFile = None,
    log_level: Annotated[LogLevel, typer.Option(help="DEBUG also shows tracebacks.")] = LogLevel.INFO,
) -> None:
    """Evaluate the checkpoints of a training run: serve each, ask it every task N times, judge, aggregate.

    Slots (GPUs) take checkpoint after checkpoint; judging goes on meanwhile. The same command again goes on
    where it was stopped: what is there is never asked twice.

    \b
    Examples:
      coeval sweep --checkpoints ckpts/run_a --out outputs/run_a --tasks ifeval,ifbench
      coeval sweep --checkpoints ckpts/run_a --out outputs/run_a --steps 120,240 --gpus 0,1,2,3 \\
        --judge-model gpt-4.1 --judge-base-url https://api.openai.com/v1
      coeval sweep --config sweep.yaml --dry-run
      coeval sweep --out outputs/run_a --status

    \b
    Exit codes: 0 complete, 1 wrong request, 2 no server came up,
    3 finished with gaps or failed jobs, 130 interrupted (finished work is on disk).
    """
    if context.invoked_subcommand is not None:
        return
    flags: dict[str, Any] = {**locals(), "task_options": task_option}
    from coeval.cli.commands.sweep.sweep_report import sweep_and_report

    raise typer.Exit(sweep_and_report(flags))
