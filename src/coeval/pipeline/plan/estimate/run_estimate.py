"""What a run that starts now will cost and take, worked out of its plan: nothing is asked or written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from coeval.engine.model_facts import ModelFacts
from coeval.pipeline.config.resolve import sent_in_roles
from coeval.pipeline.config.schema import PHASES, Config, ModelConfig
from coeval.pipeline.plan.estimate.on_record import evidence_of
from coeval.pipeline.plan.estimate.planned_calls import TaskCalls, task_calls
from coeval.pipeline.plan.estimate.run_shapes import run_shapes, text_lengths
from coeval.pipeline.plan.preview import Preview
from coeval.pricing.call_shape import CallGroup, call_groups
from coeval.pricing.estimate import Estimate, duration_s, estimate_of
from coeval.pricing.price_book import PriceBook
from coeval.pricing.unknowns import CENTRAL, Evidence, ScenarioDraws, Span

_FLOWING = (PHASES[:2], PHASES[2:])
_ONE_BY_ONE = (PHASES[:2], *((phase,) for phase in PHASES[2:]))


class Assumed(NamedTuple):
    """What an estimate goes by: prices, what has been seen, how the run is started. ``judged_by`` puts
    models in the place of others as judges, by name."""

    prices: PriceBook
    evidence: Evidence
    phase_barriers: bool = False
    judged_by: Mapping[str, ModelConfig] = MappingProxyType({})


def estimate_run(config: Config, preview: Preview, assumed: Assumed) -> Estimate:
    """What is owed by ``preview``; in ``config`` the interface ``auto`` stands for none any more."""
    evidence = assumed.evidence
    tasks, draws = task_calls(config, preview), ScenarioDraws(evidence)
    others = {name: model.spec() for name, model in assumed.judged_by.items()}
    models = [*config.models, *assumed.judged_by.values()]
    facts = ModelFacts(
        [model.spec() for model in models],
        {model.name: sent_in_roles(model) for model in models},
        assumed.prices,
        is_batched(config),
        {name: spec.name for name, spec in others.items()},
    )
    lengths = text_lengths(tasks, facts.typical, draws)
    groups = call_groups(list(run_shapes(tasks, lengths, facts.asked_in, draws)), draws)
    stages = _ONE_BY_ONE if assumed.phase_barriers else _FLOWING
    seconds = duration_s(stages, groups, facts.paces(draws), facts.batch_s(PHASES, draws))
    estimate = estimate_of(groups, seconds, _calls(tasks, groups))
    tariffs = {name: tariff for name, tariff in facts.tariffs.items() if tariff is not None}
    sources = {name: tariffs[name].source for name in estimate.by_model if name in tariffs}
    return msgspec.structs.replace(
        estimate, prices=sources, basis={name: evidence.basis(name) for name in estimate.by_model}
    )


def is_batched(config: Config) -> Callable[[str, str], bool]:
    """Whether the calls of a phase go to a model as a batch."""
    phases = {model.name: config.batched_phases(model) for model in config.models}
    return lambda phase, name: phase in phases[name]


def _calls(tasks: Iterable[TaskCalls], groups: Sequence[CallGroup]) -> dict[tuple[str, str], Span]:
    """Calls by phase and model: their bounds as the plan has them, and what is expected between these."""
    low: Counter[tuple[str, str]] = Counter()
    high: Counter[tuple[str, str]] = Counter()
    expected: Counter[tuple[str, str]] = Counter()
    for task in tasks:
        for phase, model, calls in task.counted():
            low[phase, model] += calls.low
            high[phase, model] += calls.high
    for group in groups:
        expected[group.phase, group.model] += round(float(group.calls[CENTRAL]))
    return {
        place: Span(min(max(expected[place], low[place]), most), low[place], most)
        for place, most in high.items()
    }


# --- The least that a run is expected to cost: what a budget is held against before anything is asked


def least_cost_usd(config: Config, preview: Preview, prices: PriceBook) -> float | None:
    """The low end of the estimate of all that ``preview`` says is owed, in US dollars; None where some model
    that is to be asked has no known price. In ``config`` the interface ``auto`` stands for none any more."""
    estimate = estimate_run(config, preview, Assumed(prices, evidence_of(config, preview)))
    cost = estimate.total.cost_usd
    return None if estimate.unpriced or cost is None else cost.low
