"""Who takes part in an experiment and what is evaluated, as tables: the file, read by somebody who did not
write it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from coeval.pipeline.config.schema import PHASES, Config, TaskConfig
from coeval.pipeline.phases.blueprint import KINDS, Kind
from coeval.pipeline.plan.preview import Preview
from coeval.pipeline.run_session import RunOptions
from coeval.reports.content.report_content import Cell, ReportColumn, ReportTable

__all__ = ["attributes_table", "models_table", "phases_table", "rubric_table", "tasks_table"]

PROPOSED = "teachers will propose"


def models_table(config: Config) -> ReportTable:
    rows = [
        (
            model.name,
            model.interface,
            str(model.parameters.get("model", model.name)),
            ", ".join(model.roles),
            ", ".join(sorted(config.batched_phases(model))) or None,
        )
        for model in config.models
    ]
    columns = (
        ReportColumn("model", "Model"),
        ReportColumn("interface", "Interface", meaning="Who serves it."),
        ReportColumn("identifier", "Asked as", meaning="The provider's identifier."),
        ReportColumn("roles", "Roles", meaning="Teachers write items, students answer, judges score."),
        ReportColumn("batched", "In batch jobs", meaning="Phases that go by the provider's Batch API."),
    )
    return ReportTable("models", "Models", columns, tuple(rows))


def tasks_table(preview: Preview) -> ReportTable:
    rows = []
    for setup in preview.plan.setups:
        task = setup.task
        makers = [*setup.sources, *(teacher.name for teacher in setup.teachers)]
        rows.append(
            (
                task.name,
                " ".join(task.description.split()),
                preview.plan_count.total("data_generation", task=task.name).planned,
                ", ".join(makers),
                task.evaluation_mode if setup.judges else "labels are compared, no judge is asked",
                ", ".join(task.label_attributes) or None,
            )
        )
    columns = (
        ReportColumn("task", "Task"),
        ReportColumn("description", "What has to be done"),
        ReportColumn("items", "Items", "count"),
        ReportColumn("makers", "Items by", meaning="Teachers that write them, or who supplies them."),
        ReportColumn("evaluation", "Judged", meaning="In one call for all factors, or in one for each."),
        ReportColumn("labels", "Labels", meaning="Attributes of which the value is the right answer."),
    )
    return ReportTable("tasks", "Tasks", columns, tuple(rows))


def attributes_table(preview: Preview) -> ReportTable:
    """One row for each attribute, with its values."""
    rows = tuple(row for setup in preview.plan.setups for row in _attributes(setup.task, preview))
    columns = (
        ReportColumn("task", "Task"),
        ReportColumn("attribute", "Attribute"),
        ReportColumn("kind", "Kind", meaning="Target: must be covered. Nuanced: keeps items varied."),
        ReportColumn("values", "Values"),
    )
    return ReportTable("attributes", "What items vary in", columns, rows)


def _attributes(task: TaskConfig, preview: Preview) -> Iterator[tuple[Cell, ...]]:
    kinds: tuple[Kind, ...] = KINDS[:2]
    for kind in kinds:
        known: Mapping[str, list[str]] | None = preview.blueprint.known_part(task, kind)
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
        known: Mapping[str, str] | None = preview.blueprint.known_part(task, "rubric")
        if known is None:
            rows.append((task.name, f"({PROPOSED})", None))
            known = preview.blueprint.heard_rubric(task)
        for factor, criterion in known.items():
            compared = factor in task.label_attributes
            said = "compared with the item's value, without a judge" if compared else criterion
            rows.append((task.name, factor, " ".join(said.split())))
    columns = (
        ReportColumn("task", "Task"),
        ReportColumn("factor", "Factor"),
        ReportColumn("criterion", "What High means"),
    )
    return ReportTable("rubric", "What answers are judged by", columns, tuple(rows))


def phases_table(config: Config, preview: Preview, options: RunOptions) -> ReportTable:
    """Records planned and owed by phase; of phases 1–2 a record is a teacher's proposal."""
    rows: list[tuple[Cell, ...]] = []
    for phase in PHASES:
        if phase in PHASES[:2]:
            kinds = KINDS[:2] if phase == PHASES[0] else KINDS[2:]
            tasks = config.tasks
            owed = sum(len(preview.blueprint.owed_proposals(task, kind)) for task in tasks for kind in kinds)
            planned = owed
        else:
            count = preview.plan_count.total(phase)
            planned, owed = count.planned, count.owed
        rows.append((phase, options.mode(config, phase), planned, owed))
    columns = (
        ReportColumn("phase", "Phase"),
        ReportColumn("mode", "Mode", meaning="What it does with work that exists."),
        ReportColumn("records", "Records", "count"),
        ReportColumn("owed", "Still to be made", "count"),
    )
    return ReportTable("phases", "The five phases", columns, tuple(rows))
