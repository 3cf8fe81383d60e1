"""Checks of a start: V-11 for a new folder, V-14 for a continued one, V-30 and V-31 for its options, V-33 for
tables, V-38 and V-39 for code."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from coeval.core.errors import ConfigError, StoreError, UsageError
from coeval.core.options import ALLOW_UNSANDBOXED, CONTINUE, ONLY_MODELS, OVERWRITE
from coeval.core.text import join_names
from coeval.judging.checks.check_options import code_location, find_check_problems, read_check
from coeval.judging.checks.check_runner import find_sandbox_problem
from coeval.judging.checks.rubric_check import CommandCheck, PythonCheck
from coeval.models.local.callables import require_callable_file
from coeval.pipeline.config.draft import OWN_ITEMS, Draft, list_checks
from coeval.pipeline.config.findings import Finding, KeyPath, Suggestion, render_path
from coeval.pipeline.config.items_section import AnswerTable, Items
from coeval.pipeline.config.names import is_valid_name
from coeval.pipeline.config.roles import Teachers
from coeval.pipeline.config.schema import PHASES, Config, Phase
from coeval.pipeline.phases.answer_file import build_answer_map, find_answer_source
from coeval.pipeline.phases.item_file import build_item_map, find_item_source
from coeval.pipeline.run_options import RunOptions
from coeval.store.legacy import is_legacy
from coeval.store.rundir import RunDir
from coeval.tables.item_map import ItemMap, find_unknown_columns, is_condition
from coeval.tables.table_source import TableSource

# --- Item tables exist and have their columns (V-33)


def check_item_tables(draft: Draft, run: RunDir) -> Iterator[Finding]:
    """Check that tables of items exist and have their columns. A missing one is reported unless its items
    were copied before: see `read_run_or_changed_items`."""
    for index, name in draft.names("tasks").items():
        path: KeyPath = ("tasks", index, "items")
        section = draft.get(*path)
        if section is None:
            continue
        items = Items.model_validate(section)
        sound = tuple(filter(is_condition, items.where))  # an invalid condition names no column
        items = items.model_copy(update={"where": sound})
        try:
            yield from _check_columns(items, path)
        except UsageError as error:
            if not run.datapoints(name, OWN_ITEMS).exists():
                yield Finding((*path, "path"), "V-33", str(error))


def check_answer_tables(draft: Draft, run: RunDir) -> Iterator[Finding]:
    """Check tables of answers likewise; a missing one is reported unless its answers were copied before."""
    tasks = draft.names("tasks").values()
    for index, name in draft.names("students").items():
        path: KeyPath = ("students", index, "responses")
        if (section := draft.get(*path)) is None or not section.keys() & {"prompt", "id"}:
            continue
        table = AnswerTable.model_validate(section)
        try:
            for key, wrong, way in _find_unknown_columns(find_answer_source(table), build_answer_map(table)):
                if key != ("prompt",) or table.id is None:  # else the id replaces the prompt
                    key_name = "response" if key[0] == "attributes" else key[0]
                    yield Finding((*path, key_name), "V-33", wrong, way)
        except UsageError as error:
            if not any(run.responses(task, name).exists() for task in tasks):
                yield Finding((*path, "path"), "V-33", str(error))


def _check_columns(items: Items, path: KeyPath) -> Iterator[Finding]:
    """Check the columns of the first file; those of the others are checked as they are read."""
    source, needed = find_item_source(items), build_item_map(items)
    for key, wrong, way in _find_unknown_columns(source, needed):
        yield Finding(_locate_column_key(items, path, key), "V-33", wrong, way)
    for key, wrong, way in _find_unknown_columns(source, ItemMap(items.prompt, attributes=items.responses)):
        if key[0] == "attributes":
            yield Finding((*path, "responses", key[1]), "V-33", wrong, way)


def _find_unknown_columns(
    source: TableSource, needed: ItemMap
) -> Iterator[tuple[tuple[str, ...], str, Suggestion]]:
    """Yield the key, the message and a suggestion for each mapped column that the first file lacks."""
    table = next(source.open_tables())
    table.close()
    for key, column, columns in find_unknown_columns(needed, table.columns):
        yield key, f"{table.path} has no column '{column}'", Suggestion(column, columns, "columns:")


def _locate_column_key(items: Items, path: KeyPath, key: tuple[str, ...]) -> KeyPath:
    """Return the key path that names a column; an attribute without one comes from ``label``."""
    if key[0] == "attributes" and key[1] not in items.attributes:
        return (*path, "label")
    return (*path, *key)


# --- Code that checks run can be run (V-38)


def _check_runnable_checks(draft: Draft, start: RunOptions) -> Iterator[Finding]:
    """Check that functions of checks exist, and that commands have a sandbox (V-38)."""
    sandbox = cache(find_sandbox_problem)
    for index in draft.names("tasks"):
        for factor, options in list_checks(draft, index):
            path: KeyPath = ("tasks", index, "rubric", factor)
            check = read_check(options) if not find_check_problems(options) else None
            if isinstance(check, PythonCheck) and (problem := check.find_problem_in_source()) is not None:
                yield Finding((*path, "function"), "V-38", problem)
            elif isinstance(check, CommandCheck) and not start.allow_unsandboxed and sandbox() is not None:
                way = f"{sandbox()}; or use {ALLOW_UNSANDBOXED} to run it with the rights of your account"
                yield Finding((*path, "argv"), "V-38", f"would run without a sandbox: {way}")


def _check_callables(draft: Draft) -> Iterator[Finding]:
    """Check that functions used as models exist (V-39)."""
    for index in draft.indices("models"):
        path: KeyPath = ("models", index, "parameters", "callable")
        function_path = draft.get(*path)
        if draft.get("models", index, "interface") == "python" and isinstance(function_path, str):
            try:
                require_callable_file(function_path)
            except UsageError as error:
                yield Finding(path, "V-39", str(error))


def describe_check_code(config: Config) -> Iterator[str]:
    for task in config.tasks:
        for factor, options in task.checks.items():
            if code := code_location(options):
                yield f"Runs code: {code} ({task.name}, {factor})"


_RESCUE = (
    "restore meta.json from a copy, or reuse the records: another id, resume_from: {}, and the modes "
    "Extend for data_generation, response_collection and evaluation"
)


def refuse_bad_start(config: Config, options: RunOptions) -> None:
    """Raise ConfigError if a configuration, loaded without these options, cannot start so."""
    findings = list(find_start_problems(Draft(config.model_dump(), frozenset()), options))
    if findings:
        raise ConfigError([f"{render_path(f.path)}  {f.rule}  {f.message}" for f in findings])


def find_start_problems(draft: Draft, start: RunOptions) -> Iterator[Finding]:
    """Find reasons why a run cannot start with these options; a folder without artifacts of phases in mode
    New, or with supplied items alone, is free. Raises StoreError: it holds pipes, or links that lead out
    of it."""
    if draft.has_all_names("models"):
        tables = [draft.get("tasks", i, "items", "responses", default={}) for i in draft.indices("tasks")]
        answered = [*draft.names("students").values(), *(name for table in tables for name in table)]
        yield from _check_only_models_exist([*draft.model_and_variant_names(), *answered], start.only_models)
    storage, identifier = draft.get("experiment", "storage_folder"), draft.get("experiment", "id")
    if storage is None or identifier is None or not is_valid_name(identifier):
        return
    run = RunDir(Path(storage) / identifier)
    run.refuse_foreign()
    modes = {phase: draft.get("experiment", "phases", default={}).get(phase, "New") for phase in PHASES}
    kept = [phase for phase, mode in modes.items() if mode != "New" and run.holds(phase)]
    if (start.continue_run or kept) and is_legacy(run.path):
        message = (
            f"{run.path} has an older layout, which is read but not written; start another id with "
            f"experiment.resume_from: {run.path}"
        )
        yield Finding(("experiment", "id"), "V-14", message)
    elif start.continue_run:
        yield from _check_continuable(run, identifier, draft)
    elif start.overwrite:
        yield from _find_kept_followers_of_overwritten_phases(run, modes)
    elif not run.replacing.exists():  # what is being moved away is in no way
        yield from _check_new_phases_are_empty(run, draft)
    yield from check_item_tables(draft, run)
    yield from check_answer_tables(draft, run)
    yield from _check_runnable_checks(draft, start)
    yield from _check_callables(draft)


def _find_kept_followers_of_overwritten_phases(run: RunDir, modes: Mapping[Phase, str]) -> Iterator[Finding]:
    """Find phases that would keep records made from items or answers that ``--overwrite`` regenerates."""
    flowing = PHASES[2:]
    for before, phase in itertools.pairwise(flowing):
        if modes[before] == "New" and modes[phase] in ("Keep", "Model") and run.holds(phase):
            message = (
                f"is {modes[phase]}, and would leave what was made from records that {OVERWRITE} makes again "
                f"({before}: New); set it to New, or to Extend to make again what no longer follows"
            )
            yield Finding(("experiment", "phases", phase), "V-31", message)


def _check_only_models_exist(model_names: list[str], only_models: tuple[str, ...]) -> Iterator[Finding]:
    for name in only_models:
        if name not in model_names:
            message = f"{ONLY_MODELS} names '{name}', which is not one of them"
            yield Finding(("models",), "V-30", message, Suggestion(name, model_names, "models:"))


def _check_continuable(run: RunDir, identifier: str, draft: Draft) -> Iterator[Finding]:
    """Check that the folder holds a run of this id, in the present layout."""
    path = ("experiment", "id")
    try:
        recorded_id = run.read_meta().experiment_id
    except (FileNotFoundError, NotADirectoryError):
        if problem := run.describe_half_replaced():
            yield Finding(path, "V-14", problem)
        elif any(_check_new_phases_are_empty(run, draft)):  # else nothing but what tables of the user's gave
            yield Finding(
                path, "V-14", f"{run.path} holds records, but no meta.json; {_RESCUE.format(run.path)}"
            )
        else:
            yield Finding(path, "V-14", f"there is no run in {run.path} to continue; leave out {CONTINUE}")
        return
    except StoreError as error:
        yield Finding(path, "V-14", f"cannot be continued: {error}; {_RESCUE.format(run.path)}")
        return
    if recorded_id != identifier:
        wrong = f"is '{identifier}', but {run.meta} is of the run '{recorded_id}'"
        message = f"{wrong}; set the id to that, or use another"
        yield Finding(path, "V-14", message)


def _check_new_phases_are_empty(run: RunDir, draft: Draft) -> Iterator[Finding]:
    """Check that a folder holds no artifacts of phases in mode New (V-11)."""
    declared = draft.get("experiment", "phases", default={})
    phases = [phase for phase in PHASES if declared.get(phase, "New") == "New"]
    if draft.get_raw("experiment", "resume_from") is not None and not run.meta.exists():
        # Taking over another run's blueprint was cut short; repeating the start completes it.
        phases = [phase for phase in phases if phase in PHASES[2:] or phase in declared]
    supplied = _list_possible_supplied_item_paths(run, draft)
    others = [path for path in run.files("data_generation") if path not in supplied]
    existing = _list_possible_answer_paths(run, draft)
    answers = [path for path in run.files("response_collection") if path not in existing]
    made = {"data_generation": bool(others), "response_collection": bool(answers)}
    standing = [phase for phase in phases if run.holds(phase) and made.get(phase, True)]
    if supplied and standing == ["data_generation"] and not run.meta.exists():
        message = (
            f"{others[0]} belongs to no benchmark teacher of this file; items are read from "
            f"{join_names(map(str, supplied))}: rename it, or move it away"
        )
        yield Finding(("experiment", "id"), "V-11", message)
    elif standing:
        names = ", ".join(run.folder(phase).name for phase in standing)
        message = (
            f"{run.path} already has {names}, and these phases are New. "
            f"{CONTINUE} resumes it, {OVERWRITE} moves it to replaced/; or choose another id"
        )
        yield Finding(("experiment", "id"), "V-11", message)


def _list_possible_supplied_item_paths(run: RunDir, draft: Draft) -> list[Path]:
    """List the files of items that benchmark teachers supply, existing or not."""
    teachers = Teachers(draft)
    return [
        run.datapoints(name, teacher)
        for index, name in draft.names("tasks").items()
        for teacher in teachers.list_suppliers(index)
    ]


def _list_possible_answer_paths(run: RunDir, draft: Draft) -> set[Path]:
    students = set(draft.names("students").values())
    tasks = draft.names("tasks").items()
    of_tables = {i: draft.get("tasks", i, "items", "responses", default={}) for i, _ in tasks}
    return {
        run.responses(name, student) for index, name in tasks for student in (*students, *of_tables[index])
    }
