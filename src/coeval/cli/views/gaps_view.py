"""What a run lacks, in words: how many records, and what fills the gaps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from coeval.cli.say import say, warn

if TYPE_CHECKING:
    from rich.console import Console

    from coeval.pipeline.phases.supplied import ShortSupply
    from coeval.pipeline.upkeep.quick_look import Missing

__all__ = ["CONTINUE", "tell_missing", "tell_way_on"]

CONTINUE = "coeval run --config FILE --continue"


def tell_missing(missing: Missing, console: Console) -> None:
    """Say what of a run's plan is not there, if anything is, and the way on."""
    for sentence in missing.sentences:
        warn(console, sentence)
    if missing.gaps is not None and missing.sentences:
        tell_way_on(console, missing.gaps.short, CONTINUE, owed=missing.gaps.owed)


def tell_way_on(
    console: Console, short: Sequence[ShortSupply], command: str, *, owed: int, first: str = ""
) -> None:
    """Say what fills the gaps: items that people write, what is to be done ``first``, and the command, which
    has something to ask before there are more items if more is ``owed``."""
    for supply in short:
        say(console, f"No model makes the items that are missing: {supply.way_out}.")
    asks = not short or owed > sum(supply.missing for supply in short)
    if first:
        say(console, first)
    say(console, f"{'Fill the gaps with' if asks and not first else 'After that'}: {command}")
