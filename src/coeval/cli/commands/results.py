"""`coeval results`: a run's scores, again and in other shapes; nobody is asked."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import typer

from coeval.cli.command_names import RunFolder, RunWord, the_folder

ResultsPart: TypeAlias = Literal["factor", "attribute", "judge", "teacher"]


def results(
    word: RunWord = None,
    run: RunFolder = None,
    by: Annotated[ResultsPart | None, typer.Option("--by", help="Break the scores down.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="One line per score, for a spreadsheet.")] = False,
) -> None:
    """Show the scores of a run or of an `eval-framework` folder.

    No model is called. Every score has its number of items (n) and its 95%
    interval. If the run is unfinished, the look is recorded
    (docs/intervals.md); nothing else is written.

    \b
    Examples:
      coeval results --run ./runs/quickstart
      coeval results --run ./runs/quickstart --by judge
      coeval results --run ./runs/quickstart --json > scores.json
      coeval results --run ./runs/quickstart --by attribute --csv > attributes.csv
      coeval results --run ./outputs
    """
    import msgspec

    from coeval.core.errors import UsageError
    from coeval.core.process_limits import need_address_space
    from coeval.pipeline.existing_run import existing_results

    if as_json and as_csv:
        raise UsageError("--json and --csv exclude each other; give one of them")
    folder = existing_results(the_folder(word, run, "results"))
    need_address_space()
    # Here, because they load duckdb and numpy.
    from coeval.analysis.breakdown import Parts, breakdown, label_breakdown
    from coeval.analysis.load import need_run
    from coeval.analysis.scores import results as scores_of
    from coeval.cli import streams
    from coeval.cli.streams import say
    from coeval.cli.views import results_view
    from coeval.cli.views.gaps_view import tell_missing
    from coeval.pipeline.plan.run_reading import opened, reading
    from coeval.pipeline.upkeep.quick_look import look_for_gaps
    from coeval.store.rundir import RunDir

    parts = None
    if by is not None:
        with reading(need_run(folder, f"scores by {by} (--by)")) as (of_run, _):
            parts = Parts(breakdown(of_run, by), label_breakdown(of_run, by))
    with opened(folder, shown=True) as (reader, notes):
        found = scores_of(reader, notes)
    missing = look_for_gaps(RunDir(folder))
    found = msgspec.structs.replace(found, missing=missing.sentences, notes=(*found.notes, *missing.notes))
    if by is not None and parts is not None and not any(parts):
        say(streams.messages(), results_view.why_nothing(found, by))
    if as_json:
        results_view.print_json(found, parts)
    elif as_csv:
        results_view.print_csv(found, parts)
    else:
        results_view.print_tables(found, parts, streams.results())
    tell_missing(missing, RunDir(folder), streams.messages())
