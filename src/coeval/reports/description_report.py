"""The report of an experiment before it runs: design, prompts, coverage of its items, and estimate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from coeval.analysis.measures.measure_tree import Measured
from coeval.analysis.run_results import SIMULATED
from coeval.core.shown_names import short_names
from coeval.core.text import join_names, pluralize, warning_to_sentence
from coeval.engine.progress import Calls
from coeval.models.catalog import HOSTS, OWN_CODE
from coeval.pipeline.config.roles import model_id_or_code
from coeval.pipeline.config.schema import PHASES, Config, ModelConfig, Phase, TaskConfig
from coeval.pipeline.phases.blueprint import KINDS, Kind
from coeval.pipeline.plan.estimate.run_estimate import (
    describe_sources,
    format_calls,
    format_duration,
    summarise_estimate,
)
from coeval.pipeline.plan.preview import Forecast, Preview, forecast_calls
from coeval.pipeline.plan.run_plan import FLOWING
from coeval.pipeline.plan.task_setup import TaskSetup
from coeval.pipeline.run_options import RunOptions
from coeval.pipeline.start.inherit import phases_to_inherit
from coeval.pricing.estimate import Estimate, EstimateLine
from coeval.pricing.lengths import Span
from coeval.reports.content import (
    Alert,
    Cell,
    Passage,
    Report,
    ReportColumn,
    ReportSection,
    ReportTable,
    Sentence,
    make_columns,
)
from coeval.reports.planned_prompts import (
    MOST_DRAWN,
    PlannedPrompt,
    count_planned_values,
    list_planned_prompts,
)

# --- Experiment description as tables

PROPOSED = "teachers will propose"


def models_and_roles_table(config: Config, models: Sequence[ModelConfig]) -> ReportTable:
    """Make a row for each model, and one for each student whose answers exist."""
    rows = [
        (
            model.name,
            model.interface,
            _provider_identifier_unless_name(model),
            model.roles_text,
            ", ".join(sorted(config.batched_phases(model))) or None,
        )
        for model in models
    ]
    rows += [(name, "existing answers", None, "student", None) for name in _students_with_answers(config)]
    columns = (
        ReportColumn("model", "Model"),
        ReportColumn("interface", "Interface", meaning="The service that runs it."),
        ReportColumn("identifier", "Identifier", meaning="The provider's name for it, if different."),
        ReportColumn("roles", "Roles", meaning="Teachers write items, students answer, judges score."),
        ReportColumn("batched", "In batch jobs", meaning="Phases that use the provider's Batch API."),
    )
    return ReportTable("models", "Models", columns, tuple(rows))


def _provider_identifier_unless_name(model: ModelConfig) -> str | None:
    """Return the provider's identifier of a model, or None if it is the name."""
    host = HOSTS.get(model.interface)  # None: auto, not resolved
    own_code = host is not None and host.dialect == OWN_CODE
    identifier = model_id_or_code(model) if own_code else str(model.parameters.get("model", model.name))
    return None if identifier == model.name else identifier


def _students_with_answers(config: Config) -> list[str]:
    """List the students whose answers are supplied, so that no model is called."""
    return list(
        dict.fromkeys(name for task in config.tasks for name in config.students_with_existing_answers(task))
    )


def _name_judging_methods(setup: TaskSetup) -> str:
    if setup.judges:
        return setup.task.judging_mode
    methods = ["labels"] * bool(setup.labels) + ["checks"] * bool(setup.checks)
    return ", ".join([*methods, "no judge"])


def tasks_table(forecast: Forecast) -> ReportTable:
    """Make a row for each task: who makes its items, how they are judged, and the calls it takes."""
    rows = []
    for setup in forecast.preview.plan.setups:
        task = setup.task
        makers = [*setup.sources, *(teacher.name for teacher in setup.teachers)]
        items = forecast.preview.plan_count.total("data_generation", task=task.name).planned
        labels = ", ".join(task.label_attributes) or None
        design = (
            ", ".join(makers),
            _name_judging_methods(setup),
            labels,
            _calls_cell(forecast.sum_task_calls(task.name)),
        )
        rows.append((task.name, items, *design, " ".join(task.description.split())))
    columns = (
        ReportColumn("task", "Task"),
        ReportColumn("items", "Items", "count"),
        ReportColumn("makers", "Items by", meaning="Who writes or supplies them.", spare=True),
        ReportColumn(
            "evaluation", "Judged", meaning="In one call for all factors, in one for each, or pairwise."
        ),
        ReportColumn("labels", "Labels", meaning="Attributes whose value is the right answer."),
        ReportColumn("calls", "Calls", "count", "Without retries"),
        ReportColumn("description", "Description", spare=True),
    )
    return ReportTable("tasks", "Tasks", columns, tuple(rows))


def declared_attributes_table(preview: Preview) -> ReportTable:
    """Make a row for each attribute, with its values."""
    rows = tuple(row for setup in preview.plan.setups for row in _attribute_rows(setup.task, preview))
    columns = (
        *make_columns("Task", "Attribute"),
        ReportColumn("kind", "Kind", meaning="Target: must be covered. Nuanced: keeps items varied."),
        ReportColumn("values", "Values"),
    )
    return ReportTable("attributes", "Attributes of items", columns, rows)


def _attribute_rows(task: TaskConfig, preview: Preview) -> Iterator[tuple[Cell, ...]]:
    kinds: tuple[Kind, ...] = KINDS[:2]
    for kind in kinds:
        declared: Mapping[str, list[str]] | None = preview.blueprint.read_part_or_declared(task, kind)
        if declared is None:
            seeds = (task.target_attributes_seed if kind == "target" else task.nuanced_attributes_seed) or {}
            yield task.name, f"({PROPOSED})", kind, None
            declared = seeds
        for name, values in declared.items():
            yield task.name, name, kind, ", ".join(values)


def rubric_table(preview: Preview) -> ReportTable:
    """Make a row for each factor, with what its best level means."""
    rows: list[tuple[Cell, ...]] = []
    for setup in preview.plan.setups:
        task = setup.task
        declared: Mapping[str, str] | None = preview.blueprint.read_part_or_declared(task, "rubric")
        if declared is None:
            rows.append((task.name, f"({PROPOSED})", None, task.scale_of("").levels_naming_best(), None))
            declared = preview.blueprint.merge_inherited_and_proposed_rubrics(task)
        for factor, criterion in declared.items():
            compared = factor in task.label_attributes
            meaning = "equal to the item's value, without a judge" if compared else criterion
            judged = not compared and factor not in task.checks
            levels = task.scale_of(factor).levels_naming_best() if judged else None
            weight = None if compared else task.weights.get(factor)
            rows.append((task.name, factor, " ".join(meaning.split()), levels, weight))
    columns = (
        *make_columns("Task", "Factor"),
        ReportColumn("criterion", "What the best level means"),
        ReportColumn("levels", "Levels", meaning="From worst to best, with their values."),
        ReportColumn("weight", "Weight", "number", "In an item's score; default 1"),
    )
    return ReportTable("rubric", "Rubric", columns, tuple(rows))


def phases_table(config: Config, forecast: Forecast, options: RunOptions) -> ReportTable:
    """Count planned and missing records and calls by phase; those of phases 1–2 are teachers' proposals."""
    rows: list[tuple[Cell, ...]] = []
    for phase in PHASES:
        counts = map(_calls_cell, (forecast.sum_phase_owed(phase), forecast.sum_phase_calls(phase)))
        rows.append(
            (phase, _describe_mode(config, options, phase), forecast.sum_phase_planned(phase), *counts)
        )
    counts = map(_calls_cell, (forecast.total_owed, forecast.total))
    rows.append(("total", "", sum(forecast.planned.values()), *counts))
    columns = (
        ReportColumn("phase", "Phase"),
        ReportColumn("mode", "Mode", meaning="How the phase treats existing records."),
        ReportColumn("records", "Records", "count"),
        ReportColumn("owed", "Missing", "count"),
        ReportColumn("calls", "Calls", "count", "Without retries"),
    )
    bold = frozenset({(len(PHASES), 0)})
    return ReportTable("phases", "The five phases", columns, tuple(rows), bold=bold)


def _calls_cell(calls: Calls) -> int | str:
    return calls.low if calls.low == calls.high else str(calls)


def _describe_mode(config: Config, options: RunOptions, phase: Phase) -> str:
    """Name a phase's mode; with ``resume_from``, phases 1–2 are New only if the file says so."""
    mode = options.mode(config, phase)
    inherits = config.experiment.resume_from is not None and not options.continue_run
    return "inherited" if mode == "New" and inherits and phase in phases_to_inherit(config) else mode


class DescribedExperiment(NamedTuple):
    """An experiment to describe. ``config`` has no ``auto`` left; ``warnings`` are sentences."""

    config: Config
    preview: Preview
    options: RunOptions
    estimate: Estimate
    warnings: tuple[str, ...] = ()


def description_report(described: DescribedExperiment) -> Report:
    """Describe an experiment from its file, its folder and the estimate, without calling a model."""
    config, preview = described.config, described.preview
    values = _items_by_value_table(preview)
    prompts = [prompt for setup in preview.plan.setups for prompt in list_planned_prompts(setup, preview)]
    estimate = described.estimate
    sentences = (*summarise_estimate(estimate), *describe_sources(estimate))
    sections = (
        _design_section(described),
        _prompts_section(prompts),
        _coverage_section(values, preview),
        ReportSection.with_rows(
            "takes", "What will it take?", sentences, (), estimate_and_savings_tables(estimate)
        ),
    )
    simulated = any(model.interface == "simulated" for model in config.models)
    return Report(
        kind="description",
        title=config.experiment.id,
        facts=tuple(_list_facts(described)),
        lead=tuple(_overview_sentences(described, values)),
        sections=sections,
        alerts=(Alert(warning_to_sentence(SIMULATED)),) if simulated else (),
        labels=_short_model_names(described),
    )


def _short_model_names(described: DescribedExperiment) -> dict[str, str]:
    """Return by model and variant what people read in place of its name."""
    models = described.config.models
    names = [
        name for model in models for name in (model.name, *(variant.name for variant in model.students()))
    ]
    return short_names(names, labels={model.name: model.label for model in models if model.label is not None})


def _list_facts(described: DescribedExperiment) -> Iterator[str]:
    config, estimate = described.config, described.estimate
    yield "not run yet" if not described.options.continue_run else "the rest of a started run"
    yield pluralize(len(config.models), "model")
    yield pluralize(len(config.tasks), "task")
    yield f"{format_calls(estimate.total.calls)} calls"
    yield format_duration(estimate.hours)


def _overview_sentences(described: DescribedExperiment, values: ReportTable) -> Iterator[Sentence]:
    """Yield the size of the run, what is missing of it or of its design, its estimate, and the warnings."""
    count = described.preview.plan_count
    items, answers, judgments = (count.total(phase).planned for phase in FLOWING)
    tasks = pluralize(len(described.config.tasks), "task")
    yield Sentence(
        f"{pluralize(items, 'item')} for {tasks}, {pluralize(answers, 'answer')} to them, and "
        f"{pluralize(judgments, 'judgment')} of these answers.",
        "design",
    )
    if described.options.continue_run:
        owed = count.total().owed
        yield Sentence(f"Of these, {owed:,} records are missing; calls and cost cover only them.", "takes")
    for task in sorted(described.preview.unsettled):
        yield Sentence(f"{task}: teachers still have to propose parts of its design.", "design")
    for sentence in summarise_estimate(described.estimate):
        yield Sentence(sentence, "takes")
    for sentence in _absent_value_sentences(values, described.preview):
        yield Sentence(sentence, "coverage")
    for warning in described.warnings:
        yield Sentence(warning)


def _design_section(described: DescribedExperiment) -> ReportSection:
    """Make the section of models, tasks, attributes, rubric and phases."""
    config, preview = described.config, described.preview
    forecast = forecast_calls(config, preview)
    roles = {role: len(config.with_role(role)) for role in ("teacher", "student", "judge")}
    roles["student"] += len(_students_with_answers(config))
    cast = ", ".join(pluralize(count, role) for role, count in roles.items())
    tables = (
        models_and_roles_table(config, config.models),
        tasks_table(forecast),
        declared_attributes_table(preview),
        rubric_table(preview),
        phases_table(config, forecast, described.options),
    )
    sentences = (Sentence(f"{cast}; a model may play several roles."),)
    return ReportSection("design", "What is evaluated, and by whom?", sentences, (), tables)


# Models of a row: of many the first, and how many more; all of them stand in a table of their own.
_MOST_NAMED = 3


def _prompts_section(prompts: list[PlannedPrompt]) -> ReportSection:
    """Make a row and a passage for each prompt; unwritten texts are marked in the passages."""
    passages = []
    for number, prompt in enumerate(prompts, 1):
        names = (prompt.task, f"{prompt.phase}: {prompt.output}", ", ".join(prompt.models), prompt.item)
        title = " · ".join(names).removesuffix(" · ")
        passages.append(Passage(f"prompt-{number}", title, prompt.parts))
    rows = tuple(
        (
            prompt.task,
            prompt.phase,
            prompt.output,
            join_names(prompt.models, _MOST_NAMED),
            prompt.known_characters,
            sum(part.stand_in for part in prompt.parts),
            prompt.structured,
        )
        for prompt in prompts
    )
    columns = (
        *make_columns("Task", "Phase"),
        ReportColumn("what", "Output"),
        ReportColumn("models", "Sent to", meaning="All of these get the same text."),
        ReportColumn("characters", "Characters known", "count"),
        ReportColumn("unwritten", "Unwritten parts", "count", "Marked: text that a model will write."),
        ReportColumn("structured", "By schema", meaning="A schema sets the answer's shape if the host can."),
    )
    summary = (
        f"{pluralize(len(prompts), 'prompt')} as sent to models, with the attributes of one planned item; "
        "texts that a model will write are marked."
    )
    table = ReportTable("prompts", "Prompts", columns, rows)
    question, sentences = "What will the prompts be?", (Sentence(summary),)
    return ReportSection("prompts", question, sentences, (), (table,), tuple(passages))


def _coverage_section(values: ReportTable, preview: Preview) -> ReportSection:
    """Make the section of which declared values items have, and which they cannot have."""
    sentences = [*_absent_value_sentences(values, preview)]
    sentences += [
        f"{task}: every declared value ({n:,}) occurs."
        for task, n in _count_values_of_fully_covered_tasks(values, preview).items()
    ]
    sentences += [
        f"{setup.task.name}: {sentence}"
        for setup in preview.plan.setups
        for sentence in setup.describe_coverage_shortfalls()
    ]
    return ReportSection.with_rows("coverage", "What will the items cover?", sentences, (), (values,))


def _items_by_value_table(preview: Preview) -> ReportTable:
    rows = [
        (setup.task.name, *value, items)
        for setup in preview.plan.setups
        for value, items in count_planned_values(setup, preview).items()
    ]
    counted = f"Among a teacher's first {MOST_DRAWN:,} and the existing ones"
    columns = (
        *make_columns("Task", "Kind", "Attribute", "Value"),
        ReportColumn("items", "Items", "count", counted),
    )
    return ReportTable("values", "Items by value", columns, tuple(rows))


def _absent_value_sentences(values: ReportTable, preview: Preview) -> Iterator[str]:
    """Name the declared values of target attributes that no item of a settled task has."""
    absent: dict[Cell, list[str]] = {}
    for task, kind, attribute, value, items in values.rows:
        if kind == "target" and not items and task not in preview.unsettled:
            absent.setdefault(task, []).append(f"{attribute} = {value}")
    yield from (f"{task}: no item has {join_names(lacking)}." for task, lacking in absent.items())


def _count_values_of_fully_covered_tasks(values: ReportTable, preview: Preview) -> Counter[Cell]:
    """Count the values of each settled task whose items have all of them."""
    targets = [row for row in values.rows if row[1] == "target" and row[0] not in preview.unsettled]
    lacking = {row[0] for row in targets if not row[-1]}
    return Counter(row[0] for row in targets if row[0] not in lacking)


def estimate_and_savings_tables(estimate: Estimate) -> Iterator[ReportTable]:
    """Yield the estimate by phase, with the total, by model, and by provider if there are several; then
    savings."""
    yield _estimate_table("phase", estimate.by_phase, estimate.total)
    yield _estimate_table("model", estimate.by_model)
    if len(estimate.by_provider) > 1:
        yield _estimate_table("provider", estimate.by_provider)
    before = 0.0 if estimate.total.cost_usd is None else estimate.total.cost_usd.central
    rows = tuple(
        (saving.change, _span_cell(saving.cost_usd), 1 - saving.cost_usd.central / before if before else None)
        for saving in estimate.savings
    )
    columns = (
        ReportColumn("change", "Change"),
        ReportColumn("cost", "New cost", "usd"),
        ReportColumn("saves", "Saves", "share"),
    )
    yield ReportTable("savings", "Ways to save", columns, rows)


def _estimate_table(
    dimension: str, lines: Mapping[str, EstimateLine], total: EstimateLine | None = None
) -> ReportTable:
    """Make a table of calls, tokens and cost by a dimension such as ``phase``."""
    rows = [_estimate_row(key, line) for key, line in lines.items()]
    if total is not None:
        rows.append(_estimate_row("total", total))
    columns = (
        ReportColumn(dimension, dimension.capitalize()),
        ReportColumn("calls", "Calls", "count"),
        ReportColumn("input", "Input tokens", "count", terminal="input"),
        ReportColumn("output", "Output tokens", "count", terminal="output"),
        ReportColumn("cost", "Cost", "usd", "With its 95% interval"),
    )
    name, total_name = f"cost_by_{dimension}", frozenset({(len(lines), 0)})
    return ReportTable(name, f"By {dimension}", columns, tuple(rows), bold=total_name)


def _estimate_row(name: str, line: EstimateLine) -> tuple[Cell, ...]:
    low, high = round(line.calls.low), round(line.calls.high)
    calls = Measured(line.calls.central, low, high, None, None) if low < high else low
    tokens = (round(line.input_tokens.central), round(line.output_tokens.central))
    return (name, calls, *tokens, None if line.cost_usd is None else _span_cell(line.cost_usd))


def _span_cell(span: Span) -> Measured:
    return Measured(span.central, span.low, span.high, None, None)
