"""The flags of `coeval ingest` and of `coeval init`, as records."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, TypeAlias

import msgspec

from coeval.core.errors import UsageError
from coeval.core.settings import Setting

_Text: TypeAlias = str | None
_Texts: TypeAlias = Sequence[str]
_Count: TypeAlias = Annotated[int, msgspec.Meta(ge=1)] | None


class IngestGroup(StrEnum):
    INTO = "Where the items go"
    COLUMNS = "Columns"
    ROWS = "Which rows"
    SOURCE = "The source"


_INTO, _COLUMNS, _ROWS, _SOURCE = IngestGroup


def _column(text: str, metavar: str = "COLUMN") -> Setting:
    return Setting(text, _COLUMNS, metavar=metavar, repeated=True)


class IngestFlags(msgspec.Struct, frozen=True, kw_only=True):
    """The flags of `coeval ingest`; ``single_value`` reads those that accept one column."""

    config: Annotated[Path | None, Setting("Experiment file whose run gets the items.", _INTO)] = None
    run: Annotated[Path | None, Setting("Run folder to import into.", _INTO)] = None
    new: Annotated[
        Path | None,
        Setting("Write an experiment file that takes its items from SOURCE.", _INTO, metavar="FILE"),
    ] = None
    task: Annotated[_Text, Setting("The task, if there are several.", _INTO)] = None
    teacher: Annotated[_Text, Setting("The benchmark teacher, if there are several.", _INTO)] = None
    replace: Annotated[bool, Setting("Replace existing items, which move to replaced/.", _INTO)] = False
    yes: Annotated[bool, Setting("Do not ask.", _INTO, flags=("--yes", "-y"))] = False
    dry_run: Annotated[bool, Setting("Read and check everything; write nothing.", _INTO)] = False
    prompt: Annotated[
        _Texts,
        _column(
            "The prompt for students. Also a template of columns: --prompt '{title}\\n\\n{body}'. Parts: "
            "options.A, choices[0]."
        ),
    ] = ()
    reference: Annotated[_Texts, _column("Reference answer, shown to judges.")] = ()
    label: Annotated[_Texts, _column("The right answer, compared without a judge.")] = ()
    attribute: Annotated[
        _Texts,
        _column(
            "An attribute of the items; may be repeated. Example: --attribute level=difficulty", "NAME=COLUMN"
        ),
    ] = ()
    response: Annotated[
        _Texts,
        _column(
            "Column of a student's existing answers, for --new; repeatable. Example: --response "
            "prod-v7=answer",
            "STUDENT=COLUMN",
        ),
    ] = ()
    id: Annotated[_Texts, _column("Ids; else rows are numbered.")] = ()
    choices: Annotated[
        _Texts,
        _column(
            "Choices, put below the prompt as A, B, C …; --reference names the right one, and an attribute "
            "or label of the same column is its letter."
        ),
    ] = ()
    where: Annotated[
        _Texts,
        Setting(
            'Keep rows matching this condition; repeatable. Example: --where "level = hard" --where '
            "'score >= 3'",
            _ROWS,
            metavar="CONDITION",
            repeated=True,
        ),
    ] = ()
    limit: Annotated[_Count, Setting("The first N items.", _ROWS, metavar="N")] = None
    sample: Annotated[_Count, Setting("N items at random.", _ROWS, metavar="N")] = None
    seed: Annotated[int, Setting("Seed of --sample.", _ROWS)] = 0
    skip_bad: Annotated[bool, Setting("Skip rows that cannot become items.", _ROWS)] = False
    local: Annotated[
        Path | None,
        Setting(
            "A copy of the benchmark's data; nothing is fetched.", _SOURCE, metavar="PATH", flags=("--from",)
        ),
    ] = None
    subset: Annotated[_Text, Setting("Subset of a Hub data set.", _SOURCE)] = None
    split: Annotated[_Text, Setting("Split of a data set. Example: --split test", _SOURCE)] = None
    encoding: Annotated[_Text, Setting("Encoding of text that is not UTF-8. Example: cp1252", _SOURCE)] = None
    delimiter: Annotated[_Text, Setting("Delimiter of CSV, if unusual.", _SOURCE, metavar="CHARACTER")] = None
    license: Annotated[_Text, Setting("License to record with the items.", _SOURCE)] = None

    def single_value(self, name: str) -> str | None:
        """Return the one value of a flag, None if unset; raises UsageError if there are two."""
        values: Sequence[str] = getattr(self, name)
        if len(values) > 1:
            raise UsageError(
                f"--{name} is given {len(values)} times ({', '.join(values)}), and takes one column"
            )
        return values[0] if values else None


# --- `coeval init`


class InitKind(StrEnum):
    """Kind of file that `coeval init` writes."""

    DESCRIPTION = "description"
    TABLE = "table"
    ANSWERS = "answers"
    FUNCTION = "function"
    CHECKPOINTS = "checkpoints"


class InitGroup(StrEnum):
    ALL = "All kinds but checkpoints"
    TABLE = "Items: table, answers, function"
    STUDENT = "The student: answers, function"
    ANSWERS = "Existing answers: answers"
    SWEEP = "The sweep: checkpoints"


_ALL, _TABLE, _STUDENT, _ANSWERS, _SWEEP = InitGroup


class InitFlags(msgspec.Struct, frozen=True, kw_only=True):
    """The flags of `coeval init`; `INIT_GROUPS` says which kinds read which."""

    model: Annotated[
        _Texts,
        Setting(
            "A model; repeatable. Default: simulated models. Example: --model "
            "openai/gpt-4o-mini=student,judge",
            _ALL,
            metavar="INTERFACE/MODEL",
            repeated=True,
        ),
    ] = ()
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
            "Column of item ids. Default: a column named like an id, else row numbers.",
            _TABLE,
            metavar="COLUMN",
        ),
    ] = None
    encoding: Annotated[_Text, Setting("Encoding of text that is not UTF-8, such as cp1252.", _TABLE)] = None
    skip_bad: Annotated[bool, Setting("Skip rows that cannot become items.", _TABLE)] = False
    items: Annotated[
        _Text, Setting("Table of the items. Default for answers: the same table.", _STUDENT, metavar="FILE")
    ] = None
    student: Annotated[_Text, Setting("Name of the student.", _STUDENT, metavar="NAME")] = None
    response: Annotated[_Text, Setting("Column of the answers.", _ANSWERS, metavar="COLUMN")] = None
    answers_prompt: Annotated[
        _Text,
        Setting("Column of the answered prompts, if --items is another table.", _ANSWERS, metavar="COLUMN"),
    ] = None
    tasks: Annotated[_Text, Setting("ifeval, coeval:RUN and others.", _SWEEP, metavar="NAME,…")] = None


INIT_GROUPS: dict[InitKind, tuple[InitGroup, ...]] = {
    InitKind.DESCRIPTION: (_ALL,),
    InitKind.TABLE: (_ALL, _TABLE),
    InitKind.ANSWERS: (_ALL, _TABLE, _STUDENT, _ANSWERS),
    InitKind.FUNCTION: (_ALL, _TABLE, _STUDENT),
    InitKind.CHECKPOINTS: (_SWEEP,),
}
"""The flags that each kind reads."""
