"""What a run lacks, in words: how many records, and what fills the gaps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from coeval.cli.say import say, warn
from coeval.core.text import listed, numbered

if TYPE_CHECKING:
    from rich.console import Console

    from coeval.pipeline.config.schema import Phase
    from coeval.pipeline.phases.supplied import ShortSupply
    from coeval.pipeline.upkeep.gaps import Gaps

__all__ = ["CONTINUE", "tell_missing", "tell_way_on"]

CONTINUE = "coeval run --config FILE --continue"

_NOUNS: dict[Phase, str] = {
    "data_generation": "item",
    "response_collection": "answer",
    "evaluation": "judgment",
}


def tell_missing(gaps: Gaps, console: Console) -> None:
    """Say what of a run's plan is not there, if anything is, and the way on."""
    counts = {noun: gaps.missing(phase) for phase, noun in _NOUNS.items()}
    parts = [numbered(count, noun) for noun, count in counts.items() if count]
    if gaps.unsettled:
        warn(console, f"phases 1–2 are not finished for {listed(gaps.unsettled)}")
    if parts:
        warn(console, f"of what is planned, this is not there: {listed(parts)}; {_places(gaps)}")
    if parts or gaps.unsettled:
        tell_way_on(console, gaps.short, CONTINUE, owed=sum(counts.values()) + len(gaps.unsettled))


def _places(gaps: Gaps) -> str:
    """The files that lack records, the first ones by name."""
    paths = [path for path, gap in gaps.files.items() if gap.phase in _NOUNS and gap.planned > gap.there]
    return f"see {listed(f'{path.parent.name}/{path.name}' for path in paths)}"


def tell_way_on(console: Console, short: Sequence[ShortSupply], command: str, *, owed: int) -> None:
    """Say what fills the gaps: items that people write, and the command, which has something to ask before
    there are more of them if more is ``owed``."""
    for supply in short:
        say(console, f"No model makes the items that are missing: {supply.way_out}.")
    asks = not short or owed > sum(supply.missing for supply in short)
    say(console, f"{'Fill the gaps with' if asks else 'After that'}: {command}")
