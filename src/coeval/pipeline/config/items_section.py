"""The sections of a task's items: their number, their table, the answers that exist."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from coeval.pipeline.config.values import (
    MODEL_NAME_PATTERN,
    NAME_PATTERN,
    Conditions,
    Pair,
    PairOrAll,
    PathText,
    TotalOrAll,
)

Name: TypeAlias = Annotated[str, Field(json_schema_extra={"pattern": NAME_PATTERN})]
ModelName: TypeAlias = Annotated[str, Field(json_schema_extra={"pattern": MODEL_NAME_PATTERN})]


class Section(BaseModel):
    """A mapping of the file: unknown keys are errors, values do not change after loading."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, protected_namespaces=()
    )


class Sampling(Section):
    """How many items, and how many attributes each of them samples."""

    target: Annotated[
        PairOrAll,
        Field(description="Target attributes per item: [lo, hi], or `all` to walk the full cross product."),
    ] = (1, 1)
    nuance: Annotated[Pair, Field(description="Nuanced attributes per item: [lo, hi].")] = (0, 0)
    total: Annotated[
        TotalOrAll,
        Field(
            description="Items per task and teacher, at most 10,000,000; `all` uses every row of `items`, "
            "and is what such a task has where nothing is said."
        ),
    ]
    seed: Annotated[int, Field(description="Seed of the sampling plan.")] = 0

    @property
    def most(self) -> int | None:
        """``total``, or None where all items that are there are used."""
        return None if self.total == "all" else self.total


class Stop(Section):
    """When a task asks for no more items: after looks of 20, by a test that holds at any look."""

    half_width: Annotated[
        float | None,
        Field(
            gt=0,
            lt=100,
            description="Points: enough is known of two students when their difference has an interval of "
            "at most so much to either side.",
        ),
    ] = None
    decided: Annotated[
        bool,
        Field(description="Enough is known of two students when their difference is significant."),
    ] = False
    min_items: Annotated[int, Field(ge=2, description="Items before the first decision.")] = 20


class TableSection(Section):
    """Files of the user's rows, and how they are read."""

    path: Annotated[
        PathText,
        Field(
            description="CSV, JSON lines, Parquet, or a folder of them, relative to the working directory."
        ),
    ]
    encoding: Annotated[str | None, Field(description="Of text that is not UTF-8, such as cp1252.")] = None
    delimiter: Annotated[
        str | None, Field(min_length=1, max_length=1, description="Of CSV, where it is an unusual one.")
    ] = None


class Items(TableSection):
    """A table of one's own whose rows are the task's items. Columns are named as they are called, parts of
    their values as `choices[0]`, several in a text as `{title}: {options.A}`."""

    prompt: Annotated[str, Field(min_length=1, description="Column of the prompt for students.")]
    reference: Annotated[
        str | None, Field(min_length=1, description="Column of the reference answer, shown to judges.")
    ] = None
    label: Annotated[
        str | None,
        Field(
            min_length=1,
            description="Column of the right answer, compared without a judge: an attribute and a label "
            "attribute of that name. Its values need not be declared.",
        ),
    ] = None
    attributes: Annotated[dict[str, str], Field(description="Attribute → column of its value.")] = {}
    id: Annotated[
        str | None, Field(min_length=1, description="Column of ids; without one rows are numbered.")
    ] = None
    choices: Annotated[
        str | None,
        Field(
            min_length=1,
            description="Column of choices, put below the prompt as A, B, C …; `reference` then names the "
            "right one, and an attribute or label of the same column is its letter.",
        ),
    ] = None
    where: Annotated[
        Conditions,
        Field(description="Rows to keep: `column = value`, or with !=, <, <=, >, >=; several in a list."),
    ] = ()
    limit: Annotated[int | None, Field(ge=1, description="Only the first N items.")] = None
    sample: Annotated[
        int | None,
        Field(
            ge=1,
            description="Number of items, drawn at random from all rows; with `limit`, at most that many.",
        ),
    ] = None
    seed: Annotated[int, Field(description="Seed of `sample`.")] = 0
    split: Annotated[str | None, Field(description="The split to read, if a folder has several.")] = None
    responses: Annotated[
        dict[ModelName, Annotated[str, Field(min_length=1)]],
        Field(description="Student → column of its existing answers; no model is called for them."),
    ] = {}
    skip_bad: Annotated[
        bool, Field(description="Skip bad rows; otherwise they are reported, and nothing starts.")
    ] = False
    license: Annotated[str | None, Field(description="Licence of the table, recorded with its source.")] = (
        None
    )

    @property
    def all_attributes(self) -> dict[str, str]:
        """With the label."""
        return {**self.attributes, **({self.label: self.label} if self.label is not None else {})}


class Documents(Section):
    """The user's documents, from whose passages teachers write the items of a task."""

    path: Annotated[
        PathText,
        Field(
            description="A file or folder of Markdown, text, HTML or PDF, relative to the working directory."
        ),
    ]
    chunk: Annotated[
        int,
        Field(
            ge=200,
            le=20_000,
            description="Most characters of a passage; it ends with a paragraph or sentence.",
        ),
    ] = 800
    per_item: Annotated[int, Field(ge=1, le=10, description="Passages that each item is about.")] = 1
    show: Annotated[
        bool,
        Field(
            description="Whether students see the passages above the question; `false` tests what they know "
            "or look up."
        ),
    ] = True
    closed_book: Annotated[
        bool,
        Field(
            description="Discard items that their teacher answers correctly without the passage; two more "
            "calls per item."
        ),
    ] = False


class AnswerTable(TableSection):
    """A table of answers that exist; a row belongs to the item of its id, or else of its prompt."""

    response: Annotated[
        str, Field(min_length=1, description="Column of the answer; an empty cell means no answer.")
    ]
    prompt: Annotated[
        str | None, Field(min_length=1, description="Column of the item's prompt; whitespace is ignored.")
    ] = None
    id: Annotated[
        str | None, Field(min_length=1, description="Column of the item's id, used instead of its prompt.")
    ] = None


class AnsweredStudent(Section):
    """A student whose answers exist; no model is called for them."""

    name: Annotated[ModelName, Field(description="Unique among models and students; shown in reports.")]
    responses: Annotated[AnswerTable, Field(description="The table of its answers.")]
    tasks: Annotated[
        list[str] | None, Field(min_length=1, description="The tasks it answers. Default: all.")
    ] = None
    label: Annotated[
        str | None,
        Field(min_length=1, max_length=30, description="What reports call it, as for a model."),
    ] = None
