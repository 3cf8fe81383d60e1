"""Entry points of the two commands. They load almost nothing, so that Ctrl-C is handled from the start."""

from __future__ import annotations

import gc
import os
import sys

_interruptions: list[int] = []


def coeval() -> None:
    """Run ``coeval``."""
    _run_main("coeval.cli.main")


def eval_framework() -> None:
    """Run ``eval-framework``."""
    _run_main("coeval.cli.eval_framework.command")


def was_interrupted() -> bool:
    """Check whether Ctrl-C was pressed. Libraries turn KeyboardInterrupt into other exceptions: an import
    into ImportError, DuckDB into RuntimeError."""
    return bool(_interruptions)


def remember_and_raise_interrupt(number: int, _: object) -> None:
    """Handle SIGINT as Python does, and remember it."""
    _interruptions.append(number)
    raise KeyboardInterrupt


def _run_main(module: str) -> None:
    """Import a command's module and run its ``main``; a Ctrl-C at any moment ends with code 130."""
    try:
        import signal  # here, as all that is loaded from a file: before, a Ctrl-C is Python's to report
        from importlib import import_module

        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, remember_and_raise_interrupt)
        # Loading a command makes 200,000 objects that stay: at the usual thresholds looking through them
        # again and again is a tenth of a small run's CPU, and finds nothing.
        gc.set_threshold(500_000, 20, 100)
        # Products of matrices are small here, and OpenBLAS' other threads spin while they wait for the next:
        # 0.25 of the 1.2 s of CPU of `coeval analyze` on two cores, more on more.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        try:
            import_module(module).main()
        except SystemExit as end:
            _exit_fast_unless_unsafe(end.code)
            raise
    except BaseException as error:
        if isinstance(error, SystemExit) or not (was_interrupted() or isinstance(error, KeyboardInterrupt)):
            raise
        print("Interrupted; finished work is on disk.", file=sys.stderr)
        raise SystemExit(130) from None


def _exit_fast_unless_unsafe(code: object) -> None:
    """End the process without Python's teardown, which is a quarter of a small run's CPU (0.18 s). Exit
    functions run first. Returns, and leaves the exit to Python, if a thread must end first or a stream
    cannot be flushed."""
    import atexit
    import threading

    others = (thread for thread in threading.enumerate() if thread is not threading.main_thread())
    if not (code is None or isinstance(code, int)) or not all(thread.daemon for thread in others):
        return
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (AttributeError, OSError, ValueError):  # there is none, or nobody reads it, or it is closed
        return
    os._exit(code or 0)
