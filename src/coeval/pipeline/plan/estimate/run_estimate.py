"""Estimate cost and duration of a run that starts now from its plan; nothing is requested or written.

Prompts are made from the run's own templates, so only texts that models have yet to write are unknown.
Their lengths come from records or samples (`Lengths`), else from a rule of thumb per role.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import msgspec

from coeval.core.figures import dollars
from coeval.core.records import Purpose, Request
from coeval.engine.model_work import RoleModel
from coeval.engine.progress import abbreviate
from coeval.engine.terms import ModelFacts, find_output_limit
from coeval.pipeline.config.resolve import list_role_parameters
from coeval.pipeline.config.schema import PHASES, Config
from coeval.pipeline.phases.blueprint import KINDS, PHASE_OF, Kind
from coeval.pipeline.plan.estimate.recorded_lengths import read_recorded_lengths
from coeval.pipeline.plan.preview import Preview
from coeval.pipeline.plan.task_setup import TaskSetup, build_judge_form
from coeval.pipeline.prompts import BENCHMARK_ITEM, QUOTED_ITEM
from coeval.pipeline.samples import Samples
from coeval.pricing.estimate import CallShape, Estimate, EstimateLine, PricedModel, estimate_calls
from coeval.pricing.lengths import (
    LATIN_PER_TOKEN,
    PROMPT_FACTOR,
    RULE_OF_THUMB,
    Cell,
    Lengths,
    PromptSize,
    RangeShares,
    Span,
    exact,
    map_spans,
    measure_prompts,
)
from coeval.pricing.price_book import PriceBook
from coeval.pricing.tariff import join_price_sources

_FLOWING = (PHASES[:2], PHASES[2:])
_ONE_BY_ONE = (PHASES[:2], *((phase,) for phase in PHASES[2:]))

# Rules of thumb, in characters: what large models write who are asked for a paragraph.
_TEXTS = {"item": 850.0, "reference": 650.0, "answer": 650.0}
_PROPOSAL: Mapping[Kind, float] = {"target": 420.0, "nuanced": 380.0, "rubric": 620.0}
# Characters of an item's JSON beside its two texts.
_JSON_OF_ITEM = 34
# Characters of a factor that teachers are yet to propose: in a judge's prompt, and in its verdict.
_FACTOR_LINE, _NEW_LEVEL = 95, 26
# Characters of a judge's reason for one level: a sentence of at most 25 words, which may be one of ten.
_REASON = RangeShares(0.45, 1.4).span_around(130.0)
# Factors that one teacher proposes; so many teachers propose as many times this power of their number, since
# most of what one proposes has been proposed before: two a third more, five twice as many.
_NEW_FACTORS, _MORE_TEACHERS = RangeShares(0.7, 1.4).span_around(4.5), 0.4
# Items whose attributes are drawn to know how long they are in the mean.
_DRAWN = 12
# Placeholders for unknown texts: private-use characters, which no text of a task holds.
_MARKS = {"item": "\ue000", "reference": "\ue001", "answer": "\ue002"}
_STAND_IN = "(proposed 1)"


class EstimateInputs(NamedTuple):
    """Prices, observed lengths, and whether phases run one after the other."""

    prices: PriceBook
    lengths: Lengths
    phase_barriers: bool = False


def estimate_run(config: Config, preview: Preview, assumed: EstimateInputs) -> Estimate:
    """Estimate the owed work of ``preview``; ``config`` has no ``auto``."""
    phases = {model.name: config.batched_phases(model) for model in config.models}
    facts = ModelFacts(
        [model.spec() for model in config.models],
        {model.name: list_role_parameters(model) for model in config.models},
        assumed.prices,
        lambda phase, name: phase in phases[name],
    )
    facts.set_own_code_prices(assumed.lengths.mean_observed_usd_per_call)
    makers = _count_records_by_maker(preview)
    texts = _expect_text_lengths(preview.plan.setups, makers, assumed.lengths)
    shapes = [
        shape
        for setup in preview.plan.setups
        for shape in _TaskShapes(
            setup,
            preview,
            texts,
            _average_prompt_texts(setup, makers, texts),
            facts.price_model,
            assumed.lengths,
        ).list_shapes()
    ]
    return estimate_calls(shapes, assumed.lengths, _ONE_BY_ONE if assumed.phase_barriers else _FLOWING)


def estimate_least_cost_usd(config: Config, preview: Preview, prices: PriceBook) -> float | None:
    """Return the low end of the cost of all owed work, in US dollars; None if some price is unknown."""
    estimate = estimate_run(config, preview, EstimateInputs(prices, read_recorded_lengths(config, preview)))
    cost = estimate.total.cost_usd
    return None if estimate.unpriced or cost is None else cost.low


# --- The texts of a run that prompts show: items and references by their author, answers by their student

_Texts: TypeAlias = Mapping[str, Mapping[Cell, Span]]
_Makers: TypeAlias = Mapping[tuple[str, str], Mapping[str, int]]


def _count_records_by_maker(preview: Preview) -> _Makers:
    """Count the records of each model by phase and task, models that have left the file included."""
    counts: dict[tuple[str, str], dict[str, int]] = {}
    for (phase, task, name), count in preview.plan_count.by_model.items():
        counts.setdefault((phase, task), {})[name] = count.planned
    return counts


def _expect_text_lengths(setups: Sequence[TaskSetup], makers: _Makers, lengths: Lengths) -> _Texts:
    """Return the expected characters of each text, by kind and cell."""
    rules: dict[str, dict[Cell, Span]] = {kind: {} for kind in (*_TEXTS, "label")}
    limits: dict[Cell, float] = {}
    for setup in setups:
        task = setup.task.name
        labels = [16.0 + max(map(len, values), default=10) for values in setup.labels.values()]
        kind, answer = ("label", sum(labels)) if labels else ("answer", _TEXTS["answer"])
        teachers = {teacher.name: 0 for teacher in setup.teachers}
        for author in {**makers.get(("data_generation", task), {}), **teachers}:
            rules["item"][Cell(task, author)] = RULE_OF_THUMB.span_around(_TEXTS["item"])
            rules["reference"][Cell(task, author)] = RULE_OF_THUMB.span_around(_TEXTS["reference"])
        sampling = {student.name: student.sampling for student in setup.students}
        for student in {**makers.get(("response_collection", task), {}), **sampling}:
            rules[kind][Cell(task, student)] = RULE_OF_THUMB.span_around(answer)
            limit = find_output_limit(sampling[student]) if student in sampling else None
            if limit is not None:
                limits[Cell(task, student)] = limit * LATIN_PER_TOKEN
    lengths_by_kind = {kind: lengths.predict(kind, rules[kind]) for kind in _TEXTS}
    answers = lengths_by_kind["answer"] | lengths.predict("answer", rules["label"])
    return lengths_by_kind | {
        "answer": {cell: span.cap_at(limits.get(cell)) for cell, span in answers.items()}
    }


def _average_prompt_texts(setup: TaskSetup, makers: _Makers, texts: _Texts) -> dict[str, Span]:
    """Average the expected lengths of the texts in a task's prompts over their authors."""
    task, averages = setup.task.name, dict[str, Span]()
    for kind, spans in texts.items():
        counts = makers.get(("response_collection" if kind == "answer" else "data_generation", task), {})
        whole = sum(counts.values()) or 1
        averages[kind] = sum((spans[Cell(task, name)] * (n / whole) for name, n in counts.items()), exact(0))
    return averages


# --- The calls of one task


@dataclass(frozen=True, slots=True)
class _TaskShapes:
    setup: TaskSetup
    preview: Preview
    texts: _Texts
    shown: Mapping[str, Span]
    requested_in: Callable[[Purpose, RoleModel], PricedModel]
    lengths: Lengths

    def list_shapes(self) -> Iterator[CallShape]:
        """Yield the calls of a task: proposals, items, answers, judgments."""
        setup, task = self.setup, self.setup.task
        blueprint = self.preview.blueprint
        proposals = [(kind, own) for kind in KINDS for own, _ in blueprint.list_owed_proposals(task, kind)]
        for kind, teacher in proposals:
            requested = self.requested_in(PHASE_OF[kind], teacher)._replace(role="proposing teacher")
            size = _measure_prompts(teacher, [teacher.prompt({})])
            reply = RULE_OF_THUMB.span_around(_PROPOSAL[kind]) * size.per_character + requested.thinking
            where, once = f"{task.name} {kind}", exact(1)
            yield CallShape(PHASE_OF[kind], where, requested, once, once, size.prompt_tokens({}), reply)
        for teacher in setup.teachers:
            cell = Cell(task.name, teacher.name)
            made = self.texts["item"][cell] + self.texts["reference"][cell] + exact(_JSON_OF_ITEM)
            yield self._build_shape("data_generation", teacher, self._measure_item_prompts(teacher), made)
        for student in setup.students:
            if student.name in setup.students_with_existing_answers:
                continue  # nobody is asked
            reply = self.texts["answer"][Cell(task.name, student.name)]
            size = _measure_prompts(student, [student.prompt(self._build_item_variables())])
            yield self._build_shape("response_collection", student, size, reply)
        known_factors, factors = self._expect_factors(sum(kind == "rubric" for kind, _ in proposals))
        for judge in setup.judges:
            yield self._build_judging_shape(judge, known_factors, factors)

    def _build_shape(self, phase: Purpose, role_model: RoleModel, size: PromptSize, made: Span) -> CallShape:
        """Build a model's calls; ``made``: a reply's characters. Lost records that come again save some."""
        requested, task = self.requested_in(phase, role_model), self.setup.task.name
        key = (phase, task, role_model.name)
        most, least = (of.by_model.get(key) for of in (self.preview.plan_count, self.preview.least))
        high = most.calls if most is not None else 0
        low = least.calls - least.reusable_calls if least is not None else 0
        calls = Span(high, low, high)
        reply = made * size.per_character + requested.thinking
        shape = CallShape(phase, task, requested, calls, calls, size.prompt_tokens(self.shown), reply)
        seen = self.lengths.mean_item_characters(requested.role, shape.cell)
        return shape._replace(seen=size.prompt_tokens({**self.shown, **seen}) if seen else None)

    def _build_judging_shape(
        self, judge: RoleModel, known_factors: Sequence[str], factor_count: Span
    ) -> CallShape:
        """Build the calls of a judge: one per answer, or one per factor of it."""
        setup, alone = self.setup, self.setup.task.evaluation_mode == "per_factor"
        if setup.pairs is not None:
            texts = {"answer_a": _MARKS["answer"], "answer_b": _MARKS["answer"]}
            variables = {**self._build_item_variables(), **texts, "answer_format": setup.pairs.answer_format}
            made = _expect_verdict_characters(("verdict",), setup.pairs.rationale)
            return self._build_shape(
                "evaluation",
                judge,
                _measure_prompts(judge, [judge.prompt(variables, setup.pairs.schema)]),
                made,
            )
        size = _measure_prompts(judge, self._build_judge_prompts(judge, known_factors or (_STAND_IN,)))
        new = map_spans(lambda n: max(0.0, n - len(known_factors)), factor_count)
        verdict = _expect_verdict_characters(("score",) if alone else known_factors, setup.form.rationale)
        if not alone:
            more = (_REASON if setup.form.rationale else exact(0)) + exact(_NEW_LEVEL)
            verdict += map_spans(operator.mul, new, more)
        shape = self._build_shape("evaluation", judge, size, verdict)
        if alone:
            shape = shape._replace(head=size.head_tokens(self.shown), together=factor_count.central)
        else:
            more = new * (_FACTOR_LINE * size.per_character)
            seen = None if shape.seen is None else shape.seen + more
            shape = shape._replace(prompt=shape.prompt + more, seen=seen)
        low, high, most = shape.counted.low, shape.counted.high, len(setup.criteria)
        if factor_count == exact(len(known_factors)) or factor_count.low == most:
            return shape

        def calls(number: float) -> float:
            share = (number - max(1, len(known_factors))) / (most - max(1, len(known_factors)))
            return low + (high - low) * (share if alone else number > len(known_factors))

        paid = map_spans(calls, factor_count)
        return shape._replace(counted=Span(round(paid.central), low, high), calls=paid)

    def _expect_factors(self, proposing_teachers: int) -> tuple[tuple[str, ...], Span]:
        """Return the known factors, and how many there will be once these teachers have proposed theirs."""
        setup, task = self.setup, self.setup.task
        if task.name not in self.preview.unsettled or not proposing_teachers:
            return tuple(setup.criteria), exact(len(setup.criteria))
        rubric_so_far = self.preview.blueprint.merge_inherited_and_proposed_rubrics(task)
        known_factors = tuple(factor for factor in setup.criteria if factor in rubric_so_far)
        new = expect_new_factors(proposing_teachers)
        if known_factors:  # it may be that nothing is added
            new = msgspec.structs.replace(new, low=0.0)
        number = len(known_factors)
        return known_factors, map_spans(lambda n: min(max(number + n, 1), len(setup.criteria)), new)

    # --- the prompts, all but the texts that models are yet to write

    def _measure_item_prompts(self, teacher: RoleModel) -> PromptSize:
        """Measure a teacher's prompts, averaged over some of its items."""
        schema = BENCHMARK_ITEM if self.setup.task.documents is None else QUOTED_ITEM
        return _measure_prompts(
            teacher,
            [
                teacher.prompt(variables, schema)
                for variables in self._draw_item_variables(teacher.name, _DRAWN)
            ],
        )

    def _build_judge_prompts(self, judge: RoleModel, factors: Sequence[str]) -> list[Request]:
        setup, values = self.setup, {**self._build_item_variables(), "response": _MARKS["answer"]}
        form = (
            setup.form if factors[0] in setup.form.criteria else build_judge_form(setup.task, {_STAND_IN: ""})
        )
        if setup.task.evaluation_mode == "per_factor":
            varying = ("factor", "criterion") if len(factors) > 1 else ()
            questions = [form.build_factor_question(factor) for factor in factors]
            return [
                judge.prompt({**values, **question.values}, question.schema, varying)
                for question in questions
            ]
        joint_question = form.build_joint_question(tuple(factors))
        return [judge.prompt({**values, **joint_question.values}, joint_question.schema)]

    def _build_item_variables(self) -> dict[str, str]:
        """Return the template variables of an item, with marks for unknown texts."""
        texts = {"input": _MARKS["item"], "reference": _MARKS["reference"]}
        return {**texts, **self._draw_item_variables("", 1)[0]}

    def _draw_item_variables(self, teacher: str, number: int) -> list[dict[str, str]]:
        """Return attributes, nuance and passages of some items, as prompts show them."""
        setup = self.setup
        samples = Samples(setup.space, seed=setup.task.sampling.seed, task=setup.task.name, teacher=teacher)
        return [samples.draw_sample(n).prompt_variables for n in range(1, number + 1)]


def _measure_prompts(role_model: RoleModel, requested: Sequence[Request]) -> PromptSize:
    """Measure requests as they are sent to the model."""
    return measure_prompts([role_model.request(each, "probe", "", 0) for each in requested], _MARKS)


def _expect_verdict_characters(factors: Sequence[str], rationale: bool) -> Span:
    """Return the characters of a judge's JSON with a level for each factor, and reasons if requested."""
    levels = PROMPT_FACTOR.span_around(4.0 + sum(len(factor) + 14 for factor in factors))
    return levels + (_REASON * len(factors) if rationale else exact(0))


def expect_new_factors(teacher_count: int) -> Span:
    """Return how many factors this many teachers propose together."""
    return _NEW_FACTORS * float(teacher_count**_MORE_TEACHERS)


# --- An estimate in words


def format_calls(span: Span) -> str:
    """Format a number such as ``12,400``, or its range."""
    low, high = round(span.low), round(span.high)
    return f"{low:,}" if low == high else f"{low:,}–{high:,}"


def format_usd_range(span: Span) -> str:
    return f"{dollars(span.low)} – {dollars(span.high)}"


def format_duration(hours: Span) -> str:
    """Format a duration in the unit that suits, such as ``about 4 minutes (2 to 26)``."""
    for size, unit in ((1.0, "hour"), (1 / 60, "minute"), (1 / 3600, "second")):
        if hours.central >= size or unit == "second":
            low, central, high = (
                _format_number(end / size) for end in (hours.low, hours.central, hours.high)
            )
            return f"about {central} {unit}{'' if central == '1' else 's'} ({low} to {high})"
    raise AssertionError("unreachable: seconds suit whatever is shorter")


def _format_number(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0") if number < 10 else f"{number:,.0f}"


def summarise_estimate(estimate: Estimate) -> Iterator[str]:
    """Say what the run will take, and where most of it goes."""
    total = estimate.total
    cost = "cost unknown"
    if total.cost_usd is not None:
        plus = ", plus models without a known price" if estimate.unpriced else ""
        cost = f"{dollars(total.cost_usd.central)} ({format_usd_range(total.cost_usd)}){plus}"
    amount = f"{format_calls(total.calls)} calls, {format_tokens(total.tokens)} tokens"
    yield f"{amount}, {cost}, {format_duration(estimate.hours)}."
    if estimate.unpriced:
        names = ", ".join(estimate.unpriced)
        yield (
            f"No price is known for {names}; overrides in Config/provider_pricing.yaml can name one "
            "(docs/prices.md)."
        )
    yield from _describe_largest_shares(total, estimate.by_phase, estimate.by_model)


def _describe_largest_shares(total: EstimateLine, *parts: Mapping[str, EstimateLine]) -> Iterator[str]:
    if total.cost_usd is None or not total.cost_usd.central:
        return
    most = [max(part.items(), key=lambda item: _central_cost_usd(item[1])) for part in parts if len(part) > 1]
    shares = [f"{name} takes {_central_cost_usd(line) / total.cost_usd.central:.0%}" for name, line in most]
    if shares:
        yield f"Where it goes: {', '.join(shares)} of it."


def _central_cost_usd(line: EstimateLine) -> float:
    return line.cost_usd.central if line.cost_usd is not None else 0.0


def describe_sources(estimate: Estimate) -> Iterator[str]:
    """Say where lengths and prices come from, and what else to know."""
    by_source: dict[str, list[str]] = {}
    for name, source in estimate.basis.items():
        by_source.setdefault(source, []).append(name)
    for source, names in by_source.items():
        yield f"Lengths of {', '.join(names)}: {source}."
    if estimate.prices:
        yield f"Prices: {join_price_sources(estimate.prices.values())}."
    yield from estimate.notes


def format_tokens(span: Span) -> str:
    """Format a number of tokens, such as ``1.2M``."""
    return abbreviate(round(span.central))
