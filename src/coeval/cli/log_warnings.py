"""Warnings that are only logged: shown as what they are while there is no log to take them."""

from __future__ import annotations

import logging


class WarningHandler(logging.Handler):
    """Python's way out for records that no handler takes, in the form of all other warnings."""

    def emit(self, record: logging.LogRecord) -> None:
        from coeval.cli import streams  # here, because most commands have nothing to warn of
        from coeval.cli.say import warn

        warn(streams.messages(), record.getMessage())


def show_log_warnings() -> None:
    logging.lastResort = WarningHandler(logging.WARNING)
