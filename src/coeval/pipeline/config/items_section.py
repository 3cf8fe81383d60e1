"""Sections of a task's items: sampling, tables of items and answers, documents."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from coeval.pipeline.config import values

Name: TypeAlias = Annotated[str, Field(json_schema_extra={"pattern": values.NAME_PATTERN})]
ModelName: TypeAlias = Annotated[str, Field(json_schema_extra={"pattern": values.MODEL_NAME_PATTERN})]


class Section(BaseModel):
    """A mapping of the file: unknown keys are errors, values are frozen."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, protected_namespaces=()
    )


class Sampling(Section):
    """How many items a task has, and how many attributes each samples."""

    target: values.PairOrAll = Field(
        default=(1, 1),
        description="Target attributes per item: [lo, hi], or `all` to walk the full cross product.",
    )
    nuance: values.Pair = Field(default=(0, 0), description="Nuanced attributes per item: [lo, hi].")
    total: values.TotalOrAll = Field(
        description="Items per task and teacher, at most 10,000,000; `all` uses every row of `items`, and "
        "is the default for such a task."
    )
    seed: int = Field(default=0, description="Seed of the sampling plan.")

    @property
    def max_items(self) -> int | None:
        """Return ``total`` as a number, or None if all rows of the table are used."""
        return None if self.total == "all" else self.total


class TableSection(Section):
    """Files of the user's rows, and how to read them."""

    path: values.PathText = Field(
        description="CSV, JSON lines, Parquet, or a folder of them, relative to the working directory."
    )
    encoding: str | None = Field(default=None, description="Encoding, if not UTF-8, such as cp1252.")
    delimiter: str | None = Field(
        default=None, min_length=1, max_length=1, description="Delimiter of CSV, if unusual."
    )


class Items(TableSection):
    """A table whose rows are the task's items. Columns go by name, parts of their values by `choices[0]`; a
    text may join several: `{title}: {options.A}`."""

    prompt: str = Field(min_length=1, description="Column of the prompt for students.")
    reference: str | None = Field(
        default=None, min_length=1, description="Column of the reference answer, shown to judges."
    )
    label: str | None = Field(
        default=None,
        min_length=1,
        description="Column of the right answer, compared without a judge: an attribute and a label "
        "attribute of that name. Its values need not be declared.",
    )
    attributes: values.AttributeColumns = Field(
        default={}, description="Attribute → column of its value; or a list of columns of the same names."
    )
    id: str | None = Field(
        default=None, min_length=1, description="Column of ids. Default: rows are numbered."
    )
    choices: str | None = Field(
        default=None,
        min_length=1,
        description="Column of choices, put below the prompt as A, B, C …; `reference` then names the right "
        "one, and an attribute or label of the same column is its letter.",
    )
    where: values.Conditions = Field(
        default=(), description="Rows to keep: `column = value`, or with !=, <, <=, >, >=; several in a list."
    )
    limit: int | None = Field(default=None, ge=1, description="Only the first N items.")
    sample: int | None = Field(
        default=None,
        ge=1,
        description="Number of items, drawn at random from all rows; with `limit`, at most that many.",
    )
    seed: int = Field(default=0, description="Seed of `sample`.")
    split: str | None = Field(default=None, description="The split to read, if a folder has several.")
    responses: dict[ModelName, Annotated[str, Field(min_length=1)]] = Field(
        default={}, description="Student → column of its existing answers; no model is called for them."
    )
    skip_bad: bool = Field(
        default=False, description="Skip bad rows; otherwise they are reported and nothing starts."
    )
    license: str | None = Field(default=None, description="Licence of the table, recorded with its source.")


class Documents(Section):
    """The user's documents, from whose passages teachers write the items of a task."""

    path: values.PathText = Field(
        description="A file or folder of Markdown, text, HTML or PDF, relative to the working directory."
    )
    chunk: int = Field(
        default=800,
        ge=200,
        le=20_000,
        description="Maximum length of a passage in characters; it ends with a paragraph or sentence.",
    )
    per_item: int = Field(default=1, ge=1, le=10, description="Passages per item.")
    show: bool = Field(
        default=True,
        description="Whether students see the passages above the question; `false` tests what they know or "
        "look up.",
    )


class AnswerTable(TableSection):
    """A table of existing answers; a row belongs to the item of its id, or else of its prompt."""

    response: str = Field(min_length=1, description="Column of the answer; an empty cell means no answer.")
    prompt: str | None = Field(
        default=None, min_length=1, description="Column of the item's prompt; whitespace is ignored."
    )
    id: str | None = Field(
        default=None, min_length=1, description="Column of the item's id, used instead of its prompt."
    )


class AnsweredStudent(Section):
    """A student with existing answers; no model is called for them."""

    name: ModelName = Field(description="Unique among models and students; shown in reports.")
    responses: AnswerTable = Field(description="The table of its answers.")
    tasks: list[str] | None = Field(
        default=None, min_length=1, description="The tasks it answers. Default: all."
    )
    label: str | None = Field(
        default=None, min_length=1, max_length=30, description="Name in reports, as for a model."
    )
