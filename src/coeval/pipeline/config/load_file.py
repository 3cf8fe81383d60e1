"""Load an experiment file into a `Config`, or report all its problems at once, each with its line."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from numbers import Integral, Real
from pathlib import Path
from typing import Any, TypeAlias

from coeval.core.errors import ConfigError
from coeval.core.shown_url import HIDDEN
from coeval.models.local.callables import register_callable
from coeval.pipeline.config.document import MAX_DEPTH, SURROGATE, Document, is_attribute_value, read_document
from coeval.pipeline.config.draft import Draft, find_resume_folder, keep_mappings
from coeval.pipeline.config.findings import (
    FileData,
    Finding,
    KeyPath,
    LineIndex,
    Location,
    Problem,
    build_config_error,
    to_yaml_line,
)
from coeval.pipeline.config.roles import add_empty_models_if_answers_exist, find_inherited_code
from coeval.pipeline.config.rules import find_broken_rules
from coeval.pipeline.config.schema import Config
from coeval.pipeline.config.structure import check_structure
from coeval.pipeline.config.values import is_printable_path
from coeval.pipeline.run_options import RunOptions
from coeval.pipeline.start.checks import find_start_problems
from coeval.store.rundir import RunDir

# --- Experiments given as data from Python

GIVEN = "config"
"""What problems name in place of a file; there are no lines."""


def document_from_mapping(data: Mapping[str, Any]) -> Document:
    """Copy an experiment given as Python data into plain data.

    Tuples become lists, paths text, numpy's numbers plain numbers, and attribute values text, as in a
    file: ``3`` is ``"3"``, ``True`` is ``"true"``.

    Raises ConfigError: it is nested too deeply to be an experiment.
    """
    lines = LineIndex(GIVEN, {(): Location(GIVEN, 0)})
    problems: list[Problem] = []

    def report(path: KeyPath, message: str) -> None:
        problems.append(lines.locate(Finding(path, "V-20", message)))

    def copy_mapping(value: Mapping[Any, Any], path: KeyPath) -> dict[str, Any]:
        copy = {}
        for key, part in value.items():
            if isinstance(key, int) or (isinstance(key, str) and not SURROGATE.search(key)):
                copy[str(key)] = copy_value(part, (*path, str(key)))
            elif isinstance(key, str):
                report(path, "a key holds half of a character (a lone surrogate); take it out")
            else:
                report(path, f"a key is of type {type(key).__name__}; a key is one word")
        return copy

    def copy_value(value: Any, path: KeyPath) -> Any:
        """Copy a value as plain data, and report what a file could not hold."""
        if len(path) > MAX_DEPTH:
            problem = lines.locate(
                Finding(path[:1], "V-27", f"is nested deeper than {MAX_DEPTH} levels; flatten it")
            )
            raise ConfigError([problem.render()])
        match value:
            case Mapping():
                return copy_mapping(value, path)
            case list() | tuple():
                return [copy_value(part, (*path, index)) for index, part in enumerate(value)]
            case os.PathLike():
                return os.fspath(value)
            case None | str():
                return value
            case _ if callable(value) and path[-1:] == ("callable",):
                return register_callable(value)
            case bool() | int() | float():
                number = value
            case Integral():
                number = int(value)
            case Real():
                number = float(value)
            case _:
                kinds = "text, numbers, true or false, lists and mappings"
                report(path, f"is of type {type(value).__name__}; use {kinds}")
                return None
        return to_yaml_line(number) if is_attribute_value(path) else number

    return Document(copy_mapping(data, ()), lines, problems)


Source: TypeAlias = str | Path | Mapping[str, Any]
"""Where an experiment stands: in a file, or in plain data with the same keys."""


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """A valid configuration, the data it was read from with inherited sections, and the lines."""

    config: Config
    data: FileData
    lines: LineIndex

    def with_experiment_settings(self, **values: Any) -> LoadedConfig:
        """Copy it with other settings of ``experiment``; None keeps the file's."""
        overrides = {name: value for name, value in values.items() if value is not None}
        experiment = self.config.experiment.model_copy(update=overrides)
        return replace(self, config=self.config.model_copy(update={"experiment": experiment}))


def load_config(source: Source) -> Config:
    """Read and check an experiment: a file's path, or a mapping with the same sections.

    Raises ConfigError: with every problem, one ``file:line  path  V-NN  what is wrong; what would be
    right`` each.

    >>> coeval.load_config("examples/quickstart.yaml").experiment.id
    'quickstart'
    """
    return read_config(source).config


def read_config(
    source: Source | Document, *, resume_from: str | None = None, start: RunOptions | None = None
) -> LoadedConfig:
    """Read and check an experiment, keeping the data; ``resume_from`` overrides the file's.

    With ``start``, the problems include those of a start with these options.

    Raises ConfigError: as `load_config`.
    """
    match source:
        case Document():
            document = source
        case Mapping():
            document = document_from_mapping(source)
        case _:
            document = read_document(Path(source))
    if resume_from is not None and isinstance(document.data.get("experiment"), dict):
        document.data["experiment"]["resume_from"] = resume_from
    _expand_home(document)
    document = _take_sections_of_resumed_run(document)
    _fill_omitted_keys_of_tasks_with_items(document.data)
    add_empty_models_if_answers_exist(document.data)
    _fill_output_descriptions_from_label_values(document.data)
    structure = check_structure(document.data)
    draft = Draft(document.data, structure.broken)
    findings = [*structure.findings, *find_broken_rules(draft)]
    if start is not None:
        findings += find_start_problems(draft, start)
    if any(finding.path == ("experiment", "resume_from") for finding in findings):
        # What the missing source would have supplied is not a mistake of its own.
        findings = [f for f in findings if not (f.rule == "V-01" and f.path[0] not in document.data)]
    problems = [*document.problems, *(document.lines.locate(finding) for finding in findings)]
    if problems or structure.config is None:
        raise build_config_error(problems, document.lines.file)
    return LoadedConfig(structure.config, document.data, document.lines)


def _fill_omitted_keys_of_tasks_with_items(data: FileData) -> None:
    """Fill in what tasks with ``items`` or ``documents`` may omit: no attributes, all rows, no rubric."""
    for task in keep_mappings(data.get("tasks")):
        if isinstance(task.get("documents"), dict) and "target_attributes" not in task:
            # Passages alone may vary the items: no attribute is declared then, and none sampled.
            task["target_attributes"] = {}
            if isinstance(task.get("sampling"), dict):
                task["sampling"].setdefault("target", [0, 0])
        items = task.get("items")
        if not isinstance(items, dict):
            continue
        task.setdefault("target_attributes", {})
        sampling = task.setdefault("sampling", {})
        if isinstance(sampling, dict):
            sampling.setdefault("total", "all")
        labels, label = task.get("label_attributes", []), items.get("label")
        if isinstance(label, str) and isinstance(labels, list) and label not in labels:
            labels = task["label_attributes"] = [*labels, label]
        if labels:
            task.setdefault("rubric", {})


def _fill_output_descriptions_from_label_values(data: FileData) -> None:
    """Fill in the output description of tasks with labels and nothing else: their declared values. Undeclared
    values are not named: another row could add one, and change the prompt of every answer."""
    for task in keep_mappings(data.get("tasks")):
        if task.get("rubric") or task.get("output_description"):
            continue
        labels, declared = task.get("label_attributes"), task.get("target_attributes")
        if not isinstance(labels, list) or not isinstance(declared, dict):
            continue
        values = [declared.get(label) if isinstance(label, str) else None for label in labels]
        reported = [", ".join(map(to_yaml_line, own)) for own in values if isinstance(own, list) and own]
        if labels and len(reported) == len(labels):
            described = [f"{label}, one of: {words}" for label, words in zip(labels, reported, strict=True)]
            task["output_description"] = (
                f"One of: {reported[0]}" if len(reported) == 1 else "; ".join(described)
            )


def _expand_home(document: Document) -> None:
    """Expand ``~`` in the file's paths, as a shell does; an unknown ``~name`` stays."""
    experiment, tasks = document.data.get("experiment"), keep_mappings(document.data.get("tasks"))
    sections = [(experiment, "storage_folder"), (experiment, "resume_from"), (experiment, "store")]
    sections += [(task.get("items"), "path") for task in tasks]
    sections += [(own.get("responses"), "path") for own in keep_mappings(document.data.get("students"))]
    for section, key in sections:
        if (
            isinstance(section, dict)
            and isinstance(value := section.get(key), str)
            and is_printable_path(value)
        ):
            section[key] = os.path.expanduser(value)  # noqa: PTH111  Path's raises for an unknown name


def _take_sections_of_resumed_run(document: Document) -> Document:
    """Take absent ``models`` and ``tasks`` from the configuration of the run that ``resume_from`` names."""
    experiment = document.data.get("experiment")
    absent = [section for section in ("models", "tasks") if section not in document.data]
    if not absent or not isinstance(experiment, dict):
        return document
    source, storage = experiment.get("resume_from"), experiment.get("storage_folder")
    if not isinstance(source, str) or not isinstance(storage, str):
        return document
    stored_config = RunDir(find_resume_folder(storage, source)).config
    if not stored_config.is_file():
        return document
    theirs = read_document(stored_config)
    data, lines = dict(document.data), document.lines
    problems = list(document.problems)
    if "models" in absent and "students" not in data:
        absent.append("students")
    for section in absent:
        if section in theirs.data:
            data[section] = theirs.data[section]
            for entry in keep_mappings(data[section]):
                if entry.get("access_key") == HIDDEN:  # it comes from the key file or the environment
                    del entry["access_key"]
            lines = lines.with_section(section, theirs.lines)
            problems += [problem for problem in theirs.problems if problem.finding.path[:1] == (section,)]
    if "tasks" in absent:
        _drop_prompts_of_absent_models(data)
    problems += [lines.locate(finding) for finding in find_inherited_code(data, absent, stored_config)]
    return Document(data, lines, problems)


def _drop_prompts_of_absent_models(data: FileData) -> None:
    """Drop templates of models that take no part any more from inherited tasks."""
    names = set(Draft(data, frozenset()).model_and_variant_names())
    for task in keep_mappings(data.get("tasks")) if isinstance(data.get("models"), list) else ():
        library = task.get("prompt_library")
        if isinstance(library, dict):
            others = [key for key in library if "." in key and key.partition(".")[2] not in names]
            for key in others:
                del library[key]
