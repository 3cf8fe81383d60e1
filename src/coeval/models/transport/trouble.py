"""What is told of an endpoint while requests wait there."""

from __future__ import annotations

from coeval.core.options import TIMEOUT
from coeval.core.secrets.shown_url import shown_url
from coeval.core.text import numbered
from coeval.models.transport.endpoint import Endpoint

__all__ = ["told_of"]

TOLD_AFTER_S = 3.0
"""Nothing but failures for so long is worth a line to whoever waits."""

SILENT_AFTER_S = 30.0
"""A host that keeps requests for so long and answers none is worth one, too: most answer within it."""


def told_of(endpoint: Endpoint, now: float) -> str | None:
    """A sentence on an endpoint that gives nothing but failures, or nothing at all; None of any other."""
    trouble, silence = endpoint.trouble, endpoint.silence(now)
    if trouble is not None and now - trouble.began >= TOLD_AFTER_S:
        return f"nothing but failures for {now - trouble.began:.0f} s, trying again: {trouble.reason}"
    if silence is None or silence.seconds < SILENT_AFTER_S:
        return None
    return (
        f"{shown_url(endpoint.url)} has answered nothing for {silence.seconds:.0f} s; "
        f"{numbered(silence.requests, 'request')} waiting there, each given up after "
        f"{silence.timeout_s:g} s{'' if silence.probe else f' ({TIMEOUT})'}"
    )
