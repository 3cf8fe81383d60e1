"""What the message of a bug of ours recommends is understood by every command."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from cli.invoked import Command
from typer.core import TyperGroup

from coeval.cli.eval_framework.command import make_app
from coeval.cli.main import app


def commands() -> Iterator[tuple[str, ...]]:
    """The words that call each command that is shown."""
    whole = typer.main.get_command(app)
    assert isinstance(whole, TyperGroup)
    for name, command in whole.commands.items():
        if command.hidden:
            continue
        below = command.commands if isinstance(command, TyperGroup) else {}
        yield from ((name, each) for each in below) if below else [(name,)]


def test_every_command_takes_a_log_level(here: Path, coeval: Command) -> None:
    words = list(commands())
    assert ("run",) in words
    assert ("view",) in words
    assert ("datasets", "list") in words
    for command in words:
        for level in ("DEBUG", "INFO"):
            ended = coeval(*command, "--log-level", level, "--help")
            assert ended.code == 0, (command, ended.err)
        refused = coeval(*command, "--log-level", "LOUD")
        assert refused.code == 1, command
        assert "'DEBUG', 'INFO', 'WARNING', 'ERROR'" in refused.err, (command, refused.err)
    shown = typer.main.get_command(make_app())
    assert any("--log-level" in parameter.opts for parameter in shown.params)


def test_a_bug_is_traced_by_a_command_that_has_no_log(
    here: Path, coeval: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("what nobody thought of")

    monkeypatch.setattr("coeval.pipeline.existing_run.existing_results", broken)
    quiet = coeval("results", "--run", here)
    assert "internal error" in quiet.err
    assert "Traceback" not in quiet.err
    assert "--log-level DEBUG" in quiet.err
    assert "Traceback" in coeval("results", "--run", here, "--log-level", "DEBUG").err
