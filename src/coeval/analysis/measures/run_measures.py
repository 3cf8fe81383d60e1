"""The records that hold all measures of a run, and of an output folder of ``eval-framework``; and their JSON.

Each part says by `Part` what it is and which analyses show it, each field of its records by `ShownAs` where.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeAlias, get_args

from coeval.analysis.measures.benchmark_measures import ItemMeasures, TaskCoverage
from coeval.analysis.measures.judge_measures import JudgeMeasures, PairAgreement, PanelMeasures
from coeval.analysis.measures.label_measures import Labels
from coeval.analysis.measures.measure_tree import (
    FILES,
    Analysis,
    Measured,
    ModelTasks,
    Part,
    Record,
    ShownAs,
    field_declarations,
    named_entries,
    part_to_json,
)
from coeval.analysis.measures.pair_measures import PairMeasures
from coeval.analysis.measures.ranking import ExcludingSelfJudgments, Ranking
from coeval.analysis.measures.robust_set import RobustMeasures
from coeval.analysis.measures.student_measures import CheckMeasures, StudentMeasures
from coeval.analysis.measures.teacher_measures import TeacherMeasures
from coeval.analysis.panel.bias_ledger import LengthContrast
from coeval.analysis.panel.g_study import GStudy
from coeval.analysis.people.people_measures import PeopleMeasures
from coeval.analysis.sampled_answers import SamplesByPart
from coeval.store.jsonl import write_json_atomic

_ALL: tuple[Analysis, ...] = get_args(Analysis)[1:]

_Agreement: TypeAlias = Annotated[
    Mapping[tuple[str, str], PairAgreement], Part("Judges pairwise", ("agreement",))
]
_Judges: TypeAlias = Annotated[Mapping[str, JudgeMeasures], Part("By judge", ("judges",))]
_Panel: TypeAlias = Annotated[
    PanelMeasures | None, Part("Reliability of all judges together", ("judges", "agreement"))
]


class RemovedMeasures(Record, frozen=True):
    """Measures of recorded students, tasks and labels that the configuration lost; no other part has them."""

    students: Annotated[
        Mapping[str, StudentMeasures],
        Part("Removed students over the remaining tasks, and all students in removed tasks"),
    ]
    labels: Annotated[Labels, Part("Removed labels, tasks and students")]


class RunMeasures(Record, frozen=True):
    """All measures of a run. ``units`` counts the valid (answer, factor, judge) scores."""

    findings: Annotated[tuple[str, ...], Part("Findings, in sentences")]
    simulated: Annotated[bool, Part("Whether simulated models took part", _ALL)]
    units: Annotated[int, Part("Scores that count", _ALL)]
    agreement: _Agreement
    panel: _Panel
    judges: _Judges
    length: Annotated[
        Mapping[tuple[str, str], LengthContrast],
        Part("How much two judges differ on long answers", ("judges",)),
    ]
    g_study: Annotated[GStudy | None, Part("Sources of score variation, and reliability", ("judges",))]
    teachers: Annotated[Mapping[str, TeacherMeasures], Part("By teacher", ("teachers",))]
    students: Annotated[Mapping[str, StudentMeasures], Part("By student", ("students",))]
    ranking: Annotated[Ranking, Part("Order of students", ("students",))]
    labels: Annotated[Labels, Part("Label accuracy", ("labels",))]
    without_own: Annotated[ExcludingSelfJudgments, Part("Students without self-judgments", ("students",))]
    robust: Annotated[RobustMeasures, Part("Items on which the best-agreeing judges agree", ("robust",))]
    coverage: Annotated[Mapping[str, TaskCoverage], Part("By task", ("coverage", "items"))]
    items: Annotated[Mapping[str, ItemMeasures], Part("By item", ("items",))]
    checks: Annotated[
        Mapping[tuple[str, str], CheckMeasures] | None, Part("By task and check", ("students",))
    ] = None
    samples: Annotated[SamplesByPart | None, Part("Several answers per item", ("students",))] = None
    pairs: Annotated[PairMeasures | None, Part("Comparisons of answers", ("students", "judges"))] = None
    people: Annotated[PeopleMeasures | None, Part("Judges against people", ("calibration",))] = None
    removed: Annotated[RemovedMeasures | None, Part("Parts no longer in the configuration")] = None


class SampleSpread(Record, frozen=True):
    """A metric over several samples of each prompt, in its ``unit`` (`SampleFigure`)."""

    unit: Annotated[str, ShownAs("share, percent or points", "Unit", kind="text")]
    std: Annotated[
        float | None, ShownAs("Their standard deviation", "Between samples", "sd of samples", "number")
    ]
    sem: Annotated[float | None, ShownAs("std / √n_runs", elsewhere=FILES)]
    n_runs: Annotated[int, ShownAs("How many samples", "Samples", "samples", "count")]
    per_run: Annotated[tuple[float, ...], ShownAs("By sample", elsewhere="metrics")]
    item_se: Annotated[
        float | None, ShownAs("Standard error over prompts", "Standard error", "item s.e.", "number")
    ]


class OutputMeasures(Record, frozen=True):
    """All measures of an output folder of ``eval-framework``. ``metrics`` are in their own units, averaged
    over samples where a task has several; ``samples`` then says how they spread."""

    findings: Annotated[tuple[str, ...], Part("Findings, in sentences")]
    units: Annotated[int, Part("Scores that count", _ALL)]
    agreement: _Agreement
    panel: _Panel
    judges: _Judges
    teachers: Annotated[Mapping[str, TeacherMeasures], Part("None")]
    students: Annotated[Mapping[str, StudentMeasures], Part("None")]
    metrics: Annotated[Mapping[str, ModelTasks[Measured]], Part("By model, task and metric")]
    samples: Annotated[Mapping[str, ModelTasks[SampleSpread]], Part("The same over several samples")]


Measures: TypeAlias = RunMeasures | OutputMeasures


def analysis_part_names(measures: type[Measures], analysis: Analysis) -> set[str]:
    """Name the fields of `measures` that an analysis shows."""
    analyses_by_part = {
        name: part.analyses for name, part in field_declarations(measures).items() if isinstance(part, Part)
    }
    return {
        name
        for name, analyses in analyses_by_part.items()
        if analysis in analyses or (analysis == "all" and name != "items")
    }


def select_parts(measures: Measures, analysis: Analysis) -> Iterator[tuple[str, Any]]:
    """Yield the name and value of each part that an analysis shows, in the order of the record."""
    names = analysis_part_names(type(measures), analysis)
    return ((name, part) for name, part in named_entries(measures) if name in names)


def measures_to_json(measures: Measures, analysis: Analysis = "all") -> dict[str, Any]:
    """Return measures as ``measures.json`` has them; a part that is None becomes an empty object."""
    return {
        name: {} if part is None else part_to_json(part) for name, part in select_parts(measures, analysis)
    }


def write_measures(measures: Measures, out: Path) -> Path:
    """Write ``measures.json`` into ``out``; return where it is. Raises StoreError: it cannot be written."""
    write_json_atomic(out / "measures.json", measures_to_json(measures))
    return out / "measures.json"
