"""`coeval init`: an experiment file, or a sweep's, about what somebody has."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from coeval.cli.command_names import KeyFile
from coeval.cli.ingest_flags import INIT_GROUPS, InitFlags, InitKind
from coeval.cli.settings_flags import set_flags, with_settings
from coeval.core.errors import UsageError
from coeval.core.settings import declared


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
    from coeval.api import find_keys
    from coeval.cli.commands.init_report import write_new_file

    given = set_flags(context, InitFlags)
    for name in given:
        if (field := declared(InitFlags)[name]).setting.group not in INIT_GROUPS[kind]:
            raise UsageError(f"{field.flags[0]} does not apply to {kind}; see --help")
    if file is None and source is not None and Path(source).suffix in (".yaml", ".yml"):
        file, source = Path(source), None
    write_new_file(kind, source, file, InitFlags(**given), find_keys(keys))
