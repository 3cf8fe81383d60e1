"""The doors of the two commands: they load next to nothing, so that Ctrl-C is answered from the start."""

from __future__ import annotations

import gc
import sys

from coeval.cli.starting import INTERRUPTED


def coeval() -> None:
    """``coeval``"""
    _enter("coeval.cli.main")


def eval_framework() -> None:
    """``eval-framework``"""
    _enter("coeval.cli.eval_framework.command")


def _enter(module: str) -> None:
    gc.set_threshold(50_000, 20, 100)  # at the usual one collecting is a fifth of all work, and finds nothing
    try:
        from coeval.cli.starting import end_quietly, nothing_begun

        with nothing_begun():
            from importlib import import_module

            try:
                import_module(module).main()
            finally:
                end_quietly()
    except KeyboardInterrupt:  # before there was a handler that says more, or after all was said
        print("Interrupted.", file=sys.stderr)
        raise SystemExit(INTERRUPTED) from None
