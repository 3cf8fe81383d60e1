"""An experiment file for somebody's table: short, and with simulated models, so that it runs at once."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any

from coeval.judging.label_values import LabelValues
from coeval.tables.harvest import Selection
from coeval.tables.item_map import ItemMap, usual_ids
from coeval.tables.source_bytes import TableRow
from coeval.tables.table import Table
from coeval.tables.table_source import SourceChoice, TableSource

_PLAIN = re.compile(r"[A-Za-z_./][\w ./-]*")
_WORDS_OF_YAML = {"true", "false", "null", "yes", "no", "on", "off", "~"}
# Labels that a prompt names: about a thousand tokens, in every request.
MOST_NAMED = 300

_HEAD = "# Written by `coeval ingest`; docs/configuration.md explains each key.\n\n"
_MODELS = """\
models:
  # Simulated models need neither key nor network. They cannot read: what they answer is a guess. Put yours in
  # their place, such as
  #   - {name: gpt-4o-mini, interface: openai, roles: [student], parameters: {model: gpt-4o-mini}}
  - {name: sim-large, interface: simulated, roles: [student], parameters: {skill: 0.85}}
  - {name: sim-small, interface: simulated, roles: [student], parameters: {skill: 0.35}}
"""
_JUDGE = "  - {name: sim-judge, interface: simulated, roles: [judge]}\n"


class IdColumns:
    """Finds out, while the rows of tables are read, which of their columns tells rows apart: one that is
    called like an id, and has another value in each row. Values are remembered by 8 bytes of their hash."""

    def __init__(self, columns: Collection[str]) -> None:
        self._seen: dict[str, set[bytes]] = {name: set() for name in usual_ids(columns)}

    @property
    def found(self) -> str | None:
        return next(iter(self._seen), None)

    def watched(self, tables: Iterable[Table]) -> Iterator[Table]:
        for table in tables:
            yield replace(table, rows=self._of(table.rows))

    def _of(self, rows: Iterator[TableRow]) -> Iterator[TableRow]:
        for row in rows:
            if isinstance(row.fields, dict):
                for name in [*self._seen]:
                    self._note(name, row.fields.get(name))
            yield row

    def _note(self, name: str, value: Any) -> None:
        if isinstance(value, bool | float) or not isinstance(value, str | int) or not str(value).strip():
            del self._seen[name]
            return
        key = blake2b(str(value).encode(), digest_size=8).digest()
        if key in self._seen[name]:
            del self._seen[name]
        else:
            self._seen[name].add(key)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewItems:
    """The table of a new experiment file. ``labels`` are the columns of right answers, each with the values
    that it has; without one a judge is asked. ``responses`` are columns of answers that exist, by student; no
    other student is named then. ``license`` is what somebody says of it, else empty."""

    choice: SourceChoice
    source: TableSource
    map: ItemMap
    chosen: Selection
    labels: Mapping[str, Sequence[str]]
    skip_bad: bool = False
    license: str = ""
    responses: Mapping[str, str] = field(default_factory=dict)


def experiment_text(name: str, task: str | None, table: NewItems) -> str:
    """The text of an experiment file called ``name`` that takes the items of ``task`` (if None, of that name)
    from a table."""
    identifier = usable_name(name) or "items"
    needed, labels = table.map, table.labels
    description, output = _words(needed, labels)
    models = [] if labels and table.responses else ["models:\n" if table.responses else _MODELS]
    lines = [_HEAD, *models, "" if labels else _JUDGE, "\n" if models else "", "tasks:\n"]
    lines += [f"  - name: {_yaml(task or identifier)}\n"]
    lines += [f"    description: {_yaml(description)}\n"]
    lines += [f"    output_description: {_yaml(output)}\n"] if output else []
    lines += ["    items:\n"]
    lines += [f"      {key}: {_yaml(value)}\n" for key, value in _items(table)]
    if not labels:
        against = "agrees with the reference" if needed.reference is not None else "is right and complete"
        lines += ["    rubric:             # what High means; judges answer High, Medium or Low\n"]
        lines += [f"      accuracy: The answer {against}.\n"]
    lines += [f"\nexperiment:\n  id: {_yaml(identifier)}\n  storage_folder: ./runs\n"]
    return "".join(lines)


def _words(needed: ItemMap, labels: Mapping[str, Sequence[str]]) -> tuple[str, str]:
    """Description and output description, for somebody to better."""
    values = [value for of in labels.values() for value in reported_apart(of)]
    if not labels:
        return "Answer the question.", ""
    if needed.choices is not None:
        return "Answer the question with the letter of the right choice.", "The letter alone."
    what = f"Say which {' and '.join(labels)} the text has."
    if len(values) > MOST_NAMED:
        return what, f"The label alone, one of {len(values):,}, such as: {', '.join(values[:20])}"
    return what, f"One of: {', '.join(values)}"


def reported_apart(values: Sequence[str]) -> list[str]:
    """The first spelling of each label: those that answers are compared with as one are one."""
    known = LabelValues(values)
    return list(dict.fromkeys(known.named(value) or value for value in values))


def usable_name(name: str) -> str:
    """What is left of a name when all that no name of a task may have is."""
    return re.sub(r"_{2,}", "-", re.sub(r"[^A-Za-z0-9._-]+", "-", name)).strip("_-.")


def _items(table: NewItems) -> Iterator[tuple[str, Any]]:
    """The keys of ``items`` that are set."""
    choice, found, needed, chosen = table.choice, table.source, table.map, table.chosen
    fetched = bool(found.url)
    path = (
        choice.name if not fetched else str(found.files[0].parent if len(found.files) > 1 else found.files[0])
    )
    label = next(iter(table.labels), None)
    attributes = {name: column for name, column in needed.attributes.items() if name != label}
    yield from (
        (key, value)
        for key, value in (
            ("path", path),
            ("prompt", needed.prompt),
            ("reference", needed.reference),
            ("label", label),
            ("attributes", attributes),
            ("id", needed.id),
            ("choices", needed.choices),
            ("where", list(needed.where)),
            ("limit", chosen.limit),
            ("sample", chosen.sample),
            ("seed", chosen.seed if chosen.sample is not None else 0),
            ("split", choice.split if not fetched else None),
            ("responses", dict(table.responses)),
            ("encoding", choice.encoding),
            ("delimiter", choice.delimiter),
            ("skip_bad", table.skip_bad),
            ("license", table.license or (found.license if fetched else "")),
        )
        if value
    )


def _yaml(value: Any) -> str:
    """A value on one line; text in quotes where YAML would read something else."""
    match value:
        case str() if _PLAIN.fullmatch(value) and value.lower() not in _WORDS_OF_YAML and value[-1] != " ":
            return value
        case dict():
            return "{" + ", ".join(f"{_yaml(key)}: {_yaml(part)}" for key, part in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(_yaml, value)) + "]"
        case _:
            return json.dumps(value, ensure_ascii=False)
