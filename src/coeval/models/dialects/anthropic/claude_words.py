"""What the Messages API and Bedrock's Converse have in common: Converse took it over with Claude."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["FINISH", "REDACTED_THINKING", "TOOL_DESCRIPTION"]

REDACTED_THINKING = "[a part of the reasoning is withheld by the provider]"

FINISH: Mapping[str | None, str] = {
    None: "stop",
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
}
"""Ours for their stop reasons; the rest stays as it came."""

TOOL_DESCRIPTION = "Give the answer, in the form that is asked for."
"""Of the tool that has to be called where a schema is followed in no other way."""
