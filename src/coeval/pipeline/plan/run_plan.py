"""What a run is to hold, and what of it is owed: owed = planned − recorded.

`survey` walks a whole plan to count it, `river` to do what is owed; both ask the plan, and so agree.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from typing import NamedTuple

from coeval.core.ids import item_id, item_prefix, parent_id
from coeval.core.records import EXACT_MATCH
from coeval.pipeline.config.schema import Mode, Phase
from coeval.pipeline.plan.recipes import label_recipe
from coeval.pipeline.plan.record_status import EvaluationStandings, Standings
from coeval.pipeline.plan.recorded import Entry, EvaluationEntry, Grain, Recorded, Stance
from coeval.pipeline.plan.task_setup import Part, Scene
from coeval.store.journal import Index

FLOWING: tuple[Phase, ...] = ("data_generation", "response_collection", "evaluation")
"""The phases that overlap; 1–2 come before them."""
FED_BY: Mapping[str, str] = {
    "response_collection": "data_generation",
    "evaluation": "response_collection",
}
"""Phase → the one whose records its own are made from, while they overlap."""


class Slot(NamedTuple):
    """An item of the plan: ``n`` counts from 1; ``teacher`` is None for items that are used as they lie."""

    id: str
    n: int
    teacher: Part | None
    teacher_name: str


class Plan:
    """The planned records of phases 3–5, held against what is recorded.

    ``only`` names the models whose work is to be done (``--only-models``); what no named model
    takes part in is neither done nor counted. ``renewed`` holds the ids of items and responses that
    an earlier phase of this run has made anew: nothing that followed from them stands.
    """

    def __init__(
        self,
        scenes: Sequence[Scene],
        recorded: Recorded,
        modes: Mapping[Phase, Mode],
        stance: Stance,
        only: frozenset[str] | None = None,
        renewed: Set[str] = frozenset(),
    ) -> None:
        self.scenes = scenes
        self.renewed = renewed
        self.recorded = recorded
        self.stance = stance
        self._only = only
        self._index: dict[Phase, Index[Entry] | Index[EvaluationEntry]] = {
            "data_generation": recorded.items,
            "response_collection": recorded.responses,
            "evaluation": recorded.evaluations,
        }
        self._grain = {phase: Grain(phase, modes[phase], self._index[phase]) for phase in FLOWING}
        self._as_it_is = {phase for phase in FLOWING if modes[phase] in ("Keep", "Model")}
        self._standings: dict[tuple[Phase, str, str], Standings] = {}

    @property
    def selective(self) -> bool:
        """Whether work is left out by its models' names or by a mode, so that each id has to be asked for."""
        return self._only is not None or bool(self._as_it_is)

    def takes_part(self, *models: str) -> bool:
        return self._only is None or not self._only.isdisjoint(models)

    # --- items -------------------------------------------------------------------------------

    def slots(self, scene: Scene) -> Iterator[Slot]:
        """The items of a task: its teachers take turns, so that all of them are busy."""
        name, total = scene.task.name, scene.task.sampling.total
        standing = self._standing_teachers(scene)
        for source in (*scene.sources, *standing):
            ids = list(self.recorded.by_teacher.get((name, source), ()))
            for n, key in enumerate(ids[:total] if source in scene.sources else ids, 1):
                yield Slot(key, n, None, source)
        teachers = [teacher for teacher in scene.teachers if teacher.name not in standing]
        for n in range(1, total + 1):
            for teacher in teachers:
                yield Slot(item_id(name, teacher.name, n), n, teacher, teacher.name)

    def unsupplied(self, scene: Scene) -> dict[str, int]:
        """How many items of a task each of its benchmark teachers has yet to supply."""
        name, total = scene.task.name, scene.task.sampling.total
        there = {s: len(self.recorded.by_teacher.get((name, s), ())) for s in scene.sources}
        return {s: max(0, total - count) for s, count in there.items() if self.takes_part(s)}

    def _standing_teachers(self, scene: Scene) -> list[str]:
        """Teachers whose items are used as they lie on disk: where the mode says that the items are
        left as they are, or where the configuration names no teacher for the task."""
        recorded = [t for task, t in self.recorded.by_teacher if task == scene.task.name]
        grain = self._grain["data_generation"]
        if scene.teachers or scene.sources:
            return [
                t
                for t in recorded
                if grain.leaves(item_prefix(scene.task.name, t)) and t not in scene.sources
            ]
        return recorded

    def asked_for(self, phase: Phase, key: str, *models: str) -> bool:
        """Whether names and modes leave the record ``key``, in which ``models`` take part, to this run."""
        return self.takes_part(*models) and not self._grain[phase].leaves(key)

    def owes_item(self, scene: Scene, slot: Slot) -> bool:
        """Whether the item is to be made (again)."""
        teacher = slot.teacher
        if teacher is None or not self.asked_for("data_generation", slot.id, teacher.name):
            return False
        return self.standings("data_generation", scene, teacher)[self.recorded.items.get(slot.id)].owed

    def has_item(self, slot: Slot) -> bool:
        """Whether a good item is there to be answered as it is."""
        entry = self.recorded.items.get(slot.id)
        return (entry is not None and entry.good) or slot.id in self.recorded.assumed

    # --- responses and evaluations -----------------------------------------------------------

    def owes_response(self, key: str, scene: Scene, slot: Slot, student: Part, *, renewed: bool) -> bool:
        """``renewed``: the item is new in this run, so nothing recorded answers it."""
        if not self.asked_for("response_collection", key, slot.teacher_name, student.name):
            return False
        renewed = renewed or self.unanswered(slot.id, key)
        entry = None if renewed else self.recorded.responses.get(key)
        return self.standings("response_collection", scene, student)[entry].owed

    def unanswered(self, item: str, response: str) -> bool:
        """Whether an earlier phase of this run has made the item anew, and not its response."""
        return item in self.renewed and response not in self.renewed

    def has_response(self, key: str) -> bool:
        entry = self.recorded.responses.get(key)
        return entry is not None and entry.good

    def owed_factors(
        self, key: str, scene: Scene, names: tuple[str, str], judge: Part, *, renewed: bool
    ) -> tuple[str, ...]:
        """The factors to be asked of a judge; ``names`` are the teacher and the student."""
        if not self.asked_for("evaluation", key, *names, judge.name):
            return ()
        entry = self._judged(key, renewed=renewed)
        return self.standings("evaluation", scene, judge)[entry].factors

    def _judged(self, key: str, *, renewed: bool) -> EvaluationEntry | None:
        """The recorded evaluation, unless what it judged has been made anew."""
        if renewed or (self.renewed and parent_id(key) in self.renewed):
            return None
        return self.recorded.evaluations.get(key)

    def completes(self, key: str, judge: Part, *, renewed: bool) -> bool:
        """Whether what the judge gave before stays, so that only what it lacks is asked for."""
        entry = self._judged(key, renewed=renewed)
        if entry is None or not entry.good:
            return False
        return self.stance is not Stance.REDO or not entry.change(judge.recipe.hash)

    def owes_labels(self, key: str, scene: Scene, names: tuple[str, str], *, renewed: bool) -> bool:
        if not self.asked_for("evaluation", key, *names, EXACT_MATCH):
            return False
        entry = self._judged(key, renewed=renewed)
        if entry is None or not entry.good:
            return True
        # comparing costs nothing: what no longer stands is compared again without being asked
        redone = self.stance is Stance.REDO or not self._accepts("evaluation")
        return redone and bool(entry.change(label_recipe(scene.labels)))

    def standings(self, phase: Phase, scene: Scene, part: Part) -> Standings:
        """Those of what ``part`` makes in a phase of a task; `asked_for` is apart from them."""
        place = (phase, scene.task.name, part.name)
        known = self._standings.get(place)
        if known is None:
            kind = EvaluationStandings if phase == "evaluation" else Standings
            known = self._standings[place] = kind(
                phase, scene, part, redo=self.stance is Stance.REDO, accepts=self._accepts(phase)
            )
        return known

    def _accepts(self, phase: Phase) -> bool:
        """Whether good records of another configuration are taken as they are."""
        return self.stance is Stance.KEEP or phase in self._as_it_is
