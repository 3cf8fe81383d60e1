"""The rules of an experiment file that the types of its single values cannot say.

They run over the data as read, so that a mistake in one section hides none in another; what the schema found
unusable is left alone, so that one mistake is not reported twice. ``rules.md`` lists them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

from coeval.core.errors import UsageError
from coeval.core.model import NO_LIMIT, find_answer_limits, is_private_address
from coeval.core.options import CONTINUE
from coeval.core.redaction import Redactor
from coeval.core.shown_url import HIDDEN, KNOWN_KEY, find_credential_fields, is_credential_name
from coeval.core.text import placeholders
from coeval.models.batch.job_list import BATCH_PHASES
from coeval.models.catalog import HOSTS
from coeval.models.keys import is_account_name
from coeval.pipeline.config.draft import BENCHMARK, OWN_ITEMS, Draft, find_resume_folder
from coeval.pipeline.config.findings import Finding, KeyPath, Suggestion, describe_value, to_yaml_line
from coeval.pipeline.config.judging_rules import check_pairwise, check_rubric
from coeval.pipeline.config.names import check_names
from coeval.pipeline.config.roles import Teachers, check_code_parameters, check_existing_answers, check_roles
from coeval.pipeline.config.schema import BATCH_INTERFACES, INTERFACES, OPTIONS
from coeval.pipeline.config.values import ENDPOINT_KEYS, OUR_KEYS, ParameterMap, columns_by_name
from coeval.pipeline.prompts import NEEDS, VARIABLES
from coeval.simulation.traits import RANGES, SAMPLING, VARIED
from coeval.store.rundir import RunDir
from coeval.tables.item_map import Condition

# --- Places of credentials (V-26, V-34)
#
# V-26: parameters are sent with every request and kept with what it makes, so they hold none. V-34: a model
# is asked with one.

_WAY_OUT = "use access_key of the model, a key file, or the environment"
# What may mention a key without being one.
_PROSE = frozenset({"system_prompt", "stop", "stop_sequences"})


def check_account(model_path: KeyPath, account: Any, access_key: Any) -> Iterator[Finding]:
    """Check the account name of a model, which is kept with the run and shown in messages."""
    if not isinstance(account, str):
        return
    if not is_account_name(account):
        message = (
            "is not an account name: letters, digits and - _ . alone, and nothing that looks like a key, "
            "which belongs into access_key or a key file"
        )
        yield Finding((*model_path, "account"), "V-26", message)
    elif access_key is not None:
        message = "access_key is also set, and would be used; remove one of the two"
        yield Finding((*model_path, "account"), "V-34", message)


def find_credentials(
    path: KeyPath, parameters: ParameterMap, access_key: Any, names: Iterable[Any]
) -> Iterator[Finding]:
    """Find credentials in parameters, at any depth: by name, by shape, or equal to the ``access_key``.
    ``names`` are the model's own names, which may occur anywhere."""
    credential_paths = {(*path, *where) for where in find_credential_fields(parameters)}
    for where in sorted(credential_paths, key=str):
        message = f"'{where[-1]}' would be sent with every request and kept with the results; {_WAY_OUT}"
        yield Finding(where, "V-26", message)
    own = Redactor(
        [access_key] if isinstance(access_key, str) else [],
        names=[name for name in names if isinstance(name, str)],
    )
    for name, value in parameters.items():
        if name == "base_url" and isinstance(value, str) and HIDDEN in value:
            message = (
                f"holds {HIDDEN}, which a run's snapshot shows in place of a key; write the address again"
            )
            yield Finding((*path, name), "V-26", message)
        elif name != "base_url" and name not in _PROSE:
            for where, text in _walk_texts((*path, name), value):
                if where not in credential_paths and (
                    KNOWN_KEY.search(text) or own.redact_answer(text) != text
                ):
                    message = f"holds a key, which would be sent and kept with the results; {_WAY_OUT}"
                    yield Finding(where, "V-26", message)


def _walk_texts(path: KeyPath, value: Any) -> Iterator[tuple[KeyPath, str]]:
    match value:
        case str():
            yield path, value
        case dict():
            for key, item in value.items():
                yield from _walk_texts((*path, key), item)
        case list() | tuple():
            for index, item in enumerate(value):
                yield from _walk_texts((*path, index), item)


# --- Items that are supplied (V-32, V-42)


def check_supplied_items(draft: Draft) -> Iterator[Finding]:
    """Check tasks whose items are supplied: reserved names, conditions, ``all``, documents (V-32, V-42)."""
    tables = [index for index in draft.indices("tasks") if draft.get_raw("tasks", index, "items") is not None]
    for index, name in draft.names("models").items() if tables else ():
        if name == OWN_ITEMS:
            message = f"'{name}' is the teacher of a task with items; choose another name"
            yield Finding(("models", index, "name"), "V-32", message)
    for index in draft.indices("tasks"):
        supplied = index in tables or draft.get("tasks", index, "category") == BENCHMARK
        if supplied and draft.get_raw("tasks", index, "documents") is not None:
            message = "apply to items that teachers write; remove them, or `items` and `category: benchmark`"
            yield Finding(("tasks", index, "documents"), "V-42", message)
        if index in tables:
            yield from _check_items_where_conditions(draft, index)
        elif draft.get("tasks", index, "sampling", "total") == "all":
            message = "is all, which only a task with `items` allows; write a number"
            yield Finding(("tasks", index, "sampling", "total"), "V-32", message)


def _check_items_where_conditions(draft: Draft, index: int) -> Iterator[Finding]:
    path: KeyPath = ("tasks", index, "items", "where")
    where = draft.get(*path, default=[])
    for condition in [where] if isinstance(where, str) else where:
        try:
            Condition.parse(condition)
        except UsageError as error:
            yield Finding(path, "V-32", str(error))


# --- Rules of one task (V-17, V-22 to V-24, V-28, V-29, V-35)

_WITHOUT = {
    "input": "students would not see the prompt",
    "response": "judges would score answers that they cannot see",
    "criterion": "every factor would be judged by the same words",
    "rubric": "judges would not see the factors, which teachers write",
    "answer_a": "judges would compare answers but see at most one",
    "answer_b": "judges would compare answers but see at most one",
    "passages": "teachers would not see what to write from",
    "target_attributes": "teachers would not see what their items must cover",
}


def check_tasks(draft: Draft) -> Iterator[Finding]:
    """Check each task: labels, sample sizes, templates, seeds, rubric, pairwise judging."""
    teachers = Teachers(draft)
    models = dict.fromkeys(draft.model_and_variant_names()) if draft.has_all_names("models") else None
    for index in draft.indices("tasks"):
        yield from _check_label_attributes(draft, index, teachers)
        if not _has_only_supplied_items(draft, index, teachers):
            yield from _check_attribute_counts(draft, index)
        for key, text in draft.get_mapping("tasks", index, "prompt_library").items():
            template = text if isinstance(text, str) else ""
            misnamed = [*_check_prompt_library_entry(index, key, template, models)]
            yield from misnamed or _check_template_shows_what_varies(draft, index, key, template, teachers)
        yield from _check_seeded_attributes_are_proposed(draft, index)
        yield from check_rubric(draft, index)
        yield from check_pairwise(draft, index)


def _check_label_attributes(draft: Draft, index: int, teachers: Teachers) -> Iterator[Finding]:
    """Check that label attributes are target attributes, as far as these are known (V-17)."""
    labels = draft.get("tasks", index, "label_attributes", default=[])
    declared = draft.get("tasks", index, "target_attributes")
    if declared is None:
        return
    if isinstance(declared, str):
        # What teachers propose is not known yet; what a source run holds neither.
        if draft.get("experiment", "resume_from") is not None:
            return
        declared = draft.get("tasks", index, "target_attributes_seed", default={}) or {}
        otherwise = "with 'auto' or 'complete', declare it in target_attributes_seed"
    else:
        otherwise = "target attributes:"
        if _has_only_supplied_items(draft, index, teachers):
            if (own := _map_known_attributes_to_columns(draft, index)) is None:
                return
            declared = {**own, **declared}
    for position, label in enumerate(labels):
        if label not in declared:
            path: KeyPath = ("tasks", index, "label_attributes", position)
            way = Suggestion(label, declared, otherwise)
            yield Finding(path, "V-17", f"'{label}' is not a target attribute", way)


def _map_known_attributes_to_columns(draft: Draft, index: int) -> dict[str, str] | None:
    """Return the attributes that a table gives the items; None if benchmarks supply unknown ones."""
    items = draft.get("tasks", index, "items", default={})
    if not items and not draft.get("tasks", index, "target_attributes"):
        return None
    label = items.get("label")
    return {**columns_by_name(items.get("attributes", {})), **({label: label} if label is not None else {})}


def _has_only_supplied_items(draft: Draft, index: int, teachers: Teachers) -> bool:
    """Check whether no teacher writes items of a task, so that no attributes are sampled."""
    alone = (
        draft.get("tasks", index, "category") == BENCHMARK
        or draft.get_raw("tasks", index, "items") is not None
    )
    return bool(teachers.list_suppliers(index)) and (alone or not teachers.any_model)


def _check_attribute_counts(draft: Draft, index: int) -> Iterator[Finding]:
    for sizes, attributes in (("target", "target_attributes"), ("nuance", "nuanced_attributes")):
        declared = draft.get("tasks", index, attributes, default={} if sizes == "nuance" else None)
        default = [1, 1] if sizes == "target" else [0, 0]
        pair = draft.get("tasks", index, "sampling", sizes, default=default)
        usable = draft.is_sound("tasks", index, attributes) and isinstance(declared, dict)
        if usable and isinstance(pair, list) and pair[0] > len(declared):
            if declared:
                wrong = f"requests {pair[0]} of {len(declared)} declared {attributes}"
                message = f"{wrong}; use at most {len(declared)}, or declare more"
            else:
                wrong = f"requests {pair[0]} of each item's {attributes}, but none are declared"
                message = f"{wrong}; declare {attributes}, or set sampling.{sizes} to [0, 0]"
            yield Finding(("tasks", index, "sampling", sizes), "V-23", message)


def _check_prompt_library_entry(
    index: int, library_key: str, template: str, model_names: Collection[str] | None
) -> Iterator[Finding]:
    """Check that a template and its model exist (V-24); ``model_names``: None if not all are known."""
    path: KeyPath = ("tasks", index, "prompt_library", library_key)
    identifier, dot, model = library_key.partition(".")
    if identifier not in VARIABLES:
        way = Suggestion(identifier, VARIABLES, "templates:")
        yield Finding(path, "V-24", f"there is no template '{identifier}'", way)
        return
    if dot and model_names is not None and model not in model_names:
        yield Finding(path, "V-24", f"no model is named '{model}'", Suggestion(model, model_names, "models:"))
    yield from _find_unknown_variables(path, identifier, template)


def _find_unknown_variables(path: KeyPath, identifier: str, template: str) -> Iterator[Finding]:
    for name in dict.fromkeys(placeholders(template)):
        if name not in VARIABLES[identifier]:
            way = Suggestion(name, VARIABLES[identifier], "for literal braces write {{ and }}")
            yield Finding(path, "V-22", f"{{{name}}} is not a variable of {identifier}", way)


def _check_template_shows_what_varies(
    draft: Draft, index: int, key: str, template: str, teachers: Teachers
) -> Iterator[Finding]:
    """Check that a template shows what changes from request to request (V-35)."""
    omitted = ("tasks", index, "prompts_may_omit")
    if not template.strip() or not draft.is_sound(*omitted):
        return  # another finding says so
    used = {*placeholders(template), *draft.get(*omitted, default=[])}
    for one_of in NEEDS.get(key.partition(".")[0], ()):
        if one_of & used or not _varies_by_request(draft, index, one_of, teachers):
            continue
        *others, name = sorted(one_of, key=lambda name: name in _WITHOUT)
        lacking = " or ".join(f"{{{name}}}" for name in (*others, name))
        message = (
            f"shows no {lacking}: {_WITHOUT[name]}; put it where it belongs, or, if intended, set "
            f"prompts_may_omit: [{name}] in the task"
        )
        yield Finding(("tasks", index, "prompt_library", key), "V-35", message)


def _varies_by_request(draft: Draft, index: int, variables: Collection[str], teachers: Teachers) -> bool:
    """Check whether a template needs one of these variables, since it changes between a task's requests."""
    if "rubric" in variables:
        return isinstance(draft.get("tasks", index, "rubric"), str)
    if "target_attributes" in variables:
        declared = draft.get("tasks", index, "target_attributes")
        return bool(declared) and not _has_only_supplied_items(draft, index, teachers)
    return True


def _check_seeded_attributes_are_proposed(draft: Draft, index: int) -> Iterator[Finding]:
    for attributes, words in (("target_attributes", "auto or complete"), ("nuanced_attributes", "auto")):
        seed, declared = f"{attributes}_seed", ("tasks", index, attributes)
        if draft.get_raw("tasks", index, seed) is None or not draft.is_sound(*declared):
            continue
        if not isinstance(draft.get(*declared, default={}), str):
            message = (
                f"adds to the teachers' proposals, and they propose no {attributes}; "
                f"set {attributes} to {words}, or move these there"
            )
            yield Finding(("tasks", index, seed), "V-28", message)


_BATCHABLE = ", ".join(BATCH_INTERFACES)


def find_broken_rules(draft: Draft) -> Iterator[Finding]:
    """Apply every rule, in no particular order. Reads the disk only for ``resume_from``."""
    yield from check_names(draft)
    yield from _check_interfaces_roles_and_batching(draft)
    yield from check_roles(draft)
    yield from _refuse_model_mode_in_first_phases(draft)
    yield from _check_resumed_run_and_rubrics(draft)
    yield from _check_batch_settings(draft)
    yield from _check_parameters(draft)
    yield from check_existing_answers(draft)
    yield from check_code_parameters(draft)
    yield from _check_variants_and_samples(draft)
    yield from check_tasks(draft)
    yield from check_supplied_items(draft)


# Names that other tools have for hosts, gateways and engines that speak as OpenAI does.
_OPENAI_SHAPED = re.compile(
    "litellm|portkey|compatible|custom|proxy|gateway|sglang|llama_?cpp|lm_?studio|together|fireworks|perplexity"
)
_AT_BASE_URL = (
    "write `interface: openai` and `parameters: {base_url: …/v1}` (`interface: vllm`: nothing is billed)"
)


def _check_interfaces_roles_and_batching(draft: Draft) -> Iterator[Finding]:
    """Check interfaces, and what a benchmark or a host without batches cannot do (V-05, V-06, V-13)."""
    for index in draft.indices("models"):
        interface = draft.get("models", index, "interface")
        if interface is None:
            continue
        if interface not in INTERFACES and interface not in HOSTS:
            suggestions = () if _OPENAI_SHAPED.search(interface) else (*HOSTS, "auto")
            way = Suggestion(interface, suggestions, "known:" if suggestions else _AT_BASE_URL)
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


def _refuse_model_mode_in_first_phases(draft: Draft) -> Iterator[Finding]:
    for phase in ("attribute_mapping", "rubric_mapping"):
        if draft.get("experiment", "phases", phase) == "Model":
            message = "the mode Model is for phases 3, 4 and 5; use New, Keep or Extend here"
            yield Finding(("experiment", "phases", phase), "V-08", message)


def _check_resumed_run_and_rubrics(draft: Draft) -> Iterator[Finding]:
    """Check that ``resume_from`` names another run, and that ``rubric: extend`` has one (V-09, V-10)."""
    source = draft.get("experiment", "resume_from")
    storage = draft.get("experiment", "storage_folder")
    if source is not None and storage is not None:
        path: KeyPath = ("experiment", "resume_from")
        folder = find_resume_folder(storage, source)
        RunDir(folder).refuse_foreign_or_half_replaced()
        if not folder.is_dir():
            message = f"there is no run '{source}', neither in {storage} nor as a path; name an existing run"
            yield Finding(path, "V-10", message)
        elif folder.resolve() == Path(storage, draft.get("experiment", "id", default="")).resolve():
            yield Finding(path, "V-10", f"names this run's own folder; use {CONTINUE} to resume '{source}'")
        elif not RunDir(folder).is_run() and not RunDir(folder).config.exists():
            message = f"{folder} is not a run: it holds neither meta.json nor any artifacts; name one that is"
            yield Finding(path, "V-10", message)
    if source is not None or not draft.is_sound("experiment", "resume_from"):
        return
    for index in draft.indices("tasks"):
        if draft.get("tasks", index, "rubric") == "extend":
            message = "extends the rubric of an earlier run; set experiment.resume_from, or use auto"
            yield Finding(("tasks", index, "rubric"), "V-09", message)


def _check_batch_settings(draft: Draft) -> Iterator[Finding]:
    for interface, phases in draft.get_mapping("experiment", "batch").items():
        path: KeyPath = ("experiment", "batch", interface)
        if interface not in BATCH_INTERFACES:
            way = Suggestion(interface, BATCH_INTERFACES, "batchable:")
            yield Finding(path, "V-13", f"'{interface}' has no Batch API here", way)
        for phase in phases if isinstance(phases, dict) else ():
            if phase not in BATCH_PHASES:
                way = Suggestion(phase, BATCH_PHASES, "phases:")
                yield Finding((*path, phase), "V-13", f"'{phase}' is not a phase with batches", way)
    match draft.get("experiment", "batch_poll_s"):
        case [float() | int() as first, float() | int() as most] if first > most:
            way_out = f"the first pause ({first:g} s) is longer than the longest ({most:g} s); swap them"
            yield Finding(("experiment", "batch_poll_s"), "V-13", way_out)


def _check_parameters(draft: Draft) -> Iterator[Finding]:
    """Check the parameters of each model, with those of its roles and variants (V-21, V-26, V-34)."""
    for index in draft.indices("models"):
        model: KeyPath = ("models", index)
        interface = draft.get(*model, "interface", default="")
        common = draft.get_mapping(*model, "parameters")
        role_paths = [
            (*model, "role_parameters", role) for role in draft.get_mapping(*model, "role_parameters")
        ]
        variant_paths = [(*model, "variants", name, "parameters") for name in draft.variants_by_name(index)]
        parts, varied = (
            [(path, draft.get_mapping(*path)) for path in paths] for paths in (role_paths, variant_paths)
        )
        yield from check_account(model, draft.get_raw(*model, "account"), draft.get_raw(*model, "access_key"))
        names = (draft.get_raw(*model, "name"), common.get("model"), common.get("base_model"))
        for path, own in (((*model, "parameters"), common), *parts, *varied):
            yield from find_credentials(path, own, draft.get_raw(*model, "access_key"), names)
            # Behind a base_url somebody else may know what no simulated model does.
            if interface == "simulated" and "base_url" not in common:
                yield from _check_simulated_keys(path, own)
            yield from _check_answer_limits_bound_costs(draft, index, path, own)
        for path, own in (((*model, "parameters"), common), *varied) if interface == "simulated" else ():
            yield from _check_simulated_ranges(path, own)
        fixed = ENDPOINT_KEYS | OPTIONS.get(interface, frozenset())
        for sections, free in ((parts, frozenset[str]()), (varied, VARIED)):
            for path, own in sections:
                for key in sorted((fixed - free) & own.keys()):
                    if own[key] != common.get(key):
                        by = "variant" if free else "role"
                        way = "set it in parameters, or add a second model"
                        yield Finding((*path, key), "V-26", f"'{key}' cannot differ by {by}; {way}")


def _check_variants_and_samples(draft: Draft) -> Iterator[Finding]:
    """Check that only students have variants and samples, and variants' templates (V-05, V-22, V-35)."""
    for index in draft.indices("models"):
        variants, roles = draft.variants_by_name(index), draft.get("models", index, "roles")
        for key, what in (("variants", "prompts"), ("samples", "answers")):
            if draft.get_raw("models", index, key, default=1) not in (1, {}) and "student" not in (
                roles or "student"
            ):
                message = f"are {what} of a student; add student to the roles or remove the key"
                yield Finding(("models", index, key), "V-05", message)
        for name in variants:
            path: KeyPath = ("models", index, "variants", name, "prompt")
            template = draft.get(*path)
            if not isinstance(template, str) or not template.strip():
                continue
            yield from _find_unknown_variables(path, "test", template)
            if "input" not in placeholders(template):
                message = f"shows no {{input}}: {_WITHOUT['input']}; put it where it belongs"
                yield Finding(path, "V-35", message)


def _check_answer_limits_bound_costs(
    draft: Draft, model_index: int, path: KeyPath, parameters: ParameterMap
) -> Iterator[Finding]:
    """Check limits on answers: a budget needs a bound on what one answer costs (V-21)."""
    name = draft.get("models", model_index, "name", default="")
    quota = draft.get_mapping("experiment", "quota", name)
    budgets = {
        "experiment.budget_usd": draft.get_raw("experiment", "budget_usd"),
        f"experiment.quota.{name}.max_cost_usd": quota.get("max_cost_usd"),
    }
    budget = next((key for key, usd in budgets.items() if isinstance(usd, int | float)), None)
    host = HOSTS.get(draft.get("models", model_index, "interface", default=""))
    url = draft.get_raw("models", model_index, "parameters", "base_url")
    if host is not None and host.local and not (isinstance(url, str) and not is_private_address(url)):
        budget = None  # it costs nothing; one that does all the same is refused when its price is known
    for keys, limit in find_answer_limits(parameters):
        if type(limit) is not int or limit >= 1 or (budget is None and limit in NO_LIMIT):
            continue
        why = f", which limits no answer, and {budget} needs a limit" if budget is not None else ""
        message = f"is {to_yaml_line(limit)}{why}; use a whole number, 1 or more"
        yield Finding((*path, *keys), "V-21", message)


def _check_simulated_ranges(path: KeyPath, parameters: ParameterMap) -> Iterator[Finding]:
    for key, (lo, hi) in RANGES.items():
        value = parameters.get(key, lo)
        if isinstance(value, bool) or not isinstance(value, int | float):
            yield Finding((*path, key), "V-20", f"is {describe_value(value)}, not a number; write a number")
        elif not lo <= value <= hi:
            yield Finding(
                (*path, key), "V-21", f"is {to_yaml_line(value)}; use a number from {lo:g} to {hi:g}"
            )


def _check_simulated_keys(path: KeyPath, parameters: ParameterMap) -> Iterator[Finding]:
    """Find parameters that simulated models do not have; other hosts report theirs themselves."""
    known_keys = sorted(OPTIONS["simulated"] | SAMPLING | OUR_KEYS)
    own = ", ".join(sorted(OPTIONS["simulated"]))
    otherwise = f"it has {own}, and takes the usual sampling parameters"
    for key in parameters:
        if key not in known_keys and not is_credential_name(key):
            way = Suggestion(key, known_keys, otherwise)
            yield Finding((*path, key), "V-18", f"no simulated model knows '{key}'", way)
