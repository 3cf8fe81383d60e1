"""`coeval import`, `coeval export` and `coeval log`: results of other tools, and for them."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Annotated, Literal, TypeAlias

import typer

from coeval.cli import streams
from coeval.core.errors import UsageError
from coeval.core.text import pluralize
from coeval.exchange.importing import USUAL_COLUMNS, import_results
from coeval.exchange.trackers import log_results


def import_files(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE …", help="Inspect's logs, lm-eval's samples, promptfoo's JSON, tables."),
    ],
    out: Annotated[Path, typer.Option(help="The folder to write. Example: --out ./outputs/theirs")],
    model: Annotated[
        str | None, typer.Option(help="The model of these answers, if a file does not name it.")
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MEANING=COLUMN",
            help="For tables: item, model, score, task, metric, sample, judge, prompt or answer; may be "
            "repeated. Example: --column score=points",
        ),
    ] = None,
    scale: Annotated[
        str | None,
        typer.Option(
            metavar="WORST,BEST", help="The worst and the best score, if not 0 and 1. Example: --scale 1,5"
        ),
    ] = None,
) -> None:
    """Import results from other tools, to use in results, compare, gate and view.

    Reads Inspect logs (.eval, .json), samples of lm-eval (samples_TASK_DATE.jsonl, with the results
    beside them), results of promptfoo (.json), and tables with a row for each item and model.

    \b
    Examples:
      coeval import ./logs/base.eval --out ./outputs/base
      coeval import ./lm_eval_out/samples_*.jsonl --out ./outputs/theirs
      coeval import scores.csv --column score=points --scale 0,10 --out ./outputs/theirs
    """
    imported = import_results(
        *files, out=out, model=model, columns=_parse_usual_columns(column or []), scale=_split_scale(scale)
    )
    console, messages = streams.results(), streams.messages()
    streams.say(
        console,
        f"{pluralize(imported.answers, 'answer')} of {pluralize(len(imported.folders), 'model')} imported",
    )
    for name, folder in imported.folders.items():
        streams.say(console, f"  {name}: {folder}")
    for remark in imported.remarks:
        streams.warn(messages, remark)
    folders = [str(folder) for folder in imported.folders.values()]
    command = "compare" if len(folders) > 1 else "results"
    streams.say(console, f"See the scores: coeval {command} {' '.join(map(quote, folders[:2]))}")


def _parse_usual_columns(texts: list[str]) -> dict[str, str]:
    columns = {}
    for text in texts:
        role, is_pair, column = text.partition("=")
        if not is_pair or role not in USUAL_COLUMNS or not column:
            raise UsageError(
                f"--column {text}: write MEANING=COLUMN, where MEANING is one of {', '.join(USUAL_COLUMNS)}"
            )
        columns[role] = column
    return columns


def _split_scale(scale: str | None) -> list[float] | None:
    try:
        return None if scale is None else [float(part) for part in scale.split(",")]
    except ValueError:
        raise UsageError(f"--scale {scale}: write the worst and the best score, such as 1,5") from None


ResultFolder: TypeAlias = Annotated[
    Path, typer.Argument(metavar="FOLDER", help="A run, an output folder, or a sweep. Example: ./runs/my")
]
ExportFormat: TypeAlias = Literal["csv", "parquet", "inspect"]


def export(
    folder: ResultFolder,
    to: Annotated[ExportFormat, typer.Option(help="The format of the files.")],
    out: Annotated[Path, typer.Option(help="A folder that is new or empty. Example: --out ./exported")],
) -> None:
    """Export results as tables or as Inspect logs.

    csv, parquet: one table of scores with their answers, one of means with their intervals. inspect: logs for
    its viewer. docs/exchange.md describes each.

    \b
    Examples:
      coeval export ./runs/my --to csv --out ./exported
      coeval export ./runs/my --to inspect --out ./logs
    """
    from coeval.exchange.exporting import export_results

    paths = export_results(folder, to, out)
    streams.say(streams.results(), f"{pluralize(len(paths), 'file')} written to {out}")


def log(
    folder: ResultFolder,
    to: Annotated[
        list[str],
        typer.Option(metavar="TRACKER[:PROJECT]", help="mlflow, wandb or trackio; may be repeated."),
    ],
) -> None:
    """Log results to an experiment tracker: headlines with their intervals.

    Each figure is logged with its n and failures, along with the page and a JSON file. Checkpoints of a sweep
    are logged at their steps. Repeating the command sends only new figures. The tracker's own settings decide
    where figures go, such as MLFLOW_TRACKING_URI or WANDB_MODE=offline.

    \b
    Examples:
      coeval log ./runs/my --to mlflow
      coeval log ./outputs/run_a --to wandb:my-project --to trackio
    """
    logged = log_results(folder, to, lambda news: streams.say(streams.messages(), news))
    for tracker, new in logged.items():
        status = f"{pluralize(new, 'figure')} logged" if new else "up to date"
        streams.say(streams.results(), f"{tracker}: {status}")
    if not logged:
        streams.say(streams.messages(), "WANDB_MODE=disabled: nothing was logged.")
