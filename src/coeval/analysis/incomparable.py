"""Benchmark figures that are not comparable with published ones: which, why, and what would change that."""

from __future__ import annotations

import re
from typing import NamedTuple

_NOT_COMPARABLE = re.compile(r"(.+) is not comparable with (.+?): (.+)", re.DOTALL)
_REMEDIES = (
    (r"\(--max-examples\)", "without --max-examples"),
    (r"published numbers are by ([^\s,;]+)(?=;|$)", r"--judge-model \1"),
    (r"name a judge with (--judge-model)", r"\1"),
    (r"([^\s/;]+)\S* is not the file that is published", r"coeval datasets fetch \1"),
    (r"NLTK data is not there", "coeval datasets fetch nltk"),
    (r"\bcame from\b", "the gateway's fallbacks turned off, or `base_model` set to that name"),
    (r"cut off at max_tokens", "a larger --max-tokens"),
    (r"cut off by the server's window", "a larger --max-model-len"),
    (r"records without a value", "the same command again"),
)


OTHER_MODELS = "other models"


class Incomparable(NamedTuple):
    """Figures of a task that are not comparable with published ones, or others ``with_what``, and why; with
    `OTHER_MODELS`, ``task`` is a model."""

    task: str
    with_what: str
    why: str

    @classmethod
    def of(cls, note: str) -> Incomparable | None:
        """Read a sentence; None where it says something else."""
        found = _NOT_COMPARABLE.fullmatch(note)
        return None if found is None else cls(*found.groups())

    @property
    def sentence(self) -> str:
        return f"{self.task} is not comparable with {self.with_what}: {self.why}"

    @property
    def remedy(self) -> str:
        """The options or commands that would change it, as far as there are any."""
        found = (one.expand(way) for says, way in _REMEDIES if (one := re.search(says, self.why)) is not None)
        return ", ".join(dict.fromkeys(found))

    @property
    def shown_why(self) -> str:
        """Without the folders of files."""
        return re.sub(r"(?<=: )/[^;]*/", "", self.why)
