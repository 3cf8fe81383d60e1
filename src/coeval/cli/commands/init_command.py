"""`coeval init`: an experiment file, or a sweep's, made of what somebody has."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import msgspec
import typer

from coeval.cli.command_names import KeyFile
from coeval.cli.settings_flags import set_flags, with_settings
from coeval.core.settings import Setting

_Text: TypeAlias = str | None
_Texts: TypeAlias = Sequence[str]


class InitGroup(StrEnum):
    HAVE = "What you have"
    ALL = "The experiment"
    MODELS = "Items that models write (--description)"
    TABLE = "A table (--items, --answers)"
    SWEEP = "A sweep (--checkpoints)"


_HAVE, _ALL, _MODELS, _TABLE, _SWEEP = InitGroup


class InitFlags(msgspec.Struct, frozen=True, kw_only=True):
    """Each flag answers the question of its name; all are read as the answers in a terminal are."""

    description: Annotated[_Text, Setting("What the models should do.", _HAVE, metavar="TEXT")] = None
    items: Annotated[_Text, Setting("Items: CSV, JSON lines, Parquet.", _HAVE, metavar="FILE")] = None
    answers: Annotated[
        _Text, Setting("Answers that exist; their prompts, or --items, are the items.", _HAVE, metavar="FILE")
    ] = None
    checkpoints: Annotated[_Text, Setting("Folder of a training run.", _HAVE, metavar="DIR")] = None
    name: Annotated[_Text, Setting("Name of the experiment.", _ALL)] = None
    model: Annotated[
        _Texts,
        Setting(
            "A model; repeatable. Example: --model openai/gpt-4o-mini=student,judge",
            _ALL,
            metavar="INTERFACE/MODEL",
            repeated=True,
        ),
    ] = ()
    budget: Annotated[_Text, Setting("Budget in US dollars.", _ALL, metavar="USD")] = None
    task: Annotated[_Text, Setting("A short name of the task.", _MODELS, metavar="NAME")] = None
    output: Annotated[_Text, Setting("What a good answer looks like.", _MODELS, metavar="TEXT")] = None
    labels: Annotated[
        _Text, Setting("Answers are labels, such as 'team: billing, sales'.", _MODELS, metavar="NAME: A, B")
    ] = None
    attribute: Annotated[
        _Texts,
        Setting(
            "An attribute in which items vary; repeatable.", _MODELS, metavar="NAME: A, B", repeated=True
        ),
    ] = ()
    factor: Annotated[
        _Texts, Setting("A criterion to judge by; repeatable.", _MODELS, metavar="NAME: TEXT", repeated=True)
    ] = ()
    total: Annotated[_Text, Setting("Items per teacher.", _MODELS, metavar="N")] = None
    prompt: Annotated[_Text, Setting("Column of the prompts.", _TABLE, metavar="COLUMN")] = None
    label: Annotated[
        _Text, Setting("Column of the right label; needs no judge.", _TABLE, metavar="COLUMN")
    ] = None
    reference: Annotated[
        _Text, Setting("Column of a reference answer, for judges.", _TABLE, metavar="COLUMN")
    ] = None
    id: Annotated[
        _Text,
        Setting(
            "Column of item ids; without it, one named like an id, else numbers.", _TABLE, metavar="COLUMN"
        ),
    ] = None
    response: Annotated[_Text, Setting("Of the answers.", _TABLE, metavar="COLUMN")] = None
    answers_prompt: Annotated[
        _Text, Setting("Column of their prompts, if --items is another table.", _TABLE, metavar="COLUMN")
    ] = None
    student: Annotated[_Text, Setting("Name of the student with these answers.", _TABLE, metavar="NAME")] = (
        None
    )
    encoding: Annotated[_Text, Setting("Of text that is not UTF-8, such as cp1252.", _TABLE)] = None
    skip_bad: Annotated[bool, Setting("Leave out rows that make no item.", _TABLE)] = False
    tasks: Annotated[_Text, Setting("ifeval, coeval:RUN and others.", _SWEEP, metavar="NAME,…")] = None
    judge: Annotated[_Text, Setting("Such as gpt-4.1@https://api.openai.com/v1.", _SWEEP)] = None
    results: Annotated[_Text, Setting("Folder of the results.", _SWEEP, metavar="DIR")] = None


@with_settings(InitFlags)
def init(
    context: typer.Context,
    out: Annotated[
        Path | None, typer.Option("--out", help="The file to write. Example: --out my.yaml", metavar="FILE")
    ] = None,
    keys: KeyFile = None,
    **answers: Any,  # noqa: ARG001  the context has them, and which of them were given
) -> None:
    """Write an experiment file for your data, and price it.

    In a terminal it asks questions; Return accepts the answer in brackets. With
    --description, --items, --answers or --checkpoints it asks nothing: flags and
    defaults answer. No model is called; the file is checked and priced before it
    is written. `coeval wizard` is another name of this command.

    \b
    Examples:
      coeval init
      coeval init --description "Answer a customer's message." --model openai/gpt-4o-mini --out my.yaml
      coeval init --items tickets.csv --prompt text --label team --out tickets.yaml
      coeval init --answers log.csv --prompt question --response answer --student prod-v7 --out log.yaml
      coeval init --checkpoints ckpts/run_a --tasks ifeval,coeval:runs/quickstart --out sweep.yaml

    \b
    Exit codes: 0 written, 1 wrong request, 130 interrupted (nothing is written).
    """
    from coeval.api import find_keys
    from coeval.cli import streams
    from coeval.cli.commands.interview import Questions, write_for
    from coeval.pipeline.upkeep.new_experiment import usable_name

    given = {
        f"--{flag.replace('_', '-')}": [str(value)] if isinstance(value, str | bool) else [*value]
        for flag, value in set_flags(context, InitFlags).items()
    }
    if out is not None and "--name" not in given:
        given["--name"] = [usable_name(out.stem) or "my-benchmark"]
    asks = not given.keys() & {"--description", "--items", "--answers", "--checkpoints"}
    write_for(Questions(streams.messages(), given, asks=asks), out, find_keys(keys))
