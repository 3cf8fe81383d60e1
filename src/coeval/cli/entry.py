"""The doors of the two commands: they load next to nothing, so that Ctrl-C is answered from the start."""

from __future__ import annotations

import gc
import sys
from importlib import import_module


def coeval() -> None:
    """``coeval``"""
    _enter("coeval.cli.main")


def eval_framework() -> None:
    """``eval-framework``"""
    _enter("coeval.cli.eval_framework.command")


def _enter(module: str) -> None:
    gc.set_threshold(50_000, 20, 100)  # at the usual one collecting is a fifth of all work, and finds nothing
    try:
        import_module(module).main()
    except KeyboardInterrupt:  # while the command is loaded, or after its last word
        print("Interrupted; what was finished is on disk.", file=sys.stderr)
        raise SystemExit(130) from None
