"""The command line as its own tests call it."""

from __future__ import annotations

from cli.conftest import coeval

__all__ = ["coeval"]
