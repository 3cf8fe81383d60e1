"""`coeval results`: prints a run's scores, also as JSON, CSV or a paper's table; no model is called."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import msgspec
import typer

from coeval.analysis.breakdown import break_down_scores_and_labels
from coeval.analysis.comparison.comparisons import compare_sides, match_sides
from coeval.analysis.training.sweep_comparison import compare_checkpoints
from coeval.analysis.training.training_curves import read_training_curves
from coeval.cli import streams
from coeval.cli.command_names import AsJson, RunFolder, RunWord, require_folder
from coeval.cli.views import results_view
from coeval.cli.views.gaps_view import print_missing_records
from coeval.cli.views.results_view import short_result_names
from coeval.core.errors import UsageError
from coeval.pipeline.plan.run_reading import open_folder_reader, open_run_reader
from coeval.pipeline.upkeep.repair import find_missing_records
from coeval.reports.result_tables import paper_table, read_results, sweep_paper_table
from coeval.reports.writers.markup import as_latex, as_markdown
from coeval.store.output_folder import is_sweep, require_results, require_run_not_outputs
from coeval.store.rundir import RunDir

ResultsPart: TypeAlias = Literal["factor", "attribute", "judge", "teacher"]


def results(
    word: RunWord = None,
    run: RunFolder = None,
    by: Annotated[ResultsPart | None, typer.Option(help="Break the scores down.")] = None,
    as_json: AsJson = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="One line per score, for a spreadsheet.")] = False,
    as_markdown: Annotated[
        bool, typer.Option("--markdown", help="A table for a paper, models by tasks, in Markdown.")
    ] = False,
    as_latex: Annotated[bool, typer.Option("--latex", help="The same table in LaTeX.")] = False,
) -> None:
    """Show the scores of a run or of an `eval-framework` folder.

    No model is called. Every score has its number of items (n) and its 95%
    interval. If the run is unfinished, this counts as an interim look and is
    recorded (docs/intervals.md); nothing else is written. --markdown and
    --latex also work for sweeps.

    \b
    Examples:
      coeval results --run ./runs/quickstart
      coeval results --run ./runs/quickstart --by judge
      coeval results --run ./runs/quickstart --json > scores.json
      coeval results --run ./runs/quickstart --by attribute --csv > attributes.csv
      coeval results --run ./outputs
      coeval results --run ./runs/quickstart --latex > scores.tex
    """
    paper = as_markdown or as_latex
    if as_json + as_csv + as_markdown + as_latex > 1 or (paper and by is not None):
        raise UsageError("--json, --csv, --markdown and --latex exclude each other, the last two also --by")
    if paper:
        print_paper_table(require_folder(word, run, "results"), latex=as_latex)
        return
    folder = require_results(require_folder(word, run, "results"))
    parts = None
    if by is not None:
        with open_run_reader(require_run_not_outputs(folder, f"scores by {by} (--by)")) as (run_reader, _):
            parts = break_down_scores_and_labels(run_reader, by)
    with open_folder_reader(folder, is_look=True) as (reader, notes):
        scores = read_results(reader, notes)
        labels = None if reader.planned is None else reader.planned.labels
    missing = find_missing_records(RunDir(folder))
    scores = msgspec.structs.replace(scores, missing=missing.sentences, notes=(*scores.notes, *missing.notes))
    if by is not None and parts is not None and not any(parts):
        streams.say(streams.messages(), results_view.explain_empty_breakdown(scores, by))
    if as_json:
        results_view.print_json(scores, parts)
    elif as_csv:
        results_view.print_csv(scores, parts)
    else:
        results_view.print_results_or_parts(scores, parts, streams.results(), labels)
    print_missing_records(missing, RunDir(folder), streams.messages())


def print_paper_table(folder: Path, *, latex: bool) -> None:
    """Print a paper's table of a run, of an output folder of eval-framework, or of a sweep. Raises
    UsageError: the folder is none of these."""
    if is_sweep(folder):
        [run] = read_training_curves({folder.name: folder})
        table = sweep_paper_table(run, compare_checkpoints([run]))
    else:
        with open_folder_reader(require_results(folder), is_look=True) as (reader, notes):
            scores = read_results(reader, notes)
            students = [row.student for row in scores.students if row.task is None and row.score is not None]
            compared = compare_sides(match_sides([reader], ())).comparisons if len(students) > 1 else ()
            labels = None if reader.planned is None else reader.planned.labels
        table = short_result_names(scores, labels).shorten_in(paper_table(scores, compared))
        for note in scores.notes:
            streams.warn(streams.messages(), note)
    sys.stdout.write((as_latex(table, "tab:scores") if latex else as_markdown(table)) + "\n")
