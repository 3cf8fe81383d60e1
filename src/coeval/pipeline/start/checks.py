"""Whether a run may start as asked: V-11 in a new folder, V-14 in one that goes on, V-30 with some models,
V-31 over a run that is there, V-33 with tables of one's own, V-38 with checks that run code, V-39 with
functions as models.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from coeval.core.errors import ConfigError, StoreError, UsageError
from coeval.core.options import ALLOW_UNSANDBOXED, CONTINUE, ONLY_MODELS, OVERWRITE
from coeval.core.text import join_names
from coeval.judging.checks.check_options import check_problems, code_of, read_check
from coeval.judging.checks.check_runner import sandbox_problem
from coeval.judging.checks.rubric_check import CommandCheck, PythonCheck
from coeval.models.local.callables import find_callable
from coeval.pipeline.config.draft import OWN_ITEMS, Draft, list_checks
from coeval.pipeline.config.findings import Finding, KeyPath, Suggestion, render_path
from coeval.pipeline.config.items_section import AnswerTable, Items
from coeval.pipeline.config.names import is_valid_name
from coeval.pipeline.config.roles import Teachers
from coeval.pipeline.config.schema import PHASES, Config, Phase
from coeval.pipeline.phases.answer_file import answer_map, answer_source
from coeval.pipeline.phases.item_file import item_map, source_of
from coeval.pipeline.run_options import RunOptions
from coeval.store.legacy import is_legacy
from coeval.store.rundir import RunDir
from coeval.tables.item_map import ItemMap, find_unknown_columns, is_condition
from coeval.tables.table_source import TableSource

# --- Item tables exist and have their columns (V-33)


def table_findings(draft: Draft, run: RunDir) -> Iterator[Finding]:
    """A table that is gone is told where nothing was taken out of it yet: see `table_items`."""
    for index, name in draft.names_by_index("tasks").items():
        path: KeyPath = ("tasks", index, "items")
        section = draft.get(*path)
        if section is None:
            continue
        items = Items.model_validate(section)
        sound = tuple(filter(is_condition, items.where))  # of what stands in others no column can be told
        items = items.model_copy(update={"where": sound})
        try:
            yield from _columns(items, path)
        except UsageError as error:
            if not run.datapoints(name, OWN_ITEMS).exists():
                yield Finding((*path, "path"), "V-33", str(error))


def answer_findings(draft: Draft, run: RunDir) -> Iterator[Finding]:
    """V-33 of tables of answers; one that is gone is told where no answer was taken out of it yet."""
    tasks = draft.names_by_index("tasks").values()
    for index, name in draft.names_by_index("students").items():
        path: KeyPath = ("students", index, "responses")
        if (section := draft.get(*path)) is None or not section.keys() & {"prompt", "id"}:
            continue
        table = AnswerTable.model_validate(section)
        try:
            for key, wrong, way in _unknown(answer_source(table), answer_map(table)):
                if key != ("prompt",) or table.id is None:  # the id stands for the prompt then
                    place = "response" if key[0] == "attributes" else key[0]
                    yield Finding((*path, place), "V-33", wrong, way)
        except UsageError as error:
            if not any(run.responses(task, name).exists() for task in tasks):
                yield Finding((*path, "path"), "V-33", str(error))


def _columns(items: Items, path: KeyPath) -> Iterator[Finding]:
    """Columns that the first of the files lacks; of the others they are asked when they are read."""
    source, needed = source_of(items), item_map(items)
    for key, wrong, way in _unknown(source, needed):
        yield Finding(_place(items, path, key), "V-33", wrong, way)
    for key, wrong, way in _unknown(source, ItemMap(items.prompt, attributes=items.responses)):
        if key[0] == "attributes":
            yield Finding((*path, "responses", key[1]), "V-33", wrong, way)


def _unknown(source: TableSource, needed: ItemMap) -> Iterator[tuple[tuple[str, ...], str, Suggestion]]:
    """Columns that the first of the files lacks: their places in the map, and what is wrong."""
    table = next(source.open_tables())
    table.close()
    for key, column, known in find_unknown_columns(needed, table.columns):
        yield key, f"{table.path} has no column '{column}'", Suggestion(column, known, "columns:")


def _place(items: Items, path: KeyPath, key: tuple[str, ...]) -> KeyPath:
    """Where the file names it: an attribute that it does not is the label's."""
    if key[0] == "attributes" and key[1] not in items.attributes:
        return (*path, "label")
    return (*path, *key)


# --- Code that checks run can be run (V-38)


def _code_findings(draft: Draft, start: RunOptions) -> Iterator[Finding]:
    sandbox = cache(sandbox_problem)
    for index in draft.names_by_index("tasks"):
        for factor, options in list_checks(draft, index):
            path: KeyPath = ("tasks", index, "rubric", factor)
            check = read_check(options) if not check_problems(options) else None
            if isinstance(check, PythonCheck) and (problem := check.problem()) is not None:
                yield Finding((*path, "function"), "V-38", problem)
            elif isinstance(check, CommandCheck) and not start.allow_unsandboxed and sandbox() is not None:
                way = f"{sandbox()}; or use {ALLOW_UNSANDBOXED} to run it with the rights of your account"
                yield Finding((*path, "argv"), "V-38", f"would run without a sandbox: {way}")


def _function_findings(draft: Draft) -> Iterator[Finding]:
    """V-39: functions that are asked as models, and are not there."""
    for index in draft.entry_indices("models"):
        path: KeyPath = ("models", index, "parameters", "callable")
        place = draft.get(*path)
        if draft.get("models", index, "interface") == "python" and isinstance(place, str):
            try:
                find_callable(place)
            except UsageError as error:
                yield Finding(path, "V-39", str(error))


def describe_check_code(config: Config) -> Iterator[str]:
    """What a run of this configuration executes besides asking models, a sentence for each check."""
    for task in config.tasks:
        for factor, options in task.checks.items():
            if code := code_of(options):
                yield f"Runs code: {code} ({task.name}, {factor})"


_RESCUE = (
    "put meta.json back from a copy, or take the records over: another id, resume_from: {}, and the modes "
    "Extend for data_generation, response_collection and evaluation"
)


def refuse_bad_start(config: Config, options: RunOptions) -> None:
    """Check a configuration that was loaded before it was known how its run is to start.

    Raises ConfigError: the run cannot start so; nothing has been created.
    """
    findings = list(start_findings(Draft(config.model_dump(), frozenset()), options))
    if findings:
        raise ConfigError([f"{render_path(f.path)}  {f.rule}  {f.message}" for f in findings])


def start_findings(draft: Draft, start: RunOptions) -> Iterator[Finding]:
    """Why the run cannot start as asked; nothing where it can. Raises StoreError where its folder holds links
    that lead out of it, or pipes and the like.

    A folder that holds no artifact of a phase in mode New (say, one with a probe's results only)
    is free. So is phase 3 where nothing lies but the items of benchmark teachers.
    """
    if draft.has_all_names("models"):
        tables = [
            draft.get("tasks", index, "items", "responses", default={})
            for index in draft.entry_indices("tasks")
        ]
        answered = [*draft.names_by_index("students").values(), *(name for table in tables for name in table)]
        yield from _unknown_models([*draft.model_and_variant_names(), *answered], start.only_models)
    storage, identifier = draft.get("experiment", "storage_folder"), draft.get("experiment", "id")
    if storage is None or identifier is None or not is_valid_name(identifier):
        return
    run = RunDir(Path(storage) / identifier)
    run.refuse_foreign()
    modes = {phase: draft.get("experiment", "phases", default={}).get(phase, "New") for phase in PHASES}
    kept = [phase for phase, mode in modes.items() if mode != "New" and run.holds(phase)]
    if (start.continue_run or kept) and is_legacy(run.path):
        message = (
            f"{run.path} has an older layout, which is read and not written; start another id with "
            f"experiment.resume_from: {run.path}"
        )
        yield Finding(("experiment", "id"), "V-14", message)
    elif start.continue_run:
        yield from _cannot_continue(run, identifier, draft)
    elif start.overwrite:
        yield from _outlived(run, modes)
    elif not run.replacing.exists():  # what is being moved away is in no way
        yield from _occupied(run, draft)
    yield from table_findings(draft, run)
    yield from answer_findings(draft, run)
    yield from _code_findings(draft, start)
    yield from _function_findings(draft)


def _outlived(run: RunDir, modes: Mapping[Phase, str]) -> Iterator[Finding]:
    """Records that are to be left as they are though what they were made from is made anew."""
    flowing = PHASES[2:]
    for before, phase in itertools.pairwise(flowing):
        if modes[before] == "New" and modes[phase] in ("Keep", "Model") and run.holds(phase):
            message = (
                f"is {modes[phase]}, and would leave what was made from records that {OVERWRITE} makes anew "
                f"({before}: New); set it to New, or to Extend to make again what no longer follows"
            )
            yield Finding(("experiment", "phases", phase), "V-31", message)


def _unknown_models(known: list[str], needed: tuple[str, ...]) -> Iterator[Finding]:
    for name in needed:
        if name not in known:
            message = f"{ONLY_MODELS} names '{name}', which is none of them"
            yield Finding(("models",), "V-30", message, Suggestion(name, known, "models:"))


def _cannot_continue(run: RunDir, identifier: str, draft: Draft) -> Iterator[Finding]:
    path = ("experiment", "id")
    try:
        found = run.read_meta().experiment_id
    except (FileNotFoundError, NotADirectoryError):
        if said := run.half_replaced():
            yield Finding(path, "V-14", said)
        elif any(_occupied(run, draft)):  # else nothing but what tables of the user's gave
            yield Finding(
                path, "V-14", f"{run.path} holds records, but no meta.json; {_RESCUE.format(run.path)}"
            )
        else:
            yield Finding(path, "V-14", f"there is no run in {run.path} to continue; leave out {CONTINUE}")
        return
    except StoreError as error:
        yield Finding(path, "V-14", f"cannot be continued: {error}; {_RESCUE.format(run.path)}")
        return
    if found != identifier:
        message = (
            f"is '{identifier}', but {run.meta} is of the run '{found}'; set the id to that, or use another"
        )
        yield Finding(path, "V-14", message)


def _occupied(run: RunDir, draft: Draft) -> Iterator[Finding]:
    declared = draft.get("experiment", "phases", default={})
    phases = [phase for phase in PHASES if declared.get(phase, "New") == "New"]
    if draft.raw("experiment", "resume_from") is not None and not run.meta.exists():
        # Taking over another run's blueprint was cut short; repeating the start completes it.
        phases = [phase for phase in phases if phase in PHASES[2:] or phase in declared]
    supplied = _item_files(run, draft)
    others = [path for path in run.files("data_generation") if path not in supplied]
    answers = {path for path in run.files("response_collection") if path not in _answer_files(run, draft)}
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
            f"{run.path} holds {names} already, and these phases are New; "
            f"use {CONTINUE} to go on with it, another id, or {OVERWRITE} to move it to replaced/"
        )
        yield Finding(("experiment", "id"), "V-11", message)


def _item_files(run: RunDir, draft: Draft) -> list[Path]:
    """Where items of benchmark teachers lie, or are to be put."""
    teachers = Teachers(draft)
    return [
        run.datapoints(name, teacher)
        for index, name in draft.names_by_index("tasks").items()
        for teacher in teachers.list_suppliers(index)
    ]


def _answer_files(run: RunDir, draft: Draft) -> set[Path]:
    """Where answers that exist are put."""
    students = set(draft.names_by_index("students").values())
    tasks = draft.names_by_index("tasks").items()
    of_tables = {i: draft.get("tasks", i, "items", "responses", default={}) for i, _ in tasks}
    return {run.responses(name, each) for index, name in tasks for each in (*students, *of_tables[index])}
