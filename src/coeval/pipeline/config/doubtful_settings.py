"""Warnings on a valid file that may not mean what its author intended."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterator

from coeval.core.model import NO_LIMIT, find_answer_limits
from coeval.pipeline.config.draft import BENCHMARK
from coeval.pipeline.config.findings import MOST_SHOWN, Suggestion
from coeval.pipeline.config.schema import OPTIONS, Config, ModelConfig
from coeval.pipeline.config.values import OUR_KEYS, ParameterMap
from coeval.simulation.traits import SAMPLING

# ``max_tokns`` is that near to ``max_tokens``, and ``max_new_tokens`` is not.
_NEAR = 0.86


def find_doubtful_settings(config: Config) -> Iterator[str]:
    """Find settings that may not be intended, a sentence each, at most `MOST_SHOWN`."""
    checks = (
        _find_misspelt_parameters,
        _find_limits_that_mean_no_limit,
        _find_cramped_reasons,
        _find_samples_at_temperature_0,
        _find_unused_quotas,
    )
    sentences = itertools.chain.from_iterable(check(config) for check in checks)
    yield from itertools.islice(sentences, MOST_SHOWN)
    if next(sentences, None) is not None:
        yield f"there are more warnings for this file; the first {MOST_SHOWN} are shown"


def _find_misspelt_parameters(config: Config) -> Iterator[str]:
    """Find parameters that look misspelt. They are sent all the same: providers may know them."""
    for model in config.models:
        if model.interface in ("simulated", BENCHMARK):
            continue  # the parameters of one are all known, the other has no provider
        known_names = OUR_KEYS | SAMPLING | OPTIONS.get(model.interface, frozenset())
        for section, values in _list_parameter_sections(model):
            for name in sorted(values.keys() - known_names):
                for meant in difflib.get_close_matches(name, known_names, n=1, cutoff=_NEAR):
                    yield (
                        f"models.{model.name}.{section}.{name} is passed to the provider unchanged; "
                        f"if {meant} is meant, correct it"
                    )


def _list_parameter_sections(model: ModelConfig) -> Iterator[tuple[str, ParameterMap]]:
    yield "parameters", model.parameters
    yield from ((f"role_parameters.{role}", values) for role, values in model.role_parameters.items())


def _find_limits_that_mean_no_limit(config: Config) -> Iterator[str]:
    for model in config.models:
        for section, values in _list_parameter_sections(model):
            for path, limit in find_answer_limits(values):
                if limit in NO_LIMIT:
                    yield (
                        f"models.{model.name}.{section}.{'.'.join(path)} is {limit}: the host may refuse it, "
                        "or leave the answer's length unlimited"
                    )


def _find_cramped_reasons(config: Config) -> Iterator[str]:
    """Find judges whose limit leaves no room for the reasons that they are asked for (V-43)."""
    for task in config.tasks:
        rubric = task.rubric_texts_or_word
        judged = rubric.keys() - {*task.label_attributes, *task.checks} if isinstance(rubric, dict) else [""]
        if task.rationale and (lacking := config.decide_reasons(task, len(judged)).limit_problem):
            yield f"V-43  tasks.{task.name}.rationale is true, but {lacking}, or verdicts may be cut off"


def _find_samples_at_temperature_0(config: Config) -> Iterator[str]:
    for student in config.with_role("student"):
        if student.samples > 1 and student.sampling("student").temperature == 0:
            yield (
                f"models.{student.name} gives {student.samples} samples at temperature 0: they may all be "
                "identical, and each one costs; set a temperature"
            )


def _find_unused_quotas(config: Config) -> Iterator[str]:
    names = dict.fromkeys(model.name for model in config.models)
    for name in config.experiment.quota:
        if name not in names:
            hint = Suggestion(name, names, "models:").sentence()
            yield f"experiment.quota.{name} limits nothing: no model is named '{name}'; {hint}"
