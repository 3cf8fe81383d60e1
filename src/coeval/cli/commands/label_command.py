"""`coeval label`: people label randomly drawn answers, in a browser or in a sheet."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from coeval.cli import streams
from coeval.cli.command_names import NoToken, OpenIt, Port, RunFolder, RunWord, require_folder, split_names
from coeval.cli.commands.view_command import serve_pages
from coeval.core.errors import UsageError
from coeval.core.text import pluralize
from coeval.reports.label_session import LabelRequest, LabelSession, read_levels_by_question
from coeval.reports.label_sheet import check_new_sheet, read_label_sheet_and_problems, write_label_sheet
from coeval.reports.view.label_app import make_label_app
from coeval.reports.view.view_app import ViewToken
from coeval.store.output_folder import list_output_tasks, require_run


def label(
    word: RunWord = None,
    run: RunFolder = None,
    n: Annotated[
        int | None,
        typer.Option(min=1, help="Number of answers to draw.", show_default="those drawn before, else 200"),
    ] = None,
    factor: Annotated[list[str] | None, typer.Option(help="Only this factor; may be repeated.")] = None,
    by: Annotated[str, typer.Option(help="Who labels.")] = "me",
    among: Annotated[
        str, typer.Option(help="Everybody who shares the draw. Example: --among anna,ben --by ben")
    ] = "",
    overlap: Annotated[
        float, typer.Option(min=0, max=1, help="Share of the draw that all of them label.")
    ] = 0.2,
    seed: Annotated[int, typer.Option(help="Seed of the draw.")] = 0,
    item: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ID", help="Label all answers to this item, not a draw; these labels enter no estimate."
        ),
    ] = None,
    sheet: Annotated[
        Path | None, typer.Option(help="Write a CSV sheet to fill in. Example: --sheet labels.csv")
    ] = None,
    read: Annotated[Path | None, typer.Option(help="Read a sheet back.")] = None,
    port: Port = 7576,
    open_it: OpenIt = False,
    no_token: NoToken = False,
) -> None:
    """Label a random sample of answers, blind to student and judges.

    Without --sheet and --read it serves a page to this machine: keys 1 to 9 enter
    a level, u undoes the last one, Ctrl-C ends it. The same command continues
    where you stopped. Labels go to labels.jsonl in the run's folder; coeval
    analyze calibration then measures the judges against them.

    \b
    Examples:
      coeval label ./runs/quickstart --open
      coeval label ./runs/quickstart --n 60 --by anna --sheet labels.csv
      coeval label ./runs/quickstart --by anna --read labels.csv
      coeval label ./runs/quickstart --n 200 --among anna,ben --by ben --sheet ben.csv
    """
    if sheet is not None and read is not None:
        raise UsageError("--sheet and --read exclude each other; give one of them")
    if item and (n is not None or among):
        raise UsageError("--item picks answers by hand; leave out --n and --among, which draw them")
    path = require_folder(word, run, "label")
    if list_output_tasks(path):
        raise UsageError(
            f"{path} has no rubric to label by. To turn its answers into a run: coeval "
            f"export {quote(str(path))} --to csv --out tables, then coeval init answers tables/scores.csv "
            "--prompt prompt --response text (docs/exchange.md)"
        )
    folder = require_run(path)

    if sheet is not None:  # before anything is drawn
        check_new_sheet(sheet, read_levels_by_question(folder, by))
    chosen, people = tuple(factor or ()), split_names(among)
    request = LabelRequest(by, n, chosen, seed, people, overlap, draws=read is None, items=tuple(item or ()))
    session = LabelSession(folder, request)
    if sheet is not None:
        _write_sheet(session, sheet)
    elif read is not None:
        _read_sheet_and_store_labels(session, read)
    else:
        _serve_labelling(session, port, open_it=open_it, no_token=no_token)


def _serve_labelling(session: LabelSession, port: int, *, open_it: bool, no_token: bool) -> None:
    token, messages = None if no_token else ViewToken(), streams.messages()
    done, total = len(session.levels_by_id), len(session.questions)

    def announce() -> None:
        streams.say(messages, f"{done:,} of {total:,} labelled by {session.by}; Ctrl-C ends it", "dim")

    serve_pages(make_label_app(session, token), token, port, announce, open_it=open_it)
    if session.levels_by_id:
        streams.say(messages, f"then: coeval analyze calibration {quote(str(session.path))}")


def _write_sheet(session: LabelSession, path: Path) -> None:
    write_label_sheet(path, session.questions, session.levels_by_id)
    run, rows, messages = quote(str(session.path)), len(session.questions), streams.messages()
    streams.say(messages, f"written: {path}, {rows:,} rows; fill in the column level")
    streams.say(messages, f"then: coeval label {run} --by {session.by} --read {quote(str(path))}")


# A screen of sentences.
_MOST_PROBLEMS = 20


def _read_sheet_and_store_labels(session: LabelSession, path: Path) -> None:
    """Store a sheet's labels, and print its problems and what is left; exit code 1 with problems."""
    sheet, messages = (
        read_label_sheet_and_problems(path, session.questions, session.levels_by_id),
        streams.messages(),
    )
    session.append_labels(sheet.labels)
    for problem in sheet.problems[:_MOST_PROBLEMS]:
        streams.warn(messages, problem)
    if len(sheet.problems) > _MOST_PROBLEMS:
        streams.warn(messages, f"and {len(sheet.problems) - _MOST_PROBLEMS:,} more rows")
    labels, rows = pluralize(len(sheet.labels), "label"), pluralize(sheet.empty, "row")
    done = f"{len(session.levels_by_id):,} of {len(session.questions):,} are labelled"
    streams.say(messages, f"kept {labels} of {session.by}; {rows} without a level; {done}")
    if sheet.kept:
        keep = f"{sheet.kept:,} keep the one they had; write another to change it"
        streams.say(messages, f"of the rows without a level, {keep}")
    if sheet.problems:
        raise typer.Exit(1)
