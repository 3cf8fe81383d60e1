"""Which records a phase's mode leaves as they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from coeval.core.ids import id_fields
from coeval.pipeline.config.schema import Mode, Phase


class Grain:
    """Which combinations a phase's mode leaves as they are: those with any record (semantics §3)."""

    _FIELDS: Mapping[str, tuple[int, ...]] = {
        # ids are task__teacher__n__student__judge: the places that name a combination
        "data_generation": (0, 1),
        "response_collection": (0, -1),
        "evaluation": (0, -2, -1),
    }

    def __init__(self, phase: Phase, mode: Mode, ids: Iterable[str]) -> None:
        self._places = {"Keep": (0,), "Model": self._FIELDS[phase]}.get(mode, ())
        self._left = {self._combination(id_fields(key)) for key in ids} if self._places else set()

    def _combination(self, fields: list[str]) -> tuple[str, ...]:
        return tuple(fields[place] for place in self._places)

    def leaves(self, key: str) -> bool:
        """Whether the record ``key``, present or not, belongs to a combination left as it is."""
        return bool(self._left) and self._combination(id_fields(key)) in self._left
