"""`coeval ingest` and `coeval init`: items of one's own, and a new file about what somebody has."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from coeval.api import find_keys
from coeval.cli.command_names import KeyFile
from coeval.cli.commands.ingest_report import list_benchmarks, take_in, write_new
from coeval.cli.ingest_flags import INIT_GROUPS, IngestFlags, InitFlags, InitKind
from coeval.cli.settings_flags import GroupedCommand, set_flags, with_settings
from coeval.core.errors import UsageError
from coeval.core.settings import declared

KIND = GroupedCommand


@with_settings(IngestFlags)
def ingest(
    context: typer.Context,
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="SOURCE",
            help="A file (CSV, JSON lines, Parquet, plain or .gz), a folder of them, a benchmark (--list), "
            "or a data set of the Hugging Face hub (OWNER/NAME).",
        ),
    ] = None,
    list_all: Annotated[bool, typer.Option("--list", help="List the benchmarks, and end.")] = False,
    **flags: Any,  # noqa: ARG001  the context has them, and which of them were given
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
      coeval ingest arc-challenge --from ./ARC-Challenge --run runs/education-benchmark-v1
      coeval ingest --list
    """
    if list_all:
        list_benchmarks()
        return
    if source is None:
        raise UsageError("name a file, a folder, a benchmark or a data set; coeval ingest --help shows how")
    given = IngestFlags(**set_flags(context, IngestFlags))
    for name in ("prompt", "reference", "label", "id", "choices"):
        given.one(name)
    if given.new is not None and given.replace:
        raise UsageError("--replace is for items that stand in a run; --new puts none there")
    table = take_in(source, given)
    if table is not None and given.new is not None:
        write_new(given.new, given.task, table)


@with_settings(InitFlags)
def init(
    context: typer.Context,
    kind: Annotated[InitKind, typer.Argument(metavar="KIND", help="What you have.")],
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="SOURCE",
            help="The description, the table, the table of answers, the function (FILE.py:NAME), or the "
            "folder of checkpoints.",
        ),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="The file to write. Default: named after SOURCE."),
    ] = None,
    keys: KeyFile = None,
    **flags: Any,  # noqa: ARG001  the context has them, and which of them were given
) -> None:
    """Write an experiment file for your data, and price it.

    KIND is description, table, answers, function or checkpoints. The file has
    comments and is meant to be edited. No model is called; the file is checked
    and priced before it is written. `coeval wizard` is another name for this
    command.

    \b
    Examples:
      coeval init description "Answer a customer's message." my.yaml
      coeval init table tickets.csv --prompt text --label team
      coeval init answers log.csv --prompt question --response answer --student prod-v7
      coeval init function app.py:answer --items tickets.csv --prompt text
      coeval init checkpoints ckpts/run_a sweep.yaml --tasks ifeval,coeval:runs/quickstart

    \b
    Exit codes: 0 written, 1 wrong request, 130 interrupted (nothing is written).
    """
    from coeval.cli.commands.init_report import YAML_ENDINGS, write_new_file

    given = set_flags(context, InitFlags)
    for name in given:
        if (field := declared(InitFlags)[name]).setting.group not in INIT_GROUPS[kind]:
            raise UsageError(f"{field.flags[0]} does not apply to {kind}; see --help")
    if file is None and source is not None and Path(source).suffix in YAML_ENDINGS:
        file, source = Path(source), None
    write_new_file(kind, source, file, InitFlags(**given), find_keys(keys))
