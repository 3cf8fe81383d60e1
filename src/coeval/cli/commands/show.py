"""`coeval show`: prints items with their answers and judgments, as models wrote them."""

from __future__ import annotations

import sys
from difflib import get_close_matches
from shlex import quote
from typing import Annotated

import typer

from coeval.analysis.judged_answers import AnswerChoice, Order, read_chosen_answers
from coeval.analysis.readers.run_reader import RunReader
from coeval.cli import streams
from coeval.cli.command_names import RunFolder, RunWord, require_folder
from coeval.cli.views.answer_view import AnswerView, answer_json_lines
from coeval.core.errors import UsageError
from coeval.pipeline.plan.run_reading import open_run_reader
from coeval.store.output_folder import require_run

# What fits on a screen with its answers and judgments.
_DEFAULT_LIMIT = 10


def show(
    word: RunWord = None,
    run: RunFolder = None,
    student: Annotated[
        list[str] | None,
        typer.Option(help="Only this student's answers; repeatable. Example: --student llama"),
    ] = None,
    task: Annotated[
        list[str] | None, typer.Option(help="Only answers in this task; repeatable. Example: --task triage")
    ] = None,
    worst: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="The N answers with the lowest scores.")
    ] = None,
    disagreement: Annotated[
        bool, typer.Option("--disagreement", help="Only answers that judges disagree on, most first.")
    ] = False,
    identity: Annotated[
        str | None,
        typer.Option(
            "--id",
            metavar="ID",
            help="An item with all its answers, or one answer; your own items also by the id in their "
            "file. Example: --id t__a__00001",
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="At most N answers.",
            show_default=f"{_DEFAULT_LIMIT}; all with --json or --id",
        ),
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Show long texts in full.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON line per answer, with all its fields.")
    ] = False,
) -> None:
    """Show items with their answers and judgments.

    Each item has its prompt, reference, answers, and every judge's scores and
    reasons. In pairwise runs, comparisons are below the answer that was shown
    first. Model output is shown as text, with control characters escaped. An
    answer's score is the mean over judges and factors; its disagreement is the
    highest minus the lowest score, averaged over factors.

    \b
    Examples:
      coeval show --run ./runs/quickstart --worst 5 --student sim-small
      coeval show --run ./runs/quickstart --disagreement --task explain_concept
      coeval show --run ./runs/quickstart --id explain_concept__sim-large__00003
      coeval show --run ./runs/quickstart --json > answers.jsonl
    """
    if worst is not None and disagreement:
        raise UsageError("--worst and --disagreement exclude each other; give one of them")
    folder = require_run(require_folder(word, run, "show"))

    most = min(filter(None, (worst, limit)), default=None if as_json or identity else _DEFAULT_LIMIT)
    order: Order = "worst" if worst is not None else "disagreement" if disagreement else "id"
    choice = AnswerChoice(tuple(student or ()), tuple(task or ()), identity, order, most)
    messages = streams.messages()
    with open_run_reader(folder) as (reader, notes):
        for note in (*reader.notes(), *notes):
            streams.warn(messages, note)
        (chosen, fitting), planned = read_chosen_answers(reader, choice), reader.planned
        if not chosen:
            streams.say(messages, _explain_no_answers_or_refuse(reader, choice))
    if as_json:
        sys.stdout.writelines(f"{line}\n" for line in answer_json_lines(chosen))
    else:
        AnswerView(streams.results(), whole=full, planned=planned).show(chosen)
    if worst is None and (left := fitting - len(chosen)):
        streams.say(messages, f"{left:,} more answers; --limit {fitting} shows all of them", "dim")


def _explain_no_answers_or_refuse(reader: RunReader, choice: AnswerChoice) -> str:
    """Say why no answer fits. Raises UsageError: the run has no such name or id."""
    if choice.id is not None:
        raise UsageError(
            f"--id {choice.id}: no item or answer in {reader.run.path} has this id; "
            f"coeval show --run {quote(str(reader.run.path))} shows some"
        )
    for flag, names, sql in (
        ("--student", choice.students, "SELECT DISTINCT model FROM answers ORDER BY ALL"),
        ("--task", choice.tasks, "SELECT DISTINCT task FROM items ORDER BY ALL"),
    ):
        names_in_run = [name for (name,) in reader.rows(sql)]
        for name in names:
            if name not in names_in_run:
                near = get_close_matches(name, names_in_run, n=1)
                there = f"there are {', '.join(names_in_run) or 'none yet'}"
                hint = f"did you mean {near[0]}?" if near else there
                raise UsageError(f"{flag} {name}: {reader.run.path} has no such name; {hint}")
    if choice.order == "disagreement":
        return "nothing to show: no two judges disagree on any answer"
    return "nothing to show: no answer matches"
