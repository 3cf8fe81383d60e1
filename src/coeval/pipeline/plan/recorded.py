"""What the run folder holds of phases 3–5, and whether each record still stands.

A record stands when it is good, was made by the recipe that would make it now, and from the
content that is there now. What to do with one that does not is the `Stance` of the run. But one that was
made from an earlier record of its item or answer (which has been made anew since, and the run ended before
anything could follow) is not good, whatever the stance: it is about something else. That is decided by
content and by the order of lines, never by times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from enum import Enum
from pathlib import Path

from coeval.analysis.empty_answers import EmptyAnswers
from coeval.core.ids import item_id, maker
from coeval.pipeline.config.schema import PHASES, Phase
from coeval.pipeline.plan.reading.record_indexes import RecordIndexes
from coeval.pipeline.plan.reading.record_notes import RecordNotes
from coeval.pipeline.plan.record_entry import Entry, EvaluationEntry
from coeval.store.record_files import NO_LINES, NOTHING
from coeval.store.record_index import PhaseIndex
from coeval.store.record_parts import EvaluationPart, ItemPart, ResponsePart
from coeval.store.rundir import RunDir


class Stance(Enum):
    """What a run does with good records of another configuration, or made from other content.

    ``TELL`` is for whoever only looks: they stand, as with ``KEEP``, and are named, as with ``REFUSE``.
    """

    REFUSE = "refuse"
    REDO = "redo"
    KEEP = "keep"
    TELL = "tell"


def tried_before(index: PhaseIndex[Entry] | PhaseIndex[EvaluationEntry], key: str) -> int:
    """The askings that all records of an id count; the seed of the next one depends on it."""
    entry = index.get(key)
    return 0 if entry is None else max(index.asked_in_vain(key), entry.attempts)


class MadeFrom(Enum):
    """What a record was made from, as it is now."""

    STANDS = "stands"
    """It is the one on record."""
    LOST = "lost"
    """There was none, or no good one, and it was made in this run. What is recorded counts where it was made
    from the same content."""
    REDONE = "redone"
    """A good one was made again. Whoever wants that wants what follows from it anew, too."""


def made_from(index: PhaseIndex[Entry], key: str) -> MadeFrom:
    """What a record that was made now is to those that follow from it."""
    entry = index.get(key)
    return MadeFrom.REDONE if entry is not None and entry.good else MadeFrom.LOST


def outdated(
    source: MadeFrom,
    index: PhaseIndex[Entry] | PhaseIndex[EvaluationEntry],
    key: str,
    kind: type[ResponsePart | EvaluationPart],
    content: Callable[[], str],
) -> bool:
    """Whether the record ``key``, if there is one, was made from something else than ``content()``, which is
    the ``input_hash`` of one made now; nothing is read where its ``source`` answers that."""
    if source is MadeFrom.STANDS:
        return False
    entry = index.get(key)
    if source is MadeFrom.REDONE or entry is None or not entry.good:
        return True
    return index.load(key, kind).input_hash != content()


class Recorded(RecordIndexes):
    """What files hold, each phase read after those before it."""

    def __init__(self) -> None:
        super().__init__()
        self.assumed: set[str] = set()
        """Items that a count takes to be there, though nobody has supplied them yet."""

    def read(
        self,
        folder: RunDir,
        phases: Iterable[Phase] = PHASES[2:],
        without: Mapping[Path, Collection[int]] = NOTHING,
        supplied: Mapping[Path, list[bytes]] = NO_LINES,
    ) -> Recorded:
        """Take in what the folder holds of these phases; ``without`` names lines to leave out, by offset.

        ``supplied`` are items as they are to stand in files that do not hold them so yet, or are not there.
        """
        notes, wanted = RecordNotes(self), set(phases)
        if "data_generation" in wanted:
            there, place = folder.files("data_generation"), folder.folder("data_generation")
            files = [*there, *(path for path in supplied if path not in there and path.parent == place)]
            notes.items(self.items.files.lines(files, ItemPart, without, supplied))
        if "response_collection" in wanted:
            answers = folder.files("response_collection")
            notes.responses(self.responses.files.lines(answers, ResponsePart, without))
        if "evaluation" in wanted:
            verdicts = folder.files("evaluation")
            notes.evaluations(self.evaluations.files.lines(verdicts, EvaluationPart, without))
        return self

    def assume_items(self, task: str, teacher: str, total: int) -> None:
        """Count ``total`` items of a benchmark teacher that supplies none yet."""
        if (task, teacher) not in self.by_teacher:
            ids = [item_id(task, teacher, n) for n in range(1, total + 1)]
            self.by_teacher[task, teacher] = {key: {} for key in ids}
            self.assumed.update(ids)

    def empty_answers(self) -> list[EmptyAnswers]:
        """Of each student, how many of its good answers hold nothing."""
        found = []
        for end, column in self.responses.columns.items():
            good = [entry for entry in column.entries.values() if entry.good]
            empty = Counter(entry.empty for entry in good if entry.empty)
            if good:
                found.append(EmptyAnswers(maker(end), empty.total(), empty["truncated"], len(good)))
        return found
