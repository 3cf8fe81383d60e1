"""The rules of an experiment file that the types of its single values cannot say.

They run over the data as read, so that a mistake in one section hides none in another; what
the schema found unusable is left alone, so that one mistake is not reported twice.

====  ======================================================================================
V-01  models and tasks are present and not empty (after inheriting by resume_from)
V-02  model names are unique, and so are labels
V-03  task names are unique
V-04  names and the experiment's id: letters, digits, ``- _ .``; no ``__``, no ``_`` at
      either end, not ``.`` or ``..``; no model is named ``exact_match``; short enough for files
V-05  every model has a role, each one teacher, student or judge; a benchmark only teaches
V-06  the interface is known
V-07  there are teachers for the work of phases 1–3, a student for phase 4, a judge for phase 5; a task
      that a benchmark names is there
V-08  the mode ``Model`` is for phases 3, 4 and 5
V-09  ``rubric: extend`` needs resume_from
V-10  the source of resume_from exists, and is a run
V-11  a new run finds none of its artifacts in its folder (checked at the start)
V-12  generation_retries is a whole number, 0 or more
V-13  batches: batchable interfaces, phases 3–5, true or false
V-14  what a run goes on from is its own: a meta.json with its id, in the present layout (checked at the
      start)
V-15  probe_mode is full, resume or disable
V-16  probe_on_fail is abort or warn
V-17  label attributes are target attributes
V-18  no unknown key
V-19  no key given twice
V-20  every value has its type, or is one of its words; required keys are there
V-21  numbers are within their range; a limit on an answer is at least 1, or -1 where no budget holds
V-22  prompt templates use only the variables of their id
V-23  an item is not asked to sample more attributes than are declared
V-24  prompt_library names models and templates that exist
V-25  attributes have values, none of them twice
V-26  parameters hold no credential, at any depth, and no endpoint that differs by role
V-27  the file is one UTF-8 YAML mapping
V-28  target_attributes_seed and nuanced_attributes_seed stand beside what teachers propose
V-29  a task has a rubric or label_attributes
V-30  ``--only-models`` names models of the file (checked at the start)
V-31  ``--overwrite`` leaves no records whose source it makes anew (checked at the start)
V-32  ``items``: no model is named ``items`` then, each of its conditions is one, and ``all`` items are those
      of a table
V-33  the table of ``items`` can be read, and has the columns that are named (checked at the start)
V-34  a model is asked with an ``account`` of a key file or an ``access_key``, not with both
V-35  a prompt template shows what changes from request to request: ``test`` the ``{input}``, ``sample`` the
      ``{target_attributes}`` if there are any, ``evaluate_…`` the ``{response}``, and ``{factor}`` or
      ``{criterion}``, or the ``{rubric}`` where teachers write it; unless ``prompts_may_omit`` says otherwise
====  ======================================================================================
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from coeval.core.model import is_own_address
from coeval.core.options import CONTINUE
from coeval.core.secrets.credential_names import is_credential_name
from coeval.models.batch.waiting.batching import BATCH_PHASES
from coeval.models.catalog import HOSTS
from coeval.models.metering.answer_bound import NO_LIMIT, answer_limits
from coeval.pipeline.config.credentials import account_of, credentials_in
from coeval.pipeline.config.draft import Draft, resume_folder
from coeval.pipeline.config.findings import Finding, KeyPath, WayOut, shown, written
from coeval.pipeline.config.item_rules import item_rules
from coeval.pipeline.config.names import name_rules
from coeval.pipeline.config.roles import missing_roles
from coeval.pipeline.config.schema import BATCH_INTERFACES, INTERFACES, OPTIONS
from coeval.pipeline.config.task_rules import task_rules
from coeval.pipeline.config.values import ENDPOINT_KEYS, OUR_KEYS
from coeval.simulation.traits import RANGES, SAMPLING
from coeval.store.rundir import RunDir

_BATCHABLE = ", ".join(BATCH_INTERFACES)


def broken_rules(draft: Draft) -> Iterator[Finding]:
    """Every finding over the data, in no particular order. Reads the disk only for resume_from."""
    yield from name_rules(draft)
    yield from _interfaces(draft)
    yield from missing_roles(draft)
    yield from _phase_modes(draft)
    yield from _resume(draft)
    yield from _batch(draft)
    yield from _parameters(draft)
    yield from task_rules(draft)
    yield from item_rules(draft)


def _interfaces(draft: Draft) -> Iterator[Finding]:
    for index in draft.entries("models"):
        interface = draft.get("models", index, "interface")
        if interface is None:
            continue
        if interface not in INTERFACES and interface not in HOSTS:
            way = WayOut(interface, (*HOSTS, "auto"), "known:")
            path = ("models", index, "interface")
            yield Finding(path, "V-06", f"the interface '{interface}' is unknown", way)
        others = [role for role in draft.get("models", index, "roles", default=[]) if role != "teacher"]
        if interface == "benchmark" and others:
            yield Finding(
                ("models", index, "roles"),
                "V-05",
                f"a benchmark supplies items and cannot be a {others[0]}; give it the role teacher alone",
            )
        if draft.get("models", index, "batch_enabled") and interface not in (*BATCH_INTERFACES, "auto"):
            yield Finding(
                ("models", index, "batch_enabled"),
                "V-13",
                f"'{interface}' has no Batch API; remove the key, or use one of {_BATCHABLE}",
            )


def _phase_modes(draft: Draft) -> Iterator[Finding]:
    for phase in ("attribute_mapping", "rubric_mapping"):
        if draft.get("experiment", "phases", phase) == "Model":
            message = "the mode Model is for phases 3, 4 and 5; use New, Keep or Extend here"
            yield Finding(("experiment", "phases", phase), "V-08", message)


def _resume(draft: Draft) -> Iterator[Finding]:
    source = draft.get("experiment", "resume_from")
    storage = draft.get("experiment", "storage_folder")
    if source is not None and storage is not None:
        path: KeyPath = ("experiment", "resume_from")
        folder = resume_folder(storage, source)
        RunDir(folder).refuse_unreadable()
        if not folder.is_dir():
            message = f"there is no run '{source}', neither in {storage} nor as a path; name one that exists"
            yield Finding(path, "V-10", message)
        elif folder.resolve() == Path(storage, draft.get("experiment", "id", default="")).resolve():
            yield Finding(
                path, "V-10", f"names this run's own folder; use {CONTINUE} to go on with '{source}'"
            )
        elif not RunDir(folder).is_run() and not RunDir(folder).config.exists():
            message = f"{folder} is no run: it holds neither meta.json nor any artifacts; name one that is"
            yield Finding(path, "V-10", message)
    if source is not None or not draft.sound("experiment", "resume_from"):
        return
    for index in draft.entries("tasks"):
        if draft.get("tasks", index, "rubric") == "extend":
            message = "extends the rubric of an earlier run; set experiment.resume_from, or use auto"
            yield Finding(("tasks", index, "rubric"), "V-09", message)


def _batch(draft: Draft) -> Iterator[Finding]:
    for interface, phases in _mapping(draft.raw("experiment", "batch")).items():
        path: KeyPath = ("experiment", "batch", interface)
        if interface not in BATCH_INTERFACES:
            way = WayOut(interface, BATCH_INTERFACES, "batchable:")
            yield Finding(path, "V-13", f"'{interface}' has no Batch API here", way)
        for phase in _mapping(phases):
            if phase not in BATCH_PHASES:
                way = WayOut(phase, BATCH_PHASES, "phases:")
                yield Finding((*path, phase), "V-13", f"'{phase}' is no phase with batches", way)
    match draft.get("experiment", "batch_poll_s"):
        case [float() | int() as first, float() | int() as most] if first > most:
            way_out = f"the first pause ({first:g} s) is longer than the longest ({most:g} s); swap them"
            yield Finding(("experiment", "batch_poll_s"), "V-13", way_out)


def _parameters(draft: Draft) -> Iterator[Finding]:
    for index in draft.entries("models"):
        model: KeyPath = ("models", index)
        interface = draft.get(*model, "interface", default="")
        common = _mapping(draft.raw(*model, "parameters"))
        roles = _mapping(draft.raw(*model, "role_parameters"))
        parts = [((*model, "role_parameters", role), _mapping(own)) for role, own in roles.items()]
        yield from account_of(model, draft.raw(*model, "account"), draft.raw(*model, "access_key"))
        names = (draft.raw(*model, "name"), common.get("model"), common.get("base_model"))
        for path, own in (((*model, "parameters"), common), *parts):
            yield from credentials_in(path, own, draft.raw(*model, "access_key"), names)
            # Behind a base_url somebody else may know what no simulated model does.
            if interface == "simulated" and "base_url" not in common:
                yield from _unknown_to_simulated(path, own)
            yield from _answer_limits(draft, index, path, own)
        if interface == "simulated":
            yield from _simulated((*model, "parameters"), common)
        fixed = ENDPOINT_KEYS | OPTIONS.get(interface, frozenset())
        for path, own in parts:
            for key in sorted(fixed & own.keys()):
                if own[key] != common.get(key):
                    message = f"'{key}' cannot differ by role; set it in parameters, or add a second model"
                    yield Finding((*path, key), "V-26", message)


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _answer_limits(draft: Draft, index: int, path: KeyPath, own: dict[str, Any]) -> Iterator[Finding]:
    """What is no limit to a host cannot bound what an answer costs."""
    name = draft.get("models", index, "name", default="")
    quota = _mapping(_mapping(draft.raw("experiment", "quota")).get(name))
    budgets = {
        "experiment.budget_usd": draft.raw("experiment", "budget_usd"),
        f"experiment.quota.{name}.max_cost_usd": quota.get("max_cost_usd"),
    }
    budget = next((key for key, usd in budgets.items() if isinstance(usd, int | float)), None)
    host = HOSTS.get(draft.get("models", index, "interface", default=""))
    url = draft.raw("models", index, "parameters", "base_url")
    if host is not None and host.local and not (isinstance(url, str) and not is_own_address(url)):
        budget = None  # it costs nothing; one that does all the same is refused when its price is known
    for keys, limit in answer_limits(own):
        if type(limit) is not int or limit >= 1 or (budget is None and limit in NO_LIMIT):
            continue
        why = f", which bounds no answer, and {budget} needs a bound" if budget is not None else ""
        message = f"is {written(limit)}{why}; use a whole number, 1 or more"
        yield Finding((*path, *keys), "V-21", message)


def _simulated(path: KeyPath, parameters: dict[str, Any]) -> Iterator[Finding]:
    for key, (lo, hi) in RANGES.items():
        value = parameters.get(key, lo)
        if isinstance(value, bool) or not isinstance(value, int | float):
            yield Finding((*path, key), "V-20", f"is {shown(value)}, not a number; write a number")
        elif not lo <= value <= hi:
            yield Finding((*path, key), "V-21", f"is {written(value)}; use a number from {lo:g} to {hi:g}")


def _unknown_to_simulated(path: KeyPath, parameters: dict[str, Any]) -> Iterator[Finding]:
    """Elsewhere the provider says what it does not know; a simulated model in this process is its own."""
    known = sorted(OPTIONS["simulated"] | SAMPLING | OUR_KEYS)
    own = ", ".join(sorted(OPTIONS["simulated"]))
    otherwise = f"it has {own}, and takes the usual sampling parameters"
    for key in parameters:
        if key not in known and not is_credential_name(key):
            way = WayOut(key, known, otherwise)
            yield Finding((*path, key), "V-18", f"no simulated model knows '{key}'", way)
