"""``--overwrite``: what the phases in mode New hold gives way, with what follows from it. All else stays:
artifacts of the other phases, items that were put in place by hand, and ``usage.json``."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

from coeval.pipeline.config.item_sources import item_files
from coeval.pipeline.config.schema import PHASES, Config, Phase
from coeval.pipeline.start.taken_over import inherited_by, write_inherited
from coeval.store.replacing import move_to_replaced
from coeval.store.rundir import RunDir


class Cleared(RunDir):
    """A run folder as it will be when the phases ``gone`` have given way; ``staying`` are files that stay."""

    def __init__(self, path: Path, gone: Collection[Phase], staying: Collection[Path]) -> None:
        super().__init__(path)
        self._gone = gone
        self._staying = staying

    def folder(self, phase: str) -> Path:
        """Artifacts of phases 1–2 are asked for by name, records of 3–5 by `files`."""
        gone = phase in self._gone and phase in PHASES[:2]
        return self.path / "replaced" / "nothing" if gone else super().folder(phase)

    def files(self, phase: str) -> list[Path]:
        found = super().files(phase)
        return [path for path in found if path in self._staying] if phase in self._gone else found


def cleared(config: Config, folder: RunDir) -> Cleared:
    return Cleared(folder.path, _new_phases(config), item_files(config, folder))


def give_way(config: Config, folder: RunDir) -> Path | None:
    """Move what New phases hold to ``replaced/<UTC time>/``; where it is then, or None if they hold nothing.

    The account of the run (``meta.json``, its errors and configurations) goes along. Where other phases
    hold anything, what is known of them stays: their recipes, and what they took over.
    """
    gone = _new_phases(config)
    move = [path for phase in gone for path in _artifacts(config, folder, phase)]
    if not move:
        return None
    move += [folder.meta, folder.errors]
    account = [folder.recipes, folder.inherited]
    if any(folder.holds(phase) for phase in PHASES if phase not in gone):
        moved = move_to_replaced(folder, move, [folder.config, *account])
        if folder.inherited.exists():
            left = [name for name in inherited_by(folder) if name.phase not in gone]
            write_inherited(folder, left)
        return moved
    return move_to_replaced(
        folder, [*move, *account, *sorted(folder.path.glob("config*.yaml")), folder.repaired]
    )


def _new_phases(config: Config) -> list[Phase]:
    return [phase for phase in PHASES if config.experiment.mode(phase) == "New"]


def _artifacts(config: Config, folder: RunDir, phase: Phase) -> Iterator[Path]:
    """The phase's folder; where it holds items of one's own, all that it holds beside them."""
    held = sorted(folder.folder(phase).iterdir()) if folder.holds(phase) else []
    staying = item_files(config, folder).keys() & set(held)
    if held and not staying:
        yield folder.folder(phase)
    else:
        yield from (path for path in held if path not in staying)
