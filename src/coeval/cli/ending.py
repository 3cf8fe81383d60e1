"""The one place where an error becomes a message and an exit code, for every command."""

from __future__ import annotations

import io
import logging
import os
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress

from coeval.cli.entry import was_interrupted
from coeval.core.errors import (
    INTERRUPTED,
    UNAVAILABLE,
    CoevalError,
    ModelUnavailable,
    UsageError,
    describe_error,
)
from coeval.core.options import Frontend, word_messages_for
from coeval.core.plain import cut_middle, escape_line, escape_lines

# --- Warnings without a log


class WarningHandler(logging.Handler):
    """Prints log records that no other handler takes, in the form of all other warnings."""

    def emit(self, record: logging.LogRecord) -> None:
        from coeval.cli import streams  # here, because most commands have nothing to warn of
        from coeval.cli.streams import warn

        warn(streams.messages(), record.getMessage())


def show_log_warnings() -> None:
    logging.lastResort = WarningHandler(logging.WARNING)


# Long enough for any real path's end; a crafted one does not flood the terminal.
_LONGEST_NAME = 200
_MAY_EXIT = ("coeval", "typer", "click")
ALL_SAVED = "Interrupted; finished work is on disk."


def run_to_exit(command_line: Callable[[], object], frontend: Frontend) -> None:
    """Run a command line whose messages speak as ``face``; always raise SystemExit. Exit codes: 0 done, 1
    usage error, 2 a model is unavailable, 3 gaps remain, 4 a comparison failed its threshold, 130
    interrupted."""
    _repair_standard_streams_and_encoding()
    show_log_warnings()
    end = SystemExit(0)
    try:
        _run_and_exit_with_code(command_line, frontend)
    except SystemExit as raised:
        end = raised
    if (unwritten := _flush_streams_ignoring_gone_reader()) is not None and not end.code:
        end = SystemExit(_print_system_error(unwritten))
    raise end


def _run_and_exit_with_code(command_line: Callable[[], object], frontend: Frontend) -> None:
    """Run the command line, and turn whatever ends it into SystemExit with our exit code."""
    try:
        with word_messages_for(frontend):
            command_line()
    except SystemExit as end:
        if (interruption := _find_interruption(end)) is not None:
            raise SystemExit(_print_interruption(interruption)) from None
        if isinstance(end.__context__, BrokenPipeError):  # of which Typer has made an exit code as well
            raise SystemExit(0) from None
        if (culprit := _find_foreign_exiting_module(end)) is not None:  # its code 0 would pass for success
            message = f"{culprit} ended the command ({describe_error(end)}); correct or remove that package"
            raise SystemExit(_print_message(UsageError(message), 1)) from None
        # Usage errors are 2 to the argument parser; here 2 means that a model, or a server, is unavailable.
        by_command = type(end.__context__).__name__ == "Exit"
        raise SystemExit(1 if end.code == 2 and not by_command else end.code) from None
    except KeyboardInterrupt as interruption:
        raise SystemExit(_print_interruption(interruption)) from None
    except BaseException as error:  # noqa: BLE001  the other of the two: the process
        raise SystemExit(_print_failure(error)) from None


def _print_failure(error: BaseException) -> int:
    """Print the error that ended the command; return its exit code."""
    caused_by_ctrl_c = isinstance(error.__cause__, KeyboardInterrupt) and not isinstance(error, CoevalError)
    if was_interrupted() or caused_by_ctrl_c:
        return _print_interruption(KeyboardInterrupt())  # of which a library made another exception
    match error:
        case CoevalError():
            return _print_message(error, UNAVAILABLE if isinstance(error, ModelUnavailable) else 1)
        case OSError():  # the files of a run raise StoreError: this is the terminal's, or a pipe's
            return _print_system_error(error)
        case MemoryError():
            print("out of memory; raise this process's limit (ulimit -v)", file=sys.stderr)
            return 1
        case _:
            return _print_message(error, 1, prefix="internal error: ")


def _repair_standard_streams_and_encoding() -> None:
    """Ensure that all three standard streams are open, and that none fails at a character it cannot show. A
    daemon may start us without them; the event loop would take their numbers for its own."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _flush_streams_ignoring_gone_reader() -> OSError | None:
    """Flush both output streams; return why that failed, None if only the reader is gone."""
    failure = None
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:  # it may have been closed before we began
                stream.flush()
        except OSError as error:
            from coeval.cli.streams import discard_stream  # here, because most commands end without

            discard_stream(stream)
            failure = failure if isinstance(error, BrokenPipeError) else error
    return failure


def _find_interruption(end: SystemExit) -> KeyboardInterrupt | None:
    """Return the KeyboardInterrupt that Typer turned into an exit code, if any."""
    cause = end.__context__.__cause__ if end.__context__ is not None else None
    return cause if isinstance(cause, KeyboardInterrupt) else None


def _find_foreign_exiting_module(end: SystemExit) -> str | None:
    """Return the module that raised SystemExit, None if it is ours or the argument parser."""
    raised = end.__traceback__
    while raised is not None and raised.tb_next is not None:
        raised = raised.tb_next
    module = "" if raised is None else str(raised.tb_frame.f_globals.get("__name__", ""))
    return module if module and module.partition(".")[0] not in _MAY_EXIT else None


def _print_interruption(interruption: KeyboardInterrupt) -> int:
    """Print the interruption's own message, or that finished work is saved."""
    _print_folded_to_stderr(str(interruption) or ALL_SAVED)
    return INTERRUPTED


def _print_message(error: BaseException, code: int, prefix: str = "") -> int:
    """Print one message without a traceback; ``--log-level DEBUG`` shows the traceback."""
    if logging.getLogger("coeval").isEnabledFor(logging.DEBUG):
        trace = "".join(traceback.format_exception(error))
        print(escape_lines(redact_key_like_words(trace)), file=sys.stderr)
    else:
        text = escape_lines(redact_key_like_words(str(error))) or type(error).__name__
        hint = "\nRun again with --log-level DEBUG for the traceback." if prefix else ""
        _print_folded_to_stderr(f"{prefix}{text}{hint}")
    return code


def _print_system_error(error: OSError) -> int:
    named = ""
    if isinstance(error.filename, str):
        named = f" {cut_middle(escape_line(redact_key_like_words(error.filename)), _LONGEST_NAME)}"
    print(f"cannot write or read{named}: {escape_lines(error.strerror or str(error))}", file=sys.stderr)
    return 1


def redact_key_like_words(text: str) -> str:
    """Redact what looks like a key: one may have been typed in the place of a name, a file or a flag."""
    from coeval.core.redaction import Redactor  # here, because most commands end without

    return Redactor().redact_message(text)


def _print_folded_to_stderr(text: str) -> None:
    """Print on standard error; on a terminal, folded between words."""
    if sys.stderr.isatty():
        from coeval.core.folding import wrap_lines  # here, because most commands end without

        with suppress(OSError):
            text = "\n".join(wrap_lines(text, os.get_terminal_size(sys.stderr.fileno()).columns or 80))
    print(text, file=sys.stderr)
