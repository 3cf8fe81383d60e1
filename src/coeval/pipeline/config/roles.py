"""V-07: the work of each phase has a model, or user data in its place."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from shlex import quote
from typing import Any

from coeval.judging.checks.check_options import code_location
from coeval.pipeline.config.draft import BENCHMARK, OWN_ITEMS, BenchmarkTeacher, Draft, list_checks
from coeval.pipeline.config.findings import FileData, Finding, KeyPath, Suggestion
from coeval.pipeline.config.schema import OPTIONS, PHASES, ModelConfig
from coeval.store.rundir import RunDir


class Teachers:
    """The teachers of a draft, as far as they can be read. ``any_model``: not all are benchmarks."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        models = [("models", index) for index in draft.indices("models")]
        teachers = [model for model in models if "teacher" in (draft.get(*model, "roles") or ())]
        self.any_teacher = bool(teachers)
        self.any_model = any(draft.get(*model, "interface") != BENCHMARK for model in teachers)
        self._benchmarks = [
            BenchmarkTeacher(str(draft.get(*model, "name")), draft.get(*model, "parameters", "task"))
            for model in teachers
            if draft.get(*model, "interface") == BENCHMARK
        ]

    def list_suppliers(self, index: int, default_category: str | None = None) -> list[str]:
        """Name a task's own table and the benchmarks that serve it."""
        task = ("tasks", index)
        own = [OWN_ITEMS] if self._draft.get_raw(*task, "items") is not None else []
        name = self._draft.get(*task, "name")
        category = self._draft.get(*task, "category", default=default_category)
        return own + [teacher.name for teacher in self._benchmarks if teacher.serves(name, category)]


def check_roles(draft: Draft) -> Iterator[Finding]:
    """Find roles that no model has, and work that nobody can do; nothing while roles are unreadable."""
    models = draft.data.get("models")
    if not isinstance(models, list) or not (models or _has_any_existing_answers(draft)):
        return
    if not all(
        draft.is_sound("models", i, key) for i in range(len(models)) for key in ("roles", "interface")
    ):
        return
    roles = {role for model in models for role in model["roles"]}
    yield from _check_named_tasks_exist(draft)
    yield from _check_teachers_can_propose_and_write(draft)
    if (
        "student" not in roles
        and not _has_any_existing_answers(draft)
        and not _has_work_to_keep(draft, "response_collection")
    ):
        yield _report_missing_role("student", "phase 4 (response_collection)")
    if "judge" not in roles and not _has_work_to_keep(draft, "evaluation") and _needs_judge(draft):
        yield _report_missing_role("judge", "phase 5 (evaluation)")


def _has_any_existing_answers(draft: Draft) -> bool:
    """Check whether any student has existing answers, in a table of its own or in one of items."""
    answer_columns = (draft.get_raw("tasks", i, "items", "responses") for i in draft.indices("tasks"))
    return bool(draft.data.get("students")) or any(answer_columns)


def _report_missing_role(role: str, work: str) -> Finding:
    message = f"no model has the role {role}, which {work} needs; add {role} to the roles of one"
    return Finding(("models",), "V-07", message)


def _check_named_tasks_exist(draft: Draft) -> Iterator[Finding]:
    """Find unknown tasks named by benchmark teachers or by students with existing answers."""
    if not draft.has_all_names("tasks"):
        return
    named: list[KeyPath] = []
    for index, model in enumerate(draft.data["models"]):
        if model["interface"] == BENCHMARK:
            named.append(("models", index, "parameters", "task"))
    for index in draft.indices("students"):
        tasks = draft.get("students", index, "tasks") or ()
        named += [("students", index, "tasks", position) for position in range(len(tasks))]
    names = dict.fromkeys(draft.names("tasks").values())
    for path in named:
        if (task := draft.get(*path)) is not None and task not in names:
            yield Finding(path, "V-07", f"no task is named '{task}'", Suggestion(str(task), names, "tasks:"))


def _check_teachers_can_propose_and_write(draft: Draft) -> Iterator[Finding]:
    """Check that teachers can propose what is ``auto``, and write or supply the items of each task."""
    teachers = Teachers(draft)
    writes = not _has_work_to_keep(draft, "data_generation")
    if not teachers.any_teacher:
        unsupplied = not all(teachers.list_suppliers(index) for index in draft.indices("tasks"))
        if (writes and unsupplied) or _needs_proposals(draft):
            yield _report_missing_role("teacher", "the work of phases 1–3")
        return
    if not teachers.any_model and _needs_proposals(draft):
        message = (
            "attributes or rubrics are auto, and a benchmark proposes none; add a teacher that is a model"
        )
        yield Finding(("models",), "V-07", message)
        return
    for index in draft.indices("tasks") if writes else []:
        path = ("tasks", index, "category")
        name, category = draft.get("tasks", index, "name"), draft.get(*path, default="synthetic")
        if not draft.is_sound(*path) or teachers.list_suppliers(index, "synthetic"):
            continue
        if category == BENCHMARK:
            message = (
                "is benchmark, and no teacher of the interface benchmark serves this task; add one, or use "
                "synthetic"
            )
            yield Finding(path, "V-07", message)
        elif not teachers.any_model:
            message = (
                f"is synthetic, and all teachers are benchmarks of other tasks; give one parameters: "
                f"{{task: {name}}}, or add a teacher that is a model"
            )
            yield Finding(path, "V-07", message)


def _needs_proposals(draft: Draft) -> bool:
    """Check whether phase 1 or 2 will ask a teacher for proposals."""

    def any_task_has(choices: set[Any], *keys: str) -> bool:
        values = [draft.get("tasks", i, key) for i in draft.indices("tasks") for key in keys]
        return any(isinstance(value, str) and value in choices for value in values)

    attributes = any_task_has({"auto", "complete"}, "target_attributes", "nuanced_attributes")
    return (
        (attributes and not _has_work_to_keep(draft, "attribute_mapping"))
        or (any_task_has({"auto"}, "rubric") and not _has_work_to_keep(draft, "rubric_mapping"))
        # The source's rubric is where extending starts, not what it ends with.
        or any_task_has({"extend"}, "rubric")
    )


def _has_work_to_keep(draft: Draft, phase: str) -> bool:
    """Check whether a phase's mode keeps existing work, and there is some; True if that cannot be read."""
    if not draft.is_sound("experiment", "phases", phase):
        return True
    resumes = draft.get_raw("experiment", "resume_from") is not None
    # A source's attributes and rubrics are taken over unless their phase is New in so many words.
    default_mode = "Keep" if resumes and phase in PHASES[:2] else "New"
    if draft.get("experiment", "phases", phase, default=default_mode) == "New":
        return False
    if resumes:
        return True
    storage, identifier = draft.get("experiment", "storage_folder"), draft.get("experiment", "id")
    if storage is None or identifier is None:
        return True
    return RunDir(Path(storage) / identifier).holds(phase)


def _needs_judge(draft: Draft) -> bool:
    """Check whether any task has a factor that is neither a label nor a check."""
    for index in draft.indices("tasks"):
        rubric = draft.get("tasks", index, "rubric")
        labels = draft.get("tasks", index, "label_attributes", default=[])
        checks = {factor for factor, _ in list_checks(draft, index)}
        if not isinstance(rubric, dict) or rubric.keys() - checks - set(labels):
            return True
    return not draft.indices("tasks")


# --- What users bring in place of a host: answers that exist (V-01, V-20), functions and programs (V-39)


def add_empty_models_if_answers_exist(data: FileData) -> None:
    """Set ``models`` to none if answers exist and the file names no models."""
    if _has_any_existing_answers(Draft(data, frozenset())):
        data.setdefault("models", [])


def find_inherited_code(data: FileData, inherited: Collection[str], source: Path) -> Iterator[Finding]:
    """Find code in inherited sections that this file does not name, of checks and models (V-38, V-39)."""
    draft, named = Draft(data, frozenset()), f"which {source} names and this file does not; copy"
    for index in draft.indices("models") if "models" in inherited else ():
        if draft.get_raw("models", index, "interface") in _NEEDED:
            what = f"runs code, {named} that model into this file"
            yield Finding(("models", index, "interface"), "V-39", what)
    for index in draft.indices("tasks") if "tasks" in inherited else ():
        for factor, options in list_checks(draft, index):
            if code := code_location(options):
                what = f"runs {code}, {named} its tasks into this file"
                yield Finding(("tasks", index, "rubric", factor), "V-38", what)


def check_existing_answers(draft: Draft) -> Iterator[Finding]:
    """Check that somebody answers (V-01), and that tables of answers say which item is answered (V-20)."""
    if draft.data.get("models") == [] and not _has_any_existing_answers(draft):
        yield Finding(("models",), "V-01", "is empty; give at least one entry")
    for index in draft.indices("students"):
        path = ("students", index, "responses")
        responses = draft.get(*path)
        if isinstance(responses, dict) and not responses.keys() & {"prompt", "id"}:
            message = "has neither `prompt` nor `id`, the column that matches an answer to its item; add one"
            yield Finding(path, "V-20", message)


def model_id_or_code(model: ModelConfig) -> str:
    """Return the provider's id of a model, or the function or command that it is."""
    match model.interface:
        case "python":
            return str(model.parameters["callable"])
        case "command":
            return " ".join(map(quote, model.parameters["argv"]))
        case _:
            return model.spec().model


def describe_user_code(models: Iterable[ModelConfig]) -> Iterator[str]:
    for model in models:
        if model.interface in _NEEDED:
            where = "in this process" if model.interface == "python" else "as a program, without a sandbox"
            yield f"{model.name} runs {model_id_or_code(model)} {where}; it is free unless it reports a cost"


_NEEDED = {"python": "callable", "command": "argv"}


def check_code_parameters(draft: Draft) -> Iterator[Finding]:
    """Check the parameters of functions and programs, and that other models have none of these (V-39)."""
    for index in draft.indices("models"):
        path: KeyPath = ("models", index, "parameters")
        interface = draft.get("models", index, "interface", default="")
        parameters = draft.get_mapping(*path)
        if (needed := _NEEDED.get(interface)) is not None and needed not in parameters:
            example = "{callable: app.py:answer}" if interface == "python" else "{argv: [./answer.sh]}"
            yield Finding(path, "V-39", f"lacks `{needed}`, which {interface} needs; write {example}")
        for key in sorted(parameters.keys() & OPTIONS["python"].union(OPTIONS["command"])):
            if key not in OPTIONS.get(interface, ()):
                meant = "python" if key == "callable" else "command"
                yield Finding(
                    (*path, key), "V-39", f"'{key}' belongs to the interface {meant}; this is {interface}"
                )
        if needed is not None and "base_url" in parameters:
            yield Finding((*path, "base_url"), "V-39", f"{interface} has no address; remove it")
