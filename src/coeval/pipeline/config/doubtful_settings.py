"""What a valid file may have meant otherwise: one sentence on each, and the run goes on."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterator

from coeval.core.model import NO_LIMIT, answer_limits
from coeval.pipeline.config.draft import BENCHMARK
from coeval.pipeline.config.findings import MOST_SHOWN, WayOut
from coeval.pipeline.config.schema import OPTIONS, Config, ModelConfig
from coeval.pipeline.config.values import OUR_KEYS, ParameterMap
from coeval.simulation.traits import SAMPLING

# ``max_tokns`` is that near to ``max_tokens``, and ``max_new_tokens`` is not.
_NEAR = 0.86


def find_doubtful_settings(config: Config) -> Iterator[str]:
    """A sentence on each thing that may not be as it was meant, on the first `MOST_SHOWN` of them."""
    of = (_parameters, _unlimited, _cramped_reasons, _samples, _quotas)
    found = itertools.chain.from_iterable(each(config) for each in of)
    yield from itertools.islice(found, MOST_SHOWN)
    if next(found, None) is not None:
        yield f"there is more to doubt in this file; the first {MOST_SHOWN} are shown"


def _parameters(config: Config) -> Iterator[str]:
    """Parameters that go to a provider as they stand, and look like one that we know, misspelt. None is
    refused: what providers take is theirs to say."""
    for model in config.models:
        if model.interface in ("simulated", BENCHMARK):
            continue  # the parameters of one are all known, the other has no provider
        known = OUR_KEYS | SAMPLING | OPTIONS.get(model.interface, frozenset())
        for section, values in _sections(model):
            for name in sorted(values.keys() - known):
                for meant in difflib.get_close_matches(name, known, n=1, cutoff=_NEAR):
                    yield (
                        f"models.{model.name}.{section}.{name} is passed to the provider unchanged; "
                        f"if {meant} is meant, correct it"
                    )


def _sections(model: ModelConfig) -> Iterator[tuple[str, ParameterMap]]:
    yield "parameters", model.parameters
    yield from ((f"role_parameters.{role}", values) for role, values in model.role_parameters.items())


def _unlimited(config: Config) -> Iterator[str]:
    """Limits on answers that are none."""
    for model in config.models:
        for section, values in _sections(model):
            for path, limit in answer_limits(values):
                if limit in NO_LIMIT:
                    yield (
                        f"models.{model.name}.{section}.{'.'.join(path)} is {limit}: the host may refuse it, "
                        "or set no limit on how long an answer gets"
                    )


def _cramped_reasons(config: Config) -> Iterator[str]:
    """Reasons that are asked for, of judges whose limit has no room for them (V-43)."""
    for task in config.tasks:
        rubric = task.declared_rubric
        judged = rubric.keys() - {*task.label_attributes, *task.checks} if isinstance(rubric, dict) else [""]
        if task.rationale and (lacking := config.reasons(task, len(judged)).lacking):
            yield f"V-43  tasks.{task.name}.rationale is true, but {lacking}, or verdicts may be cut off"


def _samples(config: Config) -> Iterator[str]:
    """Samples that cannot differ."""
    for student in config.with_role("student"):
        if student.samples > 1 and student.sampling("student").temperature == 0:
            yield (
                f"models.{student.name} gives {student.samples} samples at temperature 0: they may all be "
                "identical, and each one costs; set a temperature"
            )


def _quotas(config: Config) -> Iterator[str]:
    """Ceilings of models that are not there."""
    names = dict.fromkeys(model.name for model in config.models)
    for name in config.experiment.quota:
        if name not in names:
            hint = WayOut(name, names, "models:").sentence()
            yield f"experiment.quota.{name} limits nothing: no model is named '{name}'; {hint}"
