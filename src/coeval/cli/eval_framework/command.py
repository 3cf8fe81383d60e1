"""The ``eval-framework`` command: published benchmarks on one model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from coeval import __version__
from coeval.benchmarks.task_registry import TASKS
from coeval.cli.command_names import KeyFile, LogLevel, OnFail, ProbeMode
from coeval.cli.ending import run_to_exit
from coeval.cli.eval_framework.task_flags import GroupedByTask, with_task_options
from coeval.cli.starting import nothing_begun
from coeval.core.options import Face


def make_app() -> typer.Typer:
    """The command with the options of all tasks that there are.

    Raises
    ------
    UsageError
        another package's benchmark cannot be used.
    """
    app = typer.Typer(
        name="eval-framework",
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.command(cls=GroupedByTask)(with_task_options(evaluate))
    return app


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"eval-framework (coeval {__version__})")
        raise typer.Exit


@nothing_begun()
def evaluate(
    tasks: Annotated[
        list[str] | None,
        typer.Option(
            "--tasks",
            "--task",
            help=f"Comma-separated or repeated: {', '.join(TASKS)}, coeval:PATH_TO_RUN. "
            "Example: --tasks ifeval,ifbench",
            metavar="NAME,…",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", help="The model, as its server names it. Example: --model Qwen3-4B"),
    ] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            "--checkpoint",
            help="What is served as MODEL, where that name serves others too: its path. Results are its own.",
            metavar="PATH",
        ),
    ] = None,
    base_url: Annotated[
        str | None,
        typer.Option(
            "--base-url",
            help="OpenAI-compatible server of the model.",
            show_default="http://localhost:8000/v1",
            metavar="URL",
        ),
    ] = None,
    api_key: Annotated[
        str | None, typer.Option("--api-key", help="Its key, if it wants one; else as --keys says.")
    ] = None,
    local: Annotated[
        bool,
        typer.Option("--local", help="Load the model in this process: vLLM if there, else transformers."),
    ] = False,
    device: Annotated[str, typer.Option("--device", help="With --local: auto (GPU), cuda:0, cpu.")] = "auto",
    output_dir: Annotated[
        Path, typer.Option("--output-dir", help="Where one model's results go: OUTPUT_DIR/<task>/.")
    ] = Path("outputs"),
    max_examples: Annotated[
        int | None, typer.Option(min=1, help="Only the first N prompts of each task, as a smoke test.")
    ] = None,
    max_calls: Annotated[
        int | None,
        typer.Option(min=1, help="Most requests to each model, over all starts in OUTPUT_DIR; probes count."),
    ] = None,
    budget_usd: Annotated[
        float | None,
        typer.Option(
            "--budget-usd", min=0, help="Most money for all models together, over all starts in OUTPUT_DIR."
        ),
    ] = None,
    probe: Annotated[
        ProbeMode, typer.Option("--probe", help="Which models to probe first.")
    ] = ProbeMode.RESUME,
    probe_on_fail: Annotated[
        OnFail, typer.Option("--probe-on-fail", help="When a probed model does not answer.")
    ] = OnFail.ABORT,
    num_threads: Annotated[
        int, typer.Option(min=1, help="Requests in flight to the model, from the start.")
    ] = 64,
    temperature: Annotated[
        float | None, typer.Option(min=0, help="Sampling of the model.", show_default="0.7")
    ] = None,
    top_p: Annotated[float | None, typer.Option(min=0, max=1, help="Likewise.", show_default="0.8")] = None,
    top_k: Annotated[
        int | None,
        typer.Option(
            "--top-k", help="Likewise; by default not sent to hosts that refuse it.", show_default="20"
        ),
    ] = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="Longest answer.")] = 2048,
    timeout: Annotated[float, typer.Option(min=0.001, help="Seconds for one request.")] = 600.0,
    num_runs: Annotated[
        int, typer.Option(min=1, help="Samples of each prompt, in OUTPUT_DIR/run_<k>/<task>/.")
    ] = 1,
    seed: Annotated[
        int, typer.Option(help="Of sampling (where the server takes one) and of bootstraps.")
    ] = 0,
    inference_only: Annotated[
        bool, typer.Option("--inference-only", help="Ask the model, judge nothing; rules still score.")
    ] = False,
    judge_only: Annotated[
        bool, typer.Option("--judge-only", help="Judge the answers in OUTPUT_DIR; not for ifeval, ifbench.")
    ] = False,
    judge_model: Annotated[
        str | None, typer.Option("--judge-model", help="The judge.", show_default="the model itself")
    ] = None,
    judge_base_url: Annotated[
        str | None,
        typer.Option("--judge-base-url", help="Its server.", show_default="the model's", metavar="URL"),
    ] = None,
    judge_api_key: Annotated[
        str | None, typer.Option("--judge-api-key", help="Its key.", show_default="the model's")
    ] = None,
    judge_temperature: Annotated[
        float | None,
        typer.Option(min=0, help="Judge's sampling in place of the task's official one.", show_default=False),
    ] = None,
    judge_top_p: Annotated[float | None, typer.Option(min=0, max=1, help="Likewise.")] = None,
    judge_top_k: Annotated[int | None, typer.Option(help="Likewise.")] = None,
    judge_max_tokens: Annotated[int | None, typer.Option(min=1, help="Likewise.")] = None,
    estimate_only: Annotated[
        bool, typer.Option("--estimate-only", help="Tell what it would cost and take, ask nothing, and end.")
    ] = False,
    batch: Annotated[
        bool,
        typer.Option("--batch", help="Ask the model by batch jobs, at half the price with most providers."),
    ] = False,
    judge_batch: Annotated[bool, typer.Option("--judge-batch", help="Ask the judge by batch jobs.")] = False,
    no_wait: Annotated[
        bool,
        typer.Option("--no-wait", help="End when batch jobs are submitted; the same command collects them."),
    ] = False,
    keys: KeyFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print all summaries as JSON on stdout.")] = False,
    log_level: Annotated[
        LogLevel, typer.Option(help="Of OUTPUT_DIR/run.log; DEBUG also shows tracebacks.")
    ] = LogLevel.INFO,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    **of_tasks: Any,
) -> None:
    """Score a model on published benchmarks: ask it, judge its answers, report with intervals.

    \b
    Examples:
      eval-framework --tasks ifeval --model Qwen3-4B --base-url http://localhost:8000/v1
      eval-framework --tasks ifeval --model Qwen/Qwen3-4B --local --max-examples 4
      eval-framework --tasks alpaca-eval --model Qwen3-4B --inference-only
      eval-framework --tasks alpaca-eval --model Qwen3-4B --judge-only --judge-model gpt-4-1106-preview \\
        --judge-base-url https://api.openai.com/v1
      eval-framework --tasks ifeval --ifeval-responses responses.jsonl
      eval-framework --tasks arena-hard --model Qwen3-4B --judge-model gpt-4.1 \\
        --judge-base-url https://api.openai.com/v1 --estimate-only

    \b
    The same command again goes on where it was stopped: what is there is never asked twice.
    Exit codes: 0 complete, 1 wrong request, 2 a model is unavailable,
    3 finished with gaps or a failed task, 130 interrupted (finished work is on disk).
    """
    flags = {name: value for name, value in locals().items() if name not in ("version", "of_tasks")}
    from coeval.cli.eval_framework.eval_report import run_and_report

    raise typer.Exit(run_and_report(flags | of_tasks))


def main() -> None:
    """Exit codes: 0 done, 1 wrong request, 2 a model is unavailable, 3 gaps remain, 130 interrupted."""
    run_to_exit(lambda: make_app()(prog_name="eval-framework"), Face.EVAL_FRAMEWORK)
