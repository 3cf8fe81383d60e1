"""`coeval ingest`: items of one's own, out of a table, a data set or a named benchmark."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from coeval.cli.ingest_flags import IngestFlags
from coeval.cli.settings_flags import set_flags, with_settings
from coeval.core.errors import UsageError


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
    from coeval.cli.commands.ingest_report import list_benchmarks, take_in, write_new

    if list_all:
        list_benchmarks()
        return
    if source is None:
        raise UsageError("name a file, a folder, a benchmark or a data set; coeval ingest --help shows how")
    given = IngestFlags(**set_flags(context, IngestFlags))
    for name in ("prompt", "reference", "label", "id", "choices"):
        given.one(name)
    if given.append and given.replace:
        raise UsageError("--append and --replace exclude each other; give one of them")
    if given.new is not None and (given.append or given.replace):
        raise UsageError("--append and --replace are for items that stand in a run; --new puts none there")
    table = take_in(source, given)
    if table is not None and given.new is not None:
        write_new(given.new, given.task, table)
