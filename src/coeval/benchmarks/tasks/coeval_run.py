"""A run as a task: ``coeval:PATH`` evaluates a model on the items of a teacher-made benchmark.

Each item is put to the model with the run's own ``test`` template; the judge scores the answer by the run's
rubric, with the run's own ``evaluate_*`` template and scales; checks are computed, and factors count by the
run's weights. The headline is the mean over tasks of the item-first mean. Labels are compared, never judged,
and reported beside it; where a run has nothing else, no judge is asked, and their accuracies are the
headline.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from shlex import quote
from statistics import variance
from typing import Any, ClassVar, NamedTuple

from coeval.analysis.intervals import mean_over_strata, wilson_interval
from coeval.analysis.planned_names import PlannedTask
from coeval.benchmarks.benchmark import (
    Answer,
    Ask,
    Benchmark,
    Item,
    Judgment,
    Metric,
    Scored,
    TaskRecords,
    TaskSettings,
    why_value_missing,
)
from coeval.benchmarks.run.judgment_outcomes import mean_metric, metric_from_interval
from coeval.benchmarks.task_registry import PREFIX
from coeval.core.errors import CheckFailed, Undecodable, Unparsable, UsageError
from coeval.core.records import (
    LEVEL_VALUE,
    Completion,
    Datapoint,
    LabelScore,
    Level,
    Message,
    Request,
    SamplingParameters,
    Schema,
    choose_counted,
    is_good,
    judgment_id,
)
from coeval.core.scale import HIGH_MEDIUM_LOW
from coeval.core.text import canonical_json, fill_template, join_names
from coeval.judging.checks.check_options import read_check
from coeval.judging.checks.rubric_check import RubricCheck, build_checked_answer
from coeval.judging.labels import score_labels
from coeval.pipeline.config.load_file import load_config
from coeval.pipeline.config.schema import TaskConfig
from coeval.pipeline.phases.blueprint import Blueprint
from coeval.pipeline.phases.evaluations import PreparedItem
from coeval.pipeline.plan.judge_form import JudgeForm
from coeval.pipeline.plan.recipes import build_task_variables
from coeval.pipeline.plan.task_setup import build_judge_form
from coeval.pipeline.plan.what_counts import read_planned_names
from coeval.pipeline.prompts import find_template
from coeval.pipeline.samples import KnownNuance
from coeval.store.jsonl import decode_records, read_json
from coeval.store.rundir import RunDir

ONLY_LABELS = "its answers are compared with labels, without a judge"
TASK_OPTION = "task"
"""Option with the task as requested, ``coeval:PATH``."""


class RunTask(NamedTuple):
    """A task of the run: ``rubric`` are the factors that judges score by ``form``, ``computed`` the checks by
    factor; ``elsewhere`` names those that need a process of their own: no answer has a score of them here.
    ``labels`` have their values, those that teachers proposed included."""

    config: TaskConfig
    rubric: dict[str, str]
    form: JudgeForm
    computed: Mapping[str, RubricCheck]
    elsewhere: tuple[str, ...]
    labels: dict[str, list[str]]

    @property
    def scores(self) -> int:
        """Return the number of scores due an answer, labels aside."""
        return len(self.rubric) + len(self.computed)

    def weighted_mean(self, scores: Mapping[str, float]) -> float | None:
        """Return an answer's weighted mean of its scores by factor; None without any or, in a task with
        weights or checks, unless all are present."""
        if not scores or ((self.config.weights or self.config.checks) and len(scores) != self.scores):
            return None
        weights = [self.config.weights.get(factor, 1.0) for factor in scores]
        weighed = zip(scores.values(), weights, strict=True)
        return sum(score * weight for score, weight in weighed) / sum(weights)

    def compute_checks(self, item: Datapoint, answer: Answer | None) -> CheckedItem:
        """Compute all checks of one answer; without an answer all are missing."""
        reason = why_value_missing(answer)
        if answer is None or reason is not None:
            return CheckedItem({}, Counter({reason or "missing": len(self.computed)}))
        outcome, checked = CheckedItem({}, Counter()), build_checked_answer(item, answer.response, answer)
        for factor, check in self.computed.items():
            try:
                outcome.scores[factor] = check.score(checked).value
            except CheckFailed as failure:
                outcome.failed[failure.kind] += 1
        return outcome


class CheckedItem(NamedTuple):
    """An answer's scores by factor, and why the others are missing."""

    scores: dict[str, float]
    failed: Counter[str]


class PosedItem(NamedTuple):
    """An item of the run with its task and its template variables."""

    task: RunTask
    item: Datapoint
    values: Mapping[str, str]


def posed_item(item: Item) -> PosedItem:
    posed: PosedItem = item.fields["posed"]
    return posed


# --- Labels of a teacher-made benchmark


class LabelComparison(NamedTuple):
    """Labels of answers against those due, by task and label, then item; ``failed``: other answers."""

    scores: dict[tuple[str, str], dict[str, LabelScore]]
    failed: Counter[str]

    @property
    def compared(self) -> int:
        return sum(map(len, self.scores.values()))

    def metrics(self) -> dict[str, Metric]:
        """Return each label's accuracy with its Wilson interval."""
        return {_metric_name(*key): _accuracy(scores) for key, scores in self.scores.items()}

    def item_scores(self, item_id: str) -> dict[str, float | None]:
        """Return 1 for each right label of an item and 0 for each wrong one, by metric."""
        return {
            _metric_name(*key): float(scores[item_id].match)
            for key, scores in self.scores.items()
            if item_id in scores
        }

    def tables(self) -> dict[str, Any]:
        """Tabulate accuracies, and answers that state none of the labels, by task and label."""
        accuracies: dict[str, dict[str, Metric]] = {}
        none: dict[str, dict[str, int]] = {}
        for (task, label), scores in self.scores.items():
            accuracies.setdefault(task, {})[label] = _accuracy(scores)
            none.setdefault(task, {})[label] = sum(score.predicted is None for score in scores.values())
        return {"label_accuracy": accuracies, "none_of_the_labels": none}


def compare_labels(items: Sequence[Item], answers: Mapping[str, Answer]) -> LabelComparison:
    compared = LabelComparison({}, Counter())
    for item in items:
        task, datapoint, _ = posed_item(item)
        attributes = datapoint.sampled_target_attributes
        expected = {name: attributes[name] for name in item.labels if name in attributes}
        answer = answers.get(item.id)
        if (reason := why_value_missing(answer)) is not None:
            compared.failed[reason] += len(expected)
        elif answer is not None:
            for name, score in score_labels(answer.response or "", expected, item.labels).items():
                compared.scores.setdefault((task.config.name, name), {})[item.id] = score
    return compared


def _metric_name(task: str, label: str) -> str:
    return f"label_accuracy {task}/{label}"


def _accuracy(scores: Mapping[str, LabelScore]) -> Metric:
    return metric_from_interval(
        wilson_interval(sum(score.match for score in scores.values()), len(scores)), "share"
    )


class CoevalRun(Benchmark):
    """The items of the run folder ``options["task"]``, tasks and teachers in order."""

    name: ClassVar[str] = "coeval"
    needs_judge: ClassVar[bool] = True
    answer_characters: ClassVar[int] = 700
    judgment_characters: ClassVar[int] = 300  # two levels with a sentence of reason each
    compared_with: ClassVar[str] = "the run's own scores"

    def __init__(self, settings: TaskSettings) -> None:
        super().__init__(settings)
        self._run = RunDir(str(settings.options[TASK_OPTION]).removeprefix(PREFIX))
        self._run.refuse_foreign_or_half_replaced()
        if not self._run.config.is_file():
            raise UsageError(f"coeval:{self._run.path}: {self._run.config} is missing; name a run's folder")
        self._config = load_config(self._run.config)
        in_pairs = [task.name for task in self._config.tasks if task.judging == "pairwise"]
        if in_pairs:
            raise UsageError(
                f"{self._run.path} compares answers two by two in {join_names(in_pairs)}, and here one model "
                "answers by itself; name a run with judging: scores, or make the checkpoints its students"
            )
        planned = read_planned_names(self._run)
        self._planned = planned.tasks if planned is not None else {}
        self._blueprint = Blueprint(self._config, self._run, follow_file=False)
        self._tasks = {task.name: self._prepare_task(task) for task in self._config.tasks}
        self._unchecked = tuple(
            f"{name}: {', '.join(sorted(task.elsewhere))} not scored; only `coeval run` starts the processes "
            "of such checks"
            for name, task in self._tasks.items()
            if task.elsewhere
        )
        self._is_scored = any(task.scores for task in self._tasks.values())
        """Whether there is more than labels."""
        if not self._is_scored and not any(task.labels for task in self._tasks.values()):
            raise UsageError(f"nothing of {self._run.path} can be scored here: {join_names(self._unchecked)}")

    def _prepare_task(self, task: TaskConfig) -> RunTask:
        """Collect what scores an answer to a task: rubric, judge's form, checks and labels."""
        rubric = self._read_judged_factors(task)
        settled = {"rationale": self._config.decide_reasons(task, len(rubric)).are_given}
        checks = {  # a factor named like a label is compared, not checked
            factor: read_check(options)
            for factor, options in task.checks.items()
            if factor not in task.label_attributes
        }
        computed = {factor: check for factor, check in checks.items() if check.runs == "here"}
        values = (task.label_attributes and self._blueprint.read_part_or_declared(task, "target")) or {}
        return RunTask(
            task,
            rubric,
            build_judge_form(task.model_copy(update=settled), rubric),
            computed,
            tuple(checks.keys() - computed.keys()),
            {name: values.get(name, []) for name in task.label_attributes},
        )

    @property
    def label(self) -> str:
        return f"{self.name}-{self._config.experiment.id}"

    @property
    def is_judged(self) -> bool:
        return any(task.rubric for task in self._tasks.values())

    @property
    def counted(self) -> str:
        """Return "scores": a judgment gives one per factor, a check one, a comparison one per label."""
        return "scores"

    def items(self) -> Sequence[Item]:
        """Return the run's good planned items as ``test`` prompts; raises UsageError: there are none."""
        nuances = {
            task.name: KnownNuance(task, self._blueprint.read_part_or_declared(task, "nuanced") or {})
            for task in self._config.tasks
        }
        items: list[Item] = []
        for datapoint in _good_planned_datapoints(self._run, self._planned):
            if (task := self._tasks.get(datapoint.task_id)) is not None:
                config = task.config
                described = bool(config.output_description.strip())
                template = find_template(
                    config.prompt_library, "test", self.settings.model, has_output_description=described
                )
                values = PreparedItem(datapoint, nuances[config.name].find_nuance(datapoint)).values
                text = fill_template(template, {**build_task_variables(config), **values})
                fields = {"posed": PosedItem(task, datapoint, values)}
                items.append(Item(datapoint.id, (Message("user", text),), fields, task.labels))
        if not items:
            raise UsageError(
                f"{self._run.path} holds no datapoints; finish its phase 3 with "
                "`coeval run --config FILE --continue`"
            )
        return items

    def _read_judged_factors(self, task: TaskConfig) -> dict[str, str]:
        """Read the factors that judges score: all but labels, checks, and removed ones."""
        rubric = task.rubric_texts_or_word
        with suppress(FileNotFoundError):
            rubric = read_json(self._run.rubric(task.name), dict[str, str])
        if not isinstance(rubric, dict):
            raise UsageError(f"{self._run.path} has no rubric for task {task.name}; finish its phase 2 first")
        factors = self._planned[task.name].factors
        planned = ({*rubric} if factors is None else factors) - {*task.label_attributes, *task.checks}
        return {name: text for name, text in rubric.items() if name in planned}

    def judge_sampling(self) -> SamplingParameters:
        """Return temperature 0, and room for every factor."""
        return SamplingParameters(temperature=0.0, max_tokens=1024)

    def judge_template(self) -> str:
        templates: dict[str, Any] = {name: self._template(task.config) for name, task in self._tasks.items()}
        for name, task in self._tasks.items():
            scales = task.form.scales.items()
            own = {factor: scale.to_config() for factor, scale in scales if scale != HIGH_MEDIUM_LOW}
            if own:  # judgments keep values, which follow from the numbers of a scale
                templates[f"scales of {name}"] = own
        return canonical_json(templates)

    def _template(self, task: TaskConfig) -> str:
        return find_template(task.prompt_library, f"evaluate_{task.evaluation_mode}", self.judge)

    def asks(self, item: Item, answer: Answer) -> Sequence[Ask]:
        """Return one judgment of all factors, or one per factor, by the run's ``evaluation_mode``."""
        task, _, template_values = posed_item(item)
        config, form = task.config, task.form
        values = {**build_task_variables(config), **template_values, "response": answer.response or ""}
        single = config.evaluation_mode == "single"
        asks = []
        for key, factors in _factors_by_ask(item).items():
            requested = form.build_joint_question(factors) if single else form.build_factor_question(*factors)
            request = partial(self._make_request, config, {**values, **requested.values}, requested.schema)
            asks.append(Ask(key, request, partial(_parse_levels, form, factors, single)))
        return tuple(asks)

    def _make_request(self, task: TaskConfig, values: Mapping[str, str], schema: Schema) -> Request:
        return Request((Message("user", fill_template(self._template(task), values)),), schema=schema)

    def score(self, records: TaskRecords) -> Scored:
        """Compute the mean score, label accuracies, and tables by task and factor."""
        items, answers, judgments = records
        units: dict[str, dict[str, float]] = {}
        means: dict[str, float | None] = {}
        failed: Counter[str] = Counter()
        by_task: dict[str, list[float]] = {}
        by_factor: dict[str, dict[str, list[float]]] = {}
        for item in items:
            (task, datapoint, _), answer = posed_item(item), answers.get(item.id)
            checked = task.compute_checks(datapoint, answer)
            scores = units[item.id] = _read_values_by_factor(item, judgments) | checked.scores
            failed += _count_missing_scores_by_reason(item, answer, judgments, scores) + checked.failed
            means[item.id] = mean = task.weighted_mean(scores)
            if mean is not None:
                by_task.setdefault(task.config.name, []).append(mean)
            of_task = by_factor.setdefault(task.config.name, {})
            for factor, value in scores.items():
                of_task.setdefault(factor, []).append(value)
        overall = mean_over_strata(list(by_task.values()))
        headline: dict[str, Metric] = {}
        if self._is_scored:
            headline["mean_score"] = metric_from_interval(overall, "share", _stratified_error(by_task))
        labels = compare_labels(items, answers)
        n_labels = labels.compared + labels.failed.total()
        return Scored(
            metrics=headline | labels.metrics(),
            n_expected=sum(posed_item(item).task.scores for item in items) + n_labels,
            n_scored=sum(map(len, units.values())) + labels.compared,
            n_failed=dict(failed + labels.failed),
            reasons=(*self._incomparable_reasons(), *self._unchecked),
            remarks=() if self._is_scored else (ONLY_LABELS,),
            tables={
                "by_task": {name: mean_metric(v, "share") for name, v in by_task.items()},
                "by_factor": {
                    task: {factor: mean_metric(values, "share") for factor, values in by_name.items()}
                    for task, by_name in by_factor.items()
                },
                **labels.tables(),
            },
            items={
                item.id: ({"mean_score": means[item.id]} if posed_item(item).task.scores else {})
                | units[item.id]
                | labels.item_scores(item.id)
                for item in items
            },
            weights={
                item.id: {"mean_score": 1 / len(by_task[posed_item(item).task.config.name])}
                for item in items
                if means[item.id] is not None
            },
        )

    def _incomparable_reasons(self) -> tuple[str, ...]:
        """Return why scores are not those of the run itself: its judges were others."""
        judges = {model.spec().model for model in self._config.with_role("judge")}
        judge = self.settings.judge
        if not self.is_judged or judge is None or judges == {judge.model}:
            return ()
        return (f"judged by {judge.model}; the run's own scores are by {', '.join(sorted(judges))}",)


def _good_planned_datapoints(run: RunDir, planned: Mapping[str, PlannedTask]) -> Iterator[Datapoint]:
    """Yield the good planned items, by file and line."""
    positions: Counter[tuple[str, str]] = Counter()
    for datapoint in choose_counted(_read_datapoints(run)).values():
        task, teacher = datapoint.task_id, datapoint.teacher_model_id
        positions[task, teacher] += 1
        is_planned = task in planned and planned[task].is_counted_item(
            teacher, datapoint.id, positions[task, teacher]
        )
        if is_planned and is_good(datapoint):
            yield datapoint


def _read_datapoints(run: RunDir) -> Iterator[Datapoint]:
    for path in run.files("data_generation"):
        for record in decode_records(path, Datapoint):
            if isinstance(record, Undecodable):
                raise UsageError(
                    f"{path} has a damaged line ({record}); repair it with "
                    f"`coeval repair --run {quote(str(run.path))}`"
                ) from record
            yield record


def _parse_levels(
    form: JudgeForm, factors: Sequence[str], single: bool, reply: Completion
) -> dict[str, Level | float]:
    verdict = (
        form.parse_joint_reply(reply.text, factors)
        if single
        else form.parse_factor_reply(reply.text, *factors)
    )
    if verdict.missing:
        raise Unparsable(f"no score for {', '.join(verdict.missing)}", raw=reply.text)
    words, numbers = form.split_by_scale(verdict.scores)
    return {**words, **numbers}


def _factors_by_ask(item: Item) -> dict[str, tuple[str, ...]]:
    """Return the ids of an item's judgments, each with the factors it scores."""
    task = posed_item(item).task
    rubric = task.rubric
    if task.config.evaluation_mode == "single":
        return {judgment_id(item.id, "rubric"): tuple(rubric)} if rubric else {}
    return {judgment_id(item.id, factor): (factor,) for factor in rubric}


def _read_values_by_factor(item: Item, judgments: Mapping[str, Judgment]) -> dict[str, float]:
    levels: dict[str, Level | float] = {}
    for key in _factors_by_ask(item):
        if (judgment := judgments.get(key)) is not None and is_good(judgment):
            levels |= judgment.value or {}
    return {factor: LEVEL_VALUE[v] if isinstance(v, str) else v for factor, v in levels.items()}


def _count_missing_scores_by_reason(
    item: Item, answer: Answer | None, judgments: Mapping[str, Judgment], scored: Mapping[str, float]
) -> Counter[str]:
    reasons: Counter[str] = Counter()
    unanswered = why_value_missing(answer)
    for key, factors in _factors_by_ask(item).items():
        reason = unanswered or why_value_missing(judgments.get(key))
        if reason is not None:
            reasons[reason] += sum(factor not in scored for factor in factors)
    return reasons


def _stratified_error(by_task: Mapping[str, Sequence[float]]) -> float | None:
    """Compute the standard error ``√(Σ s_t²/n_t) / T`` over tasks; None if a task has one score."""
    if not by_task or min(map(len, by_task.values())) < 2:
        return None
    return math.sqrt(sum(variance(values) / len(values) for values in by_task.values())) / len(by_task)
