"""What every record says of its making, when it succeeded and when it failed."""

from __future__ import annotations

from typing import Any

from coeval.core.errors import CoevalError, named
from coeval.core.records import Failure
from coeval.engine.work import Tally

_MESSAGE = 2_000


def made(tally: Tally, tried: int) -> dict[str, Any]:
    """The common fields of a record that was answered; ``tried`` counts earlier runs' askings."""
    fields: dict[str, Any] = {"usage": tally.usage, "attempts": tried + tally.attempts}
    if (last := tally.last) is not None:
        fields |= {
            "latency_s": round(last.latency_s, 4),
            "finish_reason": last.finish_reason,
            "reasoning": last.reasoning,
            "truncated": last.truncated,
            "dropped": last.dropped,
        }
    return fields


def failure(error: Exception, tally: Tally, tried: int) -> dict[str, Any]:
    """The common fields of a record that failed: what it cost, the reason, and no invented value."""
    kind, message = (error.kind, str(error)) if isinstance(error, CoevalError) else ("internal", named(error))
    reason = Failure(kind, message[:_MESSAGE] or type(error).__name__)
    return made(tally, tried) | {"status": "failed", "error": reason}
