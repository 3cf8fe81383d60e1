"""`coeval ingest`: items of one's own, out of a table, a data set or a named benchmark."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def ingest(
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="SOURCE",
            help="A file (CSV, JSON lines, Parquet, plain or .gz), a folder of them, a benchmark (--list), "
            "or a data set of the Hugging Face hub (OWNER/NAME).",
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", help="Experiment file whose run gets the items."),
    ] = None,
    run: Annotated[Path | None, typer.Option("--run", help="Run folder that gets them.")] = None,
    new: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write an experiment file that takes its items from SOURCE."),
    ] = None,
    task: Annotated[str | None, typer.Option(help="Which task, where there are several.")] = None,
    teacher: Annotated[
        str | None,
        typer.Option(help="Which benchmark teacher, where there are several."),
    ] = None,
    append: Annotated[
        bool,
        typer.Option("--append", help="Add to the existing items."),
    ] = False,
    replace: Annotated[
        bool,
        typer.Option("--replace", help="Replace existing items, which move to replaced/."),
    ] = False,
    prompt: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN",
            help="The prompt for students. Also a template of columns: --prompt '{title}\\n\\n{body}'. "
            "Parts: "
            "options.A, choices[0].",
        ),
    ] = None,
    reference: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="Reference answer, shown to judges."),
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="The right answer, compared without a judge."),
    ] = None,
    attribute: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=COLUMN",
            help="An attribute of the items; may be repeated. Example: --attribute level=difficulty",
        ),
    ] = None,
    response: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STUDENT=COLUMN",
            help="Column of a student's existing answers, for --new; repeatable. Example: --response "
            "prod-v7=answer",
        ),
    ] = None,
    own_id: Annotated[
        list[str] | None,
        typer.Option("--id", metavar="COLUMN", help="Ids; else rows are numbered."),
    ] = None,
    choices: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN",
            help="Choices, put below the prompt as A, B, C …; --reference names the right one, and an "
            "attribute or label of the same column is its letter.",
        ),
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CONDITION",
            help='Keep rows matching this condition; repeatable. Example: --where "level = hard" --where '
            "'score >= 3'",
        ),
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, metavar="N", help="The first N items.")] = None,
    sample: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="N items at random."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of --sample.")] = 0,
    skip_bad: Annotated[
        bool,
        typer.Option("--skip-bad", help="Leave out rows that make no item."),
    ] = False,
    local: Annotated[
        Path | None,
        typer.Option("--from", metavar="PATH", help="A copy of the benchmark's data; nothing is fetched."),
    ] = None,
    subset: Annotated[
        str | None, typer.Option(help="Subset of a data set: of the hub, or a folder below yours.")
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(help="Split of a data set. Example: --split test"),
    ] = None,
    encoding: Annotated[
        str | None,
        typer.Option(help="Of text that is not UTF-8. Example: cp1252"),
    ] = None,
    delimiter: Annotated[
        str | None,
        typer.Option(metavar="CHARACTER", help="Of CSV, where it is unusual."),
    ] = None,
    license_of: Annotated[
        str | None,
        typer.Option("--license", help="Kept with the items' source."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Read and check all, write nothing.")] = False,
    list_all: Annotated[bool, typer.Option("--list", help="List the benchmarks, and end.")] = False,
) -> None:
    """Import items from a table, a data set or a benchmark.

    It shows the first three items and, in a terminal, asks before it writes. Bad
    rows are reported by line, and nothing is written. Without --prompt, the
    columns of prompt and reference are found by their usual names.

    \b
    Examples:
      coeval ingest reviews.csv --prompt text --label sentiment --new reviews.yaml
      coeval ingest qa.jsonl --prompt question --reference answer --config my.yaml
      coeval ingest exam.parquet --choices options --reference key --sample 200 --config my.yaml
      coeval ingest gsm8k --sample 100 --config my.yaml --task maths
      coeval ingest arc-challenge --from ./ai2_arc --run runs/education-benchmark-v1
      coeval ingest --list
    """
    from coeval.cli.commands.ingest_report import Columns, Into, list_benchmarks, take_in, write_new
    from coeval.core.errors import UsageError
    from coeval.tables.harvest import Selection
    from coeval.tables.table_source import SourceChoice

    if list_all:
        list_benchmarks()
        return
    if source is None:
        raise UsageError("name a file, a folder, a benchmark or a data set; coeval ingest --help shows how")
    if append and replace:
        raise UsageError("--append and --replace exclude each other; give one of them")
    if new is not None and (append or replace):
        raise UsageError("--append and --replace are for items that stand in a run; --new puts none there")
    columns = Columns(
        prompt=_only("--prompt", prompt),
        reference=_only("--reference", reference),
        label=_only("--label", label),
        attributes=tuple(attribute or ()),
        id=_only("--id", own_id),
        choices=_only("--choices", choices),
        where=tuple(where or ()),
        responses=tuple(response or ()),
    )
    into = Into(config, run, new, task, teacher)
    choice = SourceChoice(
        name=source, local=local, subset=subset, split=split, encoding=encoding, delimiter=delimiter
    )
    how = {"skip_bad": skip_bad, "dry_run": dry_run, "append": append, "replace": replace, "yes": yes}
    table = take_in(choice, columns, into, Selection(limit, sample, seed), {**how, "license": license_of})
    if table is not None and new is not None:
        write_new(new, task, table)


def _only(flag: str, given: list[str] | None) -> str | None:
    """The one value of a flag; raises UsageError where there are two, of which one would be lost."""
    from coeval.core.errors import UsageError

    if given is not None and len(given) > 1:
        raise UsageError(f"{flag} is given {len(given)} times ({', '.join(given)}), and takes one column")
    return given[0] if given else None
