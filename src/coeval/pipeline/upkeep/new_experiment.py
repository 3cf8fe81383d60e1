"""The text of a new experiment file, for `coeval init` and `coeval ingest --new`: short, with comments."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any, NamedTuple

from coeval.core.plain import cut_middle
from coeval.core.yaml_text import yaml_line
from coeval.judging.labels import LabelValues
from coeval.tables.harvest import Selection
from coeval.tables.item_map import ItemMap, guess_id_columns
from coeval.tables.source_bytes import TableRow
from coeval.tables.table import Table
from coeval.tables.table_source import SourceChoice, TableSource

# Characters of an id in a message.
_LONGEST_ID = 40
# Labels that a prompt names: about a thousand tokens, in every request.
MOST_NAMED = 300

SIMULATED, FUNCTION = "simulated", "python"


class NewModel(NamedTuple):
    """A model of a new file. ``options`` are its parameters beside the identifier, such as ``callable``."""

    name: str
    interface: str
    model: str
    base_url: str | None
    roles: tuple[str, ...]
    options: Mapping[str, float | str] = {}


def simulated_models(roles: Collection[str]) -> tuple[NewModel, ...]:
    """Make models that need no key, for a file that runs at once."""
    if "teacher" in roles:
        sizes = {"large": 0.85, "medium": 0.6, "small": 0.35}
        return tuple(
            _simulated_model(size, ("teacher", "student", "judge"), skill=skill)
            for size, skill in sizes.items()
        )
    students = (
        _simulated_model("large", ("student",), skill=0.85),
        _simulated_model("small", ("student",), skill=0.35),
    )
    return (
        *(students if "student" in roles else ()),
        *([_simulated_model("judge", ("judge",))] if "judge" in roles else []),
    )


def _simulated_model(name: str, roles: tuple[str, ...], **options: float) -> NewModel:
    return NewModel(f"sim-{name}", SIMULATED, f"sim-{name}", None, roles, options)


class IdColumnFinder:
    """Finds the column that identifies rows while tables are read: named like an id, other in each row by 8
    bytes of a hash. ``rejected``: column → why it is none."""

    def __init__(self, columns: Collection[str]) -> None:
        self.rejected: dict[str, str] = {}
        self._seen: dict[str, set[bytes]] = {name: set() for name in guess_id_columns(columns)}

    @property
    def column(self) -> str | None:
        return next(iter(self._seen), None)

    def watch_tables(self, tables: Iterable[Table]) -> Iterator[Table]:
        for table in tables:
            yield replace(table, rows=self._watch_rows(table.rows))

    def _watch_rows(self, rows: Iterator[TableRow]) -> Iterator[TableRow]:
        for row in rows:
            if isinstance(row.fields, dict):
                for name in [*self._seen]:
                    if reason := self._remember_id_or_problem(name, row.fields.get(name)):
                        del self._seen[name]
                        self.rejected[name] = f"{reason} (line {row.line})"
            yield row

    def _remember_id_or_problem(self, name: str, value: Any) -> str:
        """Remember a value; return why its column identifies no rows, or ""."""
        if isinstance(value, bool | float) or not isinstance(value, str | int) or not str(value).strip():
            return f"{name} is empty or not an id"
        key = blake2b(str(value).encode(), digest_size=8).digest()
        if key in self._seen[name]:
            return f"{name} has {cut_middle(str(value), _LONGEST_ID)} twice"
        self._seen[name].add(key)
        return ""


@dataclass(frozen=True, slots=True)
class NewItems:
    """The table of a new experiment file. ``labels``: column of right answers → its values; without any, a
    judge is asked. ``responses``: student → column of existing answers; no other student is named then.
    ``license``: as the user states it, else empty."""

    choice: SourceChoice
    source: TableSource
    map: ItemMap
    chosen: Selection
    labels: Mapping[str, Sequence[str]]
    skip_bad: bool = False
    license: str = ""
    responses: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewExperiment:
    """A new experiment file. ``items`` are the keys of a task's `items`; without them teachers write items
    and rubric. ``answered``: student with existing answers → the keys of its `responses`."""

    by: str
    name: str
    task: str
    description: str
    output: str
    models: Sequence[NewModel]
    rubric: Mapping[str, str] = field(default_factory=dict)
    items: Mapping[str, Any] = field(default_factory=dict)
    answered: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    budget_usd: float | None = None


def experiment_from_table(
    by: str, name: str, table: NewItems, models: Sequence[NewModel] | None = None
) -> NewExperiment:
    """Make the experiment of a table, with one task of the same name; without ``models``, simulated ones."""
    identifier = clean_task_name(name) or "items"
    description, output = _describe_task_and_output(table.map, table.labels)
    roles = [*([] if table.responses else ["student"]), *([] if table.labels else ["judge"])]
    against = "agrees with the reference" if table.map.reference is not None else "is right and complete"
    return NewExperiment(
        by=by,
        name=identifier,
        task=identifier,
        description=description,
        output=output,
        models=simulated_models(roles) if models is None else models,
        rubric={} if table.labels else {"accuracy": f"The answer {against}."},
        items=dict(_list_item_keys(table)),
    )


def write_experiment_text(new: NewExperiment) -> str:
    """Write the text of the file; `read_config` checks it."""
    parts = (
        _write_models(new.models),
        _write_existing_answers(new),
        _write_task(new),
        _write_experiment(new),
    )
    head = f"# Written by `{new.by}`; docs/configuration.md explains each key."
    return "\n".join([head, *(line for part in parts if (lines := [*part]) for line in ("", *lines))]) + "\n"


_SWEEP_NOTES = {
    "checkpoints": "a folder for each step",
    "tasks": "coeval:RUN is a benchmark of your own",
    "out": "results; the same command goes on from there",
    "judge_model": "for tasks that rules cannot score",
    "judge_base_url": "the server that has it",
}


def write_sweep_text(settings: Mapping[str, Any]) -> str:
    head = "# Written by `coeval init`; docs/sweeps.md explains each key, which is a flag of the command too."
    rows = [(f"{key}: {yaml_line(value)}", _SWEEP_NOTES[key]) for key, value in settings.items()]
    return "\n".join([head, "", *(f"{row:<40}  # {note}" for row, note in rows)]) + "\n"


def _write_models(models: Sequence[NewModel]) -> Iterator[str]:
    """Write the section ``models``."""
    if models:
        written = any("teacher" in model.roles for model in models)
        items = "Teachers write items, students answer them" if written else "Students answer the items"
        yield f"# {items}, judges score the answers."
        yield "models:"
    if any(model.interface == SIMULATED for model in models):
        yield "  # Simulated models need neither key nor network, and make up what they say. Replace them by"
        yield "  # yours: {name: gpt, interface: openai, roles: [student], parameters: {model: gpt-4o-mini}}"
    for model in models:
        if model.interface in (SIMULATED, FUNCTION):
            own = {} if model.model == model.name else {"model": model.model}
            row = {"name": model.name, "interface": model.interface, "roles": [*model.roles]}
            parameters = {**own, **model.options}
            yield f"  - {yaml_line({**row, 'parameters': parameters} if parameters else row)}"
            continue
        yield f"  - name: {yaml_line(model.name)}"
        yield f"    interface: {model.interface}"
        yield f"    roles: {yaml_line([*model.roles])}"
        yield "    parameters:"
        yield f"      model: {yaml_line(model.model)}"
        if model.base_url is not None:
            yield f"      base_url: {yaml_line(model.base_url)}"
        yield "      temperature: 0.7"
        yield "      max_tokens: 1024          # longer answers are cut off, and reported"
        if "judge" in model.roles:
            yield "    role_parameters:"
            yield "      judge: {temperature: 0.0}"


def _write_existing_answers(new: NewExperiment) -> Iterator[str]:
    if new.answered:
        yield "students:                     # existing answers: no calls"
    for name, table in new.answered.items():
        yield f"  - name: {yaml_line(name)}"
        yield f"    responses: {yaml_line(dict(table))}"


def _write_task(new: NewExperiment) -> Iterator[str]:
    """Write the section ``tasks``."""
    yield "tasks:"
    yield f"  - name: {yaml_line(new.task)}"
    yield f"    description: {yaml_line(new.description)}"
    if new.output:
        yield f"    output_description: {yaml_line(new.output)}"
    if not new.items:
        yield from _WRITTEN_ITEMS
        return
    yield "    items:"
    yield from (f"      {key}: {yaml_line(value)}" for key, value in new.items.items())
    if new.rubric:
        yield "    rubric:                   # what High means; judges answer High, Medium or Low"
        yield from (
            f"      {yaml_line(factor)}: {yaml_line(criterion)}" for factor, criterion in new.rubric.items()
        )


_WRITTEN_ITEMS = (
    "    target_attributes: auto   # the teachers propose what items vary in; or {reader: [child, expert]}",
    "    # label_attributes: [team]  # attribute whose value is the right answer; needs no judge",
    "    sampling:",
    "      target: [1, 2]          # attributes of an item",
    "      total: 20               # items of each teacher; more later, with --continue",
    "    rubric: auto              # the teachers write it; or {accuracy: What the answer says is true.}",
)


def _write_experiment(new: NewExperiment) -> Iterator[str]:
    yield "experiment:"
    yield f"  id: {yaml_line(new.name)}"
    yield "  storage_folder: ./runs"
    yield "  report: true                # report.html in the run's folder"
    if new.budget_usd is not None:
        yield f"  budget_usd: {new.budget_usd:g}             # never more than that"


def _describe_task_and_output(item_map: ItemMap, labels: Mapping[str, Sequence[str]]) -> tuple[str, str]:
    """Write a first description and output description, for the user to improve."""
    values = [value for label_values in labels.values() for value in distinct_labels(label_values)]
    if not labels:
        return "Answer the question.", ""
    if item_map.choices is not None:
        return "Answer the question with the letter of the right choice.", "The letter alone."
    what = f"Say which {' and '.join(labels)} the text has."
    if len(values) > MOST_NAMED:
        return what, f"The label alone, one of {len(values):,}, such as: {', '.join(values[:20])}"
    return what, f"One of: {', '.join(values)}"


def distinct_labels(values: Sequence[str]) -> list[str]:
    """Return the first spelling of each label; spellings that answers match alike are one label."""
    label_values = LabelValues(values)
    return list(dict.fromkeys(label_values.match_whole(value) or value for value in values))


def clean_task_name(name: str) -> str:
    """Remove from a name all that a task's name may not contain."""
    return re.sub(r"_{2,}", "-", re.sub(r"[^A-Za-z0-9._-]+", "-", name)).strip("_-.")


def _list_item_keys(table: NewItems) -> Iterator[tuple[str, Any]]:
    """List the keys of ``items`` that are set."""
    choice, table_source, item_map, chosen = table.choice, table.source, table.map, table.chosen
    fetched = bool(table_source.url)
    path = (
        choice.name
        if not fetched
        else str(table_source.files[0].parent if len(table_source.files) > 1 else table_source.files[0])
    )
    label = next(iter(table.labels), None)
    attributes = {name: column for name, column in item_map.attributes.items() if name != label}
    yield from (
        (key, value)
        for key, value in (
            ("path", path),
            ("prompt", item_map.prompt),
            ("reference", item_map.reference),
            ("label", label),
            ("attributes", attributes),
            ("id", item_map.id),
            ("choices", item_map.choices),
            ("where", list(item_map.where)),
            ("limit", chosen.limit),
            ("sample", chosen.sample),
            ("seed", chosen.seed if chosen.sample is not None else 0),
            ("split", choice.split if not fetched else None),
            ("responses", dict(table.responses)),
            ("encoding", choice.encoding),
            ("delimiter", choice.delimiter),
            ("skip_bad", table.skip_bad),
            ("license", table.license or (table_source.license if fetched else "")),
        )
        if value
    )
