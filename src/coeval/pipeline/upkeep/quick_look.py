"""What a run holds, at a look: its records as ``--continue`` finds them. Only where something does not fit is
every line examined, as ``coeval repair`` does it; so a sound run of a million records is shown in seconds."""

from __future__ import annotations

from typing import NamedTuple

from coeval.core.errors import ConfigError, StoreError
from coeval.pipeline.config.schema import PHASES
from coeval.pipeline.phases.supplied import stored_supply
from coeval.pipeline.plan.recorded import Recorded
from coeval.pipeline.upkeep.gaps import Gaps
from coeval.pipeline.upkeep.repair import Needed, RepairReport, config_of, count_gaps, examine, rubrics
from coeval.store.jsonl import torn_tail
from coeval.store.legacy import is_legacy
from coeval.store.rundir import RECORD_FILES, RunDir


class QuickLook(NamedTuple):
    """``report``: what the files hold and lack; None of a run that has not been started, or is of the older
    layout."""

    recorded: Recorded
    report: RepairReport | None
    gaps: Gaps | None = None


class Missing(NamedTuple):
    """What a run lacks, and that in words; ``gaps`` None: it cannot be counted, ``sentences`` say why.
    ``notes``: what else is to be known of the records that are there."""

    gaps: Gaps | None
    sentences: tuple[str, ...]
    notes: tuple[str, ...] = ()


def look_for_gaps(folder: RunDir) -> Missing:
    """What a run lacks by its own configuration, as ``coeval status`` counts it; ``gaps`` are None where that
    is not there or cannot be used, for runs of the older layout, and where the folder is no run."""
    if not folder.is_run():
        return Missing(None, ())
    try:
        gaps = quick_look(folder).gaps
    except (ConfigError, StoreError) as error:
        return Missing(None, (f"what is missing cannot be counted: {error}",))
    if gaps is None:
        return Missing(None, ())
    return Missing(gaps, tuple(gaps.sentences()), (gaps.mixed,) if gaps.mixed else ())


def quick_look(folder: RunDir) -> QuickLook:
    """Reads a run, and changes nothing.

    Raises StoreError: a file cannot be read.
    """
    config = config_of(folder)
    supplied = {} if isinstance(config, str) else stored_supply(config, folder).rewritten
    recorded = Recorded().read(folder, supplied=supplied)
    if not (folder.meta.exists() or folder.config.exists()) or is_legacy(folder.path):
        return QuickLook(recorded, None)
    if _doubtful(folder, recorded):
        report = examine(folder, Needed(), config)
        recorded = Recorded().read(folder, without=report.flaws, supplied=supplied)
    else:
        report = examine(folder, Needed(PHASES[:2]), config)
    if isinstance(config, str):
        report.no_plan = config
        return QuickLook(recorded, report)
    return QuickLook(recorded, report, count_gaps(folder, config, report, recorded))


def _doubtful(folder: RunDir, recorded: Recorded) -> bool:
    """Whether lines have to be examined one by one.

    Of a run at work they are not where each by itself is a record: it has written others since those that
    they follow from were read.
    """
    if recorded.damaged:
        return True
    if folder.writer() is not None:
        return False
    factors = dict(rubrics(folder))
    unknown = any(task in factors and factor not in factors[task] for task, factor in recorded.scored)
    files = (path for kind in RECORD_FILES for path in folder.files(kind))
    return recorded.doubtful or unknown or any(map(torn_tail, files))
