"""V-07: somebody is there for the work of each phase, a model or what users bring in place of one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from shlex import quote
from typing import Any

from coeval.judging.checks.check_options import code_of
from coeval.pipeline.config.draft import BENCHMARK, OWN_ITEMS, Draft, Suppliers, declared_checks, mappings
from coeval.pipeline.config.findings import Finding, KeyPath, WayOut
from coeval.pipeline.config.schema import OPTIONS, PHASES, ModelConfig
from coeval.store.rundir import RunDir


class Teachers:
    """The teachers of a draft, as far as they can be read. ``requested``: one of them is a model."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        models = [("models", index) for index in draft.entries("models")]
        teachers = [model for model in models if "teacher" in (draft.get(*model, "roles") or ())]
        self.some = bool(teachers)
        self.requested = any(draft.get(*model, "interface") != BENCHMARK for model in teachers)
        self._suppliers = Suppliers(
            (str(draft.get(*model, "name")), draft.get(*model, "parameters", default={}))
            for model in teachers
            if draft.get(*model, "interface") == BENCHMARK
        )

    def supplying(self, index: int, category: str | None = None) -> list[str]:
        """Who supplies items of a task: its own table, and the benchmarks that serve it, by name.
        ``category`` is what it has where it says none."""
        task = ("tasks", index)
        own = [OWN_ITEMS] if self._draft.raw(*task, "items") is not None else []
        name = self._draft.get(*task, "name")
        return own + self._suppliers.of(name, self._draft.get(*task, "category", default=category))


def missing_roles(draft: Draft) -> Iterator[Finding]:
    """What no model of the file can do. Silent while the models' roles are not all readable."""
    models = draft.data.get("models")
    if not isinstance(models, list) or not (models or _answered(draft)):
        return
    if not all(draft.sound("models", i, key) for i in range(len(models)) for key in ("roles", "interface")):
        return
    roles = {role for model in models for role in model["roles"]}
    yield from _unknown_tasks(draft)
    yield from _teachers(draft)
    if "student" not in roles and not _answered(draft) and not _stands(draft, "response_collection"):
        yield _missing("student", "phase 4 (response_collection)")
    if "judge" not in roles and not _stands(draft, "evaluation") and _is_judged(draft):
        yield _missing("judge", "phase 5 (evaluation)")


def _answered(draft: Draft) -> bool:
    """Whether there are students whose answers exist."""
    of_tables = (draft.raw("tasks", i, "items", "responses") for i in draft.entries("tasks"))
    return bool(draft.entries("students")) or any(of_tables)


def _missing(role: str, work: str) -> Finding:
    message = f"no model has the role {role}, which {work} needs; add {role} to the roles of one"
    return Finding(("models",), "V-07", message)


def _unknown_tasks(draft: Draft) -> Iterator[Finding]:
    """Tasks that are not there, of benchmark teachers and of students whose answers exist."""
    if not draft.all_named("tasks"):
        return
    named: list[KeyPath] = []
    for index, model in enumerate(draft.data["models"]):
        if model["interface"] == BENCHMARK:
            named.append(("models", index, "parameters", "task"))
    for index in draft.entries("students"):
        tasks = draft.get("students", index, "tasks") or ()
        named += [("students", index, "tasks", position) for position in range(len(tasks))]
    names = dict.fromkeys(draft.names("tasks").values())
    for path in named:
        if (task := draft.get(*path)) is not None and task not in names:
            yield Finding(path, "V-07", f"no task is named '{task}'", WayOut(str(task), names, "tasks:"))


def _teachers(draft: Draft) -> Iterator[Finding]:
    teachers = Teachers(draft)
    writes = not _stands(draft, "data_generation")
    if not teachers.some:
        unsupplied = not all(teachers.supplying(index) for index in draft.entries("tasks"))
        if (writes and unsupplied) or _proposes(draft):
            yield _missing("teacher", "the work of phases 1–3")
        return
    if not teachers.requested and _proposes(draft):
        message = (
            "attributes or rubrics are auto, and a benchmark proposes none; add a teacher that is a model"
        )
        yield Finding(("models",), "V-07", message)
        return
    for index in draft.entries("tasks") if writes else []:
        path = ("tasks", index, "category")
        name, category = draft.get("tasks", index, "name"), draft.get(*path, default="synthetic")
        if not draft.sound(*path) or teachers.supplying(index, "synthetic"):
            continue
        if category == BENCHMARK:
            message = (
                "is benchmark, and no teacher of the interface benchmark serves this task; add one, or use "
                "synthetic"
            )
            yield Finding(path, "V-07", message)
        elif not teachers.requested:
            message = (
                f"is synthetic, and all teachers are benchmarks of other tasks; give one parameters: "
                f"{{task: {name}}}, or add a teacher that is a model"
            )
            yield Finding(path, "V-07", message)


def _proposes(draft: Draft) -> bool:
    """Whether phase 1 or 2 has anything to ask a teacher."""

    def any_is(words: set[Any], *keys: str) -> bool:
        values = [draft.get("tasks", i, key) for i in draft.entries("tasks") for key in keys]
        return any(isinstance(value, str) and value in words for value in values)

    attributes = any_is({"auto", "complete"}, "target_attributes", "nuanced_attributes")
    return (
        (attributes and not _stands(draft, "attribute_mapping"))
        or (any_is({"auto"}, "rubric") and not _stands(draft, "rubric_mapping"))
        # The source's rubric is where extending starts, not what it ends with.
        or any_is({"extend"}, "rubric")
    )


def _stands(draft: Draft, phase: str) -> bool:
    """Whether the phase lives on work that exists: its mode keeps it, and there is some."""
    if not draft.sound("experiment", "phases", phase):
        return True
    resumes = draft.raw("experiment", "resume_from") is not None
    # A source's attributes and rubrics are taken over unless their phase is New in so many words.
    unsaid = "Keep" if resumes and phase in PHASES[:2] else "New"
    if draft.get("experiment", "phases", phase, default=unsaid) == "New":
        return False
    if resumes:
        return True
    storage, identifier = draft.get("experiment", "storage_folder"), draft.get("experiment", "id")
    if storage is None or identifier is None:
        return True
    return RunDir(Path(storage) / identifier).holds(phase)


def _is_judged(draft: Draft) -> bool:
    """Whether any task has a factor that is neither compared as a label nor a check."""
    for index in draft.entries("tasks"):
        rubric = draft.get("tasks", index, "rubric")
        labels = draft.get("tasks", index, "label_attributes", default=[])
        checks = {factor for factor, _ in declared_checks(draft, index)}
        if not isinstance(rubric, dict) or rubric.keys() - checks - set(labels):
            return True
    return not draft.entries("tasks")


# --- What users bring in place of a host: answers that exist (V-01, V-20), functions and programs (V-39)


def complete_students(data: dict[str, Any]) -> None:
    """Fill in that no model takes part where answers exist and the file names none."""
    if data.get("students") or _answers_of_tables(data):
        data.setdefault("models", [])


def _answers_of_tables(data: dict[str, Any]) -> bool:
    """Whether a table of items holds answers too."""
    tables = [task.get("items") for task in mappings(data.get("tasks"))]
    return any(isinstance(items, dict) and items.get("responses") for items in tables)


def inherited_code(data: dict[str, Any], inherited: Collection[str], source: Path) -> Iterator[Finding]:
    """V-38, V-39: checks and models of sections that are inherited, which would run code that the file being
    started does not name."""
    draft, named = Draft(data, frozenset()), f"which {source} names and this file does not; copy"
    for index in draft.entries("models") if "models" in inherited else ():
        if draft.raw("models", index, "interface") in _NEEDED:
            what = f"runs code, {named} that model into this file"
            yield Finding(("models", index, "interface"), "V-39", what)
    for index in draft.entries("tasks") if "tasks" in inherited else ():
        for factor, options in declared_checks(draft, index):
            if code := code_of(options):
                what = f"runs {code}, {named} its tasks into this file"
                yield Finding(("tasks", index, "rubric", factor), "V-38", what)


def own_data_rules(draft: Draft) -> Iterator[Finding]:
    yield from _answered_students(draft)
    yield from _own_code(draft)


def _answered_students(draft: Draft) -> Iterator[Finding]:
    """Models where nobody else answers; how rows of answers are told apart."""
    if draft.data.get("models") == [] and not (draft.data.get("students") or _answers_of_tables(draft.data)):
        yield Finding(("models",), "V-01", "is empty; give at least one entry")
    for index in draft.entries("students"):
        path = ("students", index, "responses")
        responses = draft.get(*path)
        if isinstance(responses, dict) and not responses.keys() & {"prompt", "id"}:
            message = "has neither `prompt` nor `id`, the column that matches an answer to its item; add one"
            yield Finding(path, "V-20", message)


def model_id_or_code(model: ModelConfig) -> str:
    """Return the provider's id of a model, or the code of the user's that it is."""
    given = model.parameters
    match model.interface:
        case "python":
            return str(given["callable"])
        case "command":
            return " ".join(map(quote, given["argv"]))
        case _:
            return model.spec().model


def describe_user_code(models: Iterable[ModelConfig]) -> Iterator[str]:
    """Say which code of the user's these models are, a sentence each."""
    for model in models:
        if model.interface in _NEEDED:
            where = "in this process" if model.interface == "python" else "as a program, in no sandbox"
            yield f"{model.name} runs {model_id_or_code(model)} {where}; it is free unless it reports a cost"


_NEEDED = {"python": "callable", "command": "argv"}


def _own_code(draft: Draft) -> Iterator[Finding]:
    for index in draft.entries("models"):
        path: KeyPath = ("models", index, "parameters")
        interface = draft.get("models", index, "interface", default="")
        found = draft.raw(*path, default={})
        given = found if isinstance(found, dict) else {}
        if (needed := _NEEDED.get(interface)) is not None and needed not in given:
            example = "{callable: app.py:answer}" if interface == "python" else "{argv: [./answer.sh]}"
            yield Finding(path, "V-39", f"says no `{needed}`, and {interface} needs one; write {example}")
        for key in sorted(given.keys() & OPTIONS["python"].union(OPTIONS["command"])):
            if key not in OPTIONS.get(interface, ()):
                meant = "python" if key == "callable" else "command"
                yield Finding(
                    (*path, key), "V-39", f"'{key}' belongs to the interface {meant}; this is {interface}"
                )
        if needed is not None and "base_url" in given:
            yield Finding((*path, "base_url"), "V-39", f"{interface} has no address; remove it")
