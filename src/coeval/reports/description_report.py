"""An experiment before it runs, as a report: its design, its prompts, what its items cover, what it takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from coeval.analysis.measures.measure_tree import Measured
from coeval.analysis.run_results import SIMULATED
from coeval.core.shown_names import short_names
from coeval.core.text import join_names, pluralize
from coeval.engine.progress import Calls
from coeval.models.catalog import HOSTS, OWN_CODE
from coeval.pipeline.config.roles import model_id_or_code
from coeval.pipeline.config.schema import PHASES, Config, ModelConfig, Phase, TaskConfig
from coeval.pipeline.phases.blueprint import KINDS, Kind
from coeval.pipeline.plan.estimate.run_estimate import (
    describe_sources,
    format_calls,
    format_hours,
    summarise_estimate,
)
from coeval.pipeline.plan.preview import Forecast, Preview, build_forecast
from coeval.pipeline.plan.run_plan import FLOWING
from coeval.pipeline.plan.task_setup import TaskSetup
from coeval.pipeline.run_options import RunOptions
from coeval.pipeline.start.inherit import list_inherited_phases
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
    make_section,
    warning_to_sentence,
)
from coeval.reports.planned_prompts import MOST_DRAWN, PlannedPrompt, planned_prompts, planned_values

# --- Experiment description as tables

PROPOSED = "teachers will propose"


def models_table(config: Config, opened: Sequence[ModelConfig]) -> ReportTable:
    rows = [
        (
            model.name,
            model.interface,
            _identifier(model),
            model.roles_text,
            ", ".join(sorted(config.batched_phases(model))) or None,
        )
        for model in opened
    ]
    rows += [(name, "answers that exist", None, "student", None) for name in _answered(config)]
    columns = (
        ReportColumn("model", "Model"),
        ReportColumn("interface", "Interface", meaning="Who serves it."),
        ReportColumn(
            "identifier", "Asked as", meaning="The provider's identifier, where it is not the name."
        ),
        ReportColumn("roles", "Roles", meaning="Teachers write items, students answer, judges score."),
        ReportColumn("batched", "In batch jobs", meaning="Phases that go by the provider's Batch API."),
    )
    return ReportTable("models", "Models", columns, tuple(rows))


def _identifier(model: ModelConfig) -> str | None:
    """None: the name itself."""
    host = HOSTS.get(model.interface)  # None: auto, not resolved
    own_code = host is not None and host.dialect == OWN_CODE
    asked = model_id_or_code(model) if own_code else str(model.parameters.get("model", model.name))
    return None if asked == model.name else asked


def _answered(config: Config) -> list[str]:
    """The students whom nobody asks."""
    return list(dict.fromkeys(name for task in config.tasks for name in config.students_with_answers(task)))


def _judged(setup: TaskSetup) -> str:
    if setup.judges:
        return setup.task.judging_mode
    scored = {"labels are compared": setup.labels, "checks are computed": setup.checks}
    return ", ".join([*(what for what, of in scored.items() if of), "no judge is asked"])


def tasks_table(foreseen: Forecast) -> ReportTable:
    rows = []
    for setup in foreseen.preview.plan.setups:
        task = setup.task
        makers = [*setup.sources, *(teacher.name for teacher in setup.teachers)]
        items = foreseen.preview.plan_count.total("data_generation", task=task.name).planned
        labels = ", ".join(task.label_attributes) or None
        design = (", ".join(makers), _judged(setup), labels, _counted(foreseen.sum_task_calls(task.name)))
        rows.append((task.name, items, *design, " ".join(task.description.split())))
    columns = (
        ReportColumn("task", "Task"),
        ReportColumn("items", "Items", "count"),
        ReportColumn(
            "makers", "Items by", meaning="Teachers that write them, or who supplies them.", spare=True
        ),
        ReportColumn(
            "evaluation", "Judged", meaning="In one call for all factors, in one for each, or pairwise."
        ),
        ReportColumn("labels", "Labels", meaning="Attributes of which the value is the right answer."),
        ReportColumn("calls", "Calls", "count", "Without retries"),
        ReportColumn("description", "What has to be done", spare=True),
    )
    return ReportTable("tasks", "Tasks", columns, tuple(rows))


def attributes_table(preview: Preview) -> ReportTable:
    """One row for each attribute, with its values."""
    rows = tuple(row for setup in preview.plan.setups for row in _attributes(setup.task, preview))
    columns = (
        *make_columns("Task", "Attribute"),
        ReportColumn("kind", "Kind", meaning="Target: must be covered. Nuanced: keeps items varied."),
        ReportColumn("values", "Values"),
    )
    return ReportTable("attributes", "What items vary in", columns, rows)


def _attributes(task: TaskConfig, preview: Preview) -> Iterator[tuple[Cell, ...]]:
    kinds: tuple[Kind, ...] = KINDS[:2]
    for kind in kinds:
        known: Mapping[str, list[str]] | None = preview.blueprint.read_part(task, kind)
        if known is None:
            seeds = (task.target_attributes_seed if kind == "target" else task.nuanced_attributes_seed) or {}
            yield task.name, f"({PROPOSED})", kind, None
            known = seeds
        for name, values in known.items():
            yield task.name, name, kind, ", ".join(values)


def rubric_table(preview: Preview) -> ReportTable:
    rows: list[tuple[Cell, ...]] = []
    for setup in preview.plan.setups:
        task = setup.task
        known: Mapping[str, str] | None = preview.blueprint.read_part(task, "rubric")
        if known is None:
            rows.append((task.name, f"({PROPOSED})", None, task.scale_of("").describe_levels(), None))
            known = preview.blueprint.read_rubric_so_far(task)
        for factor, criterion in known.items():
            compared = factor in task.label_attributes
            said = "compared with the item's value, without a judge" if compared else criterion
            judged = not compared and factor not in task.checks
            levels = task.scale_of(factor).describe_levels() if judged else None
            weight = None if compared else task.weights.get(factor)
            rows.append((task.name, factor, " ".join(said.split()), levels, weight))
    columns = (
        *make_columns("Task", "Factor"),
        ReportColumn("criterion", "What the best level means"),
        ReportColumn("levels", "Levels", meaning="From worst to best, with what each counts."),
        ReportColumn("weight", "Weight", "number", "In an item's score; 1 where none is given"),
    )
    return ReportTable("rubric", "What answers are judged by", columns, tuple(rows))


def phases_table(config: Config, foreseen: Forecast, options: RunOptions) -> ReportTable:
    """Records planned and owed by phase; of phases 1–2 a record is a teacher's proposal."""
    rows: list[tuple[Cell, ...]] = []
    for phase in PHASES:
        counts = map(_counted, (foreseen.sum_phase_owed(phase), foreseen.sum_phase_calls(phase)))
        rows.append((phase, _mode(config, options, phase), foreseen.sum_phase_planned(phase), *counts))
    counts = map(_counted, (foreseen.total_owed, foreseen.total))
    rows.append(("total", "", sum(foreseen.planned.values()), *counts))
    columns = (
        ReportColumn("phase", "Phase"),
        ReportColumn("mode", "Mode", meaning="What it does with work that exists."),
        ReportColumn("records", "Records", "count"),
        ReportColumn("owed", "Missing", "count"),
        ReportColumn("calls", "Calls", "count", "Without retries"),
    )
    bold = frozenset({(len(PHASES), 0)})
    return ReportTable("phases", "The five phases", columns, tuple(rows), bold=bold)


def _counted(format_calls: Calls) -> int | str:
    return format_calls.low if format_calls.low == format_calls.high else str(format_calls)


def _mode(config: Config, options: RunOptions, phase: Phase) -> str:
    """A phase's mode in words: with ``resume_from``, phases 1–2 are New only where the file says so."""
    mode = options.mode(config, phase)
    takes_over = config.experiment.resume_from is not None and not options.continue_run
    return "taken over" if mode == "New" and takes_over and phase in list_inherited_phases(config) else mode


class DescribedExperiment(NamedTuple):
    """``config`` has no ``auto`` any more; ``warnings`` are sentences on what of it is not as it seems."""

    config: Config
    preview: Preview
    options: RunOptions
    estimate: Estimate
    warnings: tuple[str, ...] = ()


def description_report(described: DescribedExperiment) -> Report:
    """Everything is worked out of the file, the run's folder and the estimate; nobody is asked."""
    config, preview = described.config, described.preview
    values = _values(preview)
    prompts = [prompt for setup in preview.plan.setups for prompt in planned_prompts(setup, preview)]
    estimate = described.estimate
    told = (*summarise_estimate(estimate), *describe_sources(estimate))
    sections = (
        _design(described),
        _prompts(prompts),
        _coverage(values, preview),
        make_section(
            "takes", "What will it take?", tuple(map(Sentence, told)), (), tuple(estimate_tables(estimate))
        ),
    )
    simulated = any(model.interface == "simulated" for model in config.models)
    return Report(
        kind="description",
        title=config.experiment.id,
        facts=tuple(_facts(described)),
        lead=tuple(_lead(described, values)),
        sections=sections,
        alerts=(Alert(warning_to_sentence(SIMULATED)),) if simulated else (),
        labels=_shown_names(described),
    )


def _shown_names(described: DescribedExperiment) -> dict[str, str]:
    """By model and variant, what people read in place of its name."""
    models = described.config.models
    names = [name for model in models for name in (model.name, *(one.name for one in model.students()))]
    return short_names(names, labels={model.name: model.label for model in models if model.label is not None})


def _facts(described: DescribedExperiment) -> Iterator[str]:
    config, estimate = described.config, described.estimate
    yield "not run yet" if not described.options.continue_run else "what is left of a run that has begun"
    yield pluralize(len(config.models), "model")
    yield pluralize(len(config.tasks), "task")
    yield f"{format_calls(estimate.total.calls)} calls"
    yield format_hours(estimate.hours)


def _lead(described: DescribedExperiment, values: ReportTable) -> Iterator[Sentence]:
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
        yield Sentence(f"Of these, {owed:,} records are missing; calls and cost are theirs.", "takes")
    for task in sorted(described.preview.unsettled):
        yield Sentence(f"{task}: teachers have yet to propose what is missing of its design.", "design")
    for sentence in summarise_estimate(described.estimate):
        yield Sentence(sentence, "takes")
    for sentence in _absent(values, described.preview):
        yield Sentence(sentence, "coverage")
    for warning in described.warnings:
        yield Sentence(warning)


def _design(described: DescribedExperiment) -> ReportSection:
    config, preview = described.config, described.preview
    foreseen = build_forecast(config, preview)
    roles = {role: len(config.with_role(role)) for role in ("teacher", "student", "judge")}
    roles["student"] += len(_answered(config))
    cast = ", ".join(pluralize(count, role) for role, count in roles.items())
    return ReportSection(
        "design",
        "What is evaluated, and by whom?",
        (Sentence(f"{cast}; a model may play several roles."),),
        tables=(
            models_table(config, config.models),
            tasks_table(foreseen),
            attributes_table(preview),
            rubric_table(preview),
            phases_table(config, foreseen, described.options),
        ),
    )


# Models of a row: of many the first, and how many more; all of them stand in a table of their own.
_MOST_NAMED = 3


def _prompts(prompts: list[PlannedPrompt]) -> ReportSection:
    """A row and a passage for each prompt; what stands in for an unwritten text is marked in these."""
    passages = [
        Passage(
            f"prompt-{number}",
            " · ".join(
                (f"{prompt.task} · {prompt.phase}: {prompt.what}", ", ".join(prompt.models), prompt.item)
            ).removesuffix(" · "),
            prompt.parts,
        )
        for number, prompt in enumerate(prompts, 1)
    ]
    rows = tuple(
        (
            prompt.task,
            prompt.phase,
            prompt.what,
            join_names(prompt.models, _MOST_NAMED),
            prompt.characters,
            sum(part.stand_in for part in prompt.parts),
            prompt.structured,
        )
        for prompt in prompts
    )
    columns = (
        *make_columns("Task", "Phase"),
        ReportColumn("what", "Asked for"),
        ReportColumn("models", "Sent to", meaning="All of these are sent the same words."),
        ReportColumn("characters", "Characters known", "count"),
        ReportColumn(
            "unwritten", "Unwritten parts", "count", "Marked texts in it: a model is yet to write them."
        ),
        ReportColumn("structured", "By schema", meaning="The answer's shape is set where the host can."),
    )
    said = (
        f"{pluralize(len(prompts), 'prompt')}, as models will be sent them; the attributes are those of an "
        "item of the plan, and what a model is yet to write is marked."
    )
    table = ReportTable("prompts", "Prompts", columns, rows)
    return ReportSection(
        "prompts",
        "What are the models asked?",
        (Sentence(said),),
        tables=(table,),
        passages=tuple(passages),
    )


def _coverage(values: ReportTable, preview: Preview) -> ReportSection:
    """What occurs, and what the items of one teacher cannot hold."""
    said = [*_absent(values, preview)]
    said += [f"{task}: every declared value ({n:,}) occurs." for task, n in _present(values, preview).items()]
    said += [
        f"{setup.task.name}: {sentence}"
        for setup in preview.plan.setups
        for sentence in setup.describe_shortfalls()
    ]
    return make_section("coverage", "What will the items cover?", tuple(map(Sentence, said)), (), (values,))


def _values(preview: Preview) -> ReportTable:
    rows = [
        (setup.task.name, *place, items)
        for setup in preview.plan.setups
        for place, items in planned_values(setup, preview).items()
    ]
    counted = f"Of a teacher's first {MOST_DRAWN:,}, and of those that exist"
    columns = (
        *make_columns("Task", "Kind", "Attribute", "Value"),
        ReportColumn("items", "Items", "count", counted),
    )
    return ReportTable("values", "Items by value", columns, tuple(rows))


def _absent(values: ReportTable, preview: Preview) -> Iterator[str]:
    """Which declared values of target attributes no item of a settled task has."""
    absent: dict[Cell, list[str]] = {}
    for task, kind, attribute, value, items in values.rows:
        if kind == "target" and not items and task not in preview.unsettled:
            absent.setdefault(task, []).append(f"{attribute} = {value}")
    yield from (f"{task}: no item has {join_names(lacking)}." for task, lacking in absent.items())


def _present(values: ReportTable, preview: Preview) -> Counter[Cell]:
    """By settled task whose items have every value, how many there are."""
    targets = [row for row in values.rows if row[1] == "target" and row[0] not in preview.unsettled]
    lacking = {row[0] for row in targets if not row[-1]}
    return Counter(row[0] for row in targets if row[0] not in lacking)


def estimate_tables(estimate: Estimate) -> Iterator[ReportTable]:
    """By phase, with the total, by model, and by provider where there are several; last, what would cost
    less."""
    yield _estimate_table("phase", estimate.by_phase, estimate.total)
    yield _estimate_table("model", estimate.by_model)
    if len(estimate.by_provider) > 1:
        yield _estimate_table("provider", estimate.by_provider)
    before = 0.0 if estimate.total.cost_usd is None else estimate.total.cost_usd.central
    rows = tuple(
        (one.change, _ranged(one.cost_usd), 1 - one.cost_usd.central / before if before else None)
        for one in estimate.savings
    )
    columns = (
        ReportColumn("change", "Change"),
        ReportColumn("cost", "Cost then", "usd"),
        ReportColumn("saves", "Saves", "share"),
    )
    yield ReportTable("savings", "What would cost less", columns, rows)


def _estimate_table(
    of: str, lines: Mapping[str, EstimateLine], total: EstimateLine | None = None
) -> ReportTable:
    rows = [_line(key, line) for key, line in lines.items()]
    if total is not None:
        rows.append(_line("total", total))
    return ReportTable(
        f"cost_by_{of}",
        f"By {of}",
        (
            ReportColumn(of, of.capitalize()),
            ReportColumn("calls", "Calls", "count"),
            ReportColumn("input", "Input tokens", "count", terminal="input"),
            ReportColumn("output", "Output tokens", "count", terminal="output"),
            ReportColumn("cost", "Cost", "usd", "[low, high] holds it in 95 of 100 cases"),
        ),
        tuple(rows),
        bold=frozenset({(len(lines), 0)}),
    )


def _line(name: str, line: EstimateLine) -> tuple[Cell, ...]:
    low, high = round(line.calls.low), round(line.calls.high)
    format_calls = Measured(line.calls.central, low, high, None, None) if low < high else low
    tokens = (round(line.input_tokens.central), round(line.output_tokens.central))
    return (name, format_calls, *tokens, None if line.cost_usd is None else _ranged(line.cost_usd))


def _ranged(span: Span) -> Measured:
    return Measured(span.central, span.low, span.high, None, None)
