"""Whether judges give reasons: by default where the limits on their answers leave room for them (V-43)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from coeval.core.model import answer_limits
from coeval.core.text import numbered
from coeval.pipeline.config.schema import Config, ModelConfig, TaskConfig

# A reason of 25 words and its level take about 60 tokens.
TOKENS_PER_FACTOR = 60


class Reasons(NamedTuple):
    """Whether judges of a task give reasons. ``stated``: what the file says, None where nothing;
    ``factors``: on how many a reply does; ``limits``: judge → its limit on an answer, where it has one."""

    stated: bool | None
    factors: int
    limits: Mapping[str, int]

    @property
    def given(self) -> bool:
        return not self.lacking if self.stated is None else self.stated

    @property
    def lacking(self) -> str:
        """What limits are too small for, and the one that is not; empty where there is room."""
        needed = TOKENS_PER_FACTOR * self.factors
        cramped = [f"{judge} {limit:,}" for judge, limit in self.limits.items() if limit < needed]
        if not cramped:
            return ""
        return (
            f"reasons for {numbered(self.factors, 'factor')} take about {needed:,} tokens a reply, and "
            f"max_tokens allows fewer ({', '.join(cramped)}); set it to {needed} or more"
        )


def reasons_of(config: Config, task: TaskConfig, factors: int) -> Reasons:
    """Return whether judges are asked for reasons on so many factors that they score."""
    at_once = factors if task.way_of_judging == "single" else 1
    limits = {j.name: limit for j in config.with_role("judge") if (limit := _limit(j)) is not None}
    return Reasons(task.rationale, at_once, limits)


def with_reasons(config: Config, task: TaskConfig, factors: int) -> TaskConfig:
    """Return the task with its ``rationale`` settled."""
    return task.model_copy(update={"rationale": reasons_of(config, task, factors).given})


def _limit(judge: ModelConfig) -> int | None:
    """The least limit on its answers that the user set, by any host's name; None where there is none."""
    limits = (limit for _, limit in answer_limits(judge.parameters | judge.role_parameters.get("judge", {})))
    return min((limit for limit in limits if type(limit) is int and limit > 0), default=None)
