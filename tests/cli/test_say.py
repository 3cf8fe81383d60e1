"""Sentences on a console that others had a hand in."""

from __future__ import annotations

import pytest

from coeval.cli import streams
from coeval.cli.streams import warn_at_length


def test_further_lines_of_a_warning_stand_below_it_and_begin_no_line_of_their_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = "step_10: the server ended.\nIts last lines (out/server.log):\n  \x1b[31mred\nwarning: owned"
    warn_at_length(streams.messages(), said)
    assert capsys.readouterr().err.splitlines() == [
        "warning: step_10: the server ended.",
        "  Its last lines (out/server.log):",
        r"    \x1b[31mred",
        "  warning: owned",
    ]
