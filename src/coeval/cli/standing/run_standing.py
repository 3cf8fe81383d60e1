"""What a run's folder holds and lacks, by phase."""

from __future__ import annotations

from coeval.cli.standing.standing import PhaseStanding
from coeval.pipeline.config.schema import PHASES, Phase
from coeval.pipeline.plan.record_entry import Entry, EvaluationEntry
from coeval.pipeline.plan.recorded import Recorded
from coeval.pipeline.upkeep.quick_look import QuickLook
from coeval.pipeline.upkeep.repair import RepairReport
from coeval.store.record_index import PhaseIndex
from coeval.store.rundir import RunDir

__all__ = ["index_of", "missing", "phases_of"]


def phases_of(folder: RunDir, look: QuickLook) -> dict[str, PhaseStanding]:
    """Each phase; records that the plan does not name are good ones all the same, beside it."""
    return {phase: _phase(folder, look, phase) for phase in PHASES}


def _phase(folder: RunDir, look: QuickLook, phase: Phase) -> PhaseStanding:
    recorded, report, _ = look
    owed = None if report is None else missing(report, phase)
    index = index_of(recorded, phase)
    if index is None:
        documents = len(list(folder.folder(phase).glob("*.json")))
        damaged = (
            0 if report is None else sum(f.damaged is not None for f in report.files if f.phase == phase)
        )
        planned = None if owed is None else documents
        return PhaseStanding(planned, documents - damaged, damaged, owed)
    good = sum(entry.good for entry in index.entries())
    planned = None
    if report is not None and owed is not None:
        planned = sum(file.planned or 0 for file in report.files if file.phase == phase)
        good = planned - owed
    return PhaseStanding(planned, good, len(index) - sum(entry.good for entry in index.entries()), owed)


def missing(report: RepairReport, phase: Phase) -> int | None:
    """Records of a phase that are owed, or, of phases 1–2, documents; None where it cannot be known."""
    if phase in ("attribute_mapping", "rubric_mapping"):
        damaged = sum(file.damaged is not None for file in report.files if file.phase == phase)
        return damaged or (None if report.no_plan or report.unsettled else 0)
    return report.owed(phase)


def index_of(recorded: Recorded, phase: Phase) -> PhaseIndex[Entry] | PhaseIndex[EvaluationEntry] | None:
    match phase:
        case "data_generation":
            return recorded.items
        case "response_collection":
            return recorded.responses
        case "evaluation":
            return recorded.evaluations
        case _:
            return None
