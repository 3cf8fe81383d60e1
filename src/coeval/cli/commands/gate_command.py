"""`coeval gate`: decides whether a candidate may replace a base, for continuous integration."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from coeval.analysis.comparison.noninferiority import GateReport
from coeval.api import gate as gate_folders
from coeval.cli import streams
from coeval.cli.command_names import AsJson, ComparedStudents, split_names
from coeval.cli.settings_flags import GroupedCommand
from coeval.cli.views.gate_view import gate_markdown, junit_xml, print_gate
from coeval.cli.views.results_view import write_json
from coeval.core.errors import StoreError, UsageError
from coeval.store.jsonl import write_bytes_atomic

# What `--markdown` alone stands for, as in most Unix tools.
_STANDARD_OUTPUT = "-"
# The file that GitHub shows below a run of a workflow.
_STEP_SUMMARY = "GITHUB_STEP_SUMMARY"


class GateCommand(GroupedCommand):
    """A command whose ``--markdown`` works without a file name."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        for at, word in reversed([*enumerate(args)]):
            after = args[at + 1] if at + 1 < len(args) else "--"
            alone = after != _STANDARD_OUTPUT and (after.startswith("-") or Path(after).is_dir())
            if word == "--markdown" and alone:
                args.insert(at + 1, _STANDARD_OUTPUT)
        return super().parse_args(ctx, args)


KIND = GateCommand


def gate(
    folders: Annotated[
        list[Path],
        typer.Argument(
            metavar="BASE CANDIDATE …",
            help="Folders of runs or of eval-framework; for one run, name both with --students.",
        ),
    ],
    policy: Annotated[
        Path,
        typer.Option(
            metavar="FILE", help="The policy: how much each task may lose. Example: --policy gate.yaml"
        ),
    ],
    students: ComparedStudents = None,
    junit: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write the verdicts as JUnit XML.")
    ] = None,
    as_markdown: Annotated[
        Path | None,
        typer.Option(
            "--markdown",
            metavar="[FILE]",
            help="Write Markdown to FILE (default: standard output), and append it to the file that "
            f"${_STEP_SUMMARY} names.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Decide whether a candidate may replace a base: GO or NO-GO.

    GO: each critical task is shown to lose no more than the policy allows.
    INCONCLUSIVE says how many items would decide. Different items, judges or
    recipes, a missing task or a side without scores are never GO. No model is
    called. docs/gate.md shows a policy and explains the rule.

    Exit codes: 0 GO, 1 usage error, 3 INCONCLUSIVE, 4 NO-GO.

    \b
    Examples:
      coeval gate ./outputs/base ./outputs/tuned --policy gate.yaml
      coeval gate ./runs/support --students incumbent,candidate --policy gate.yaml
      coeval gate ./outputs/base ./outputs/tuned --policy gate.yaml --junit gate.xml --markdown
    """
    on_output = as_markdown is not None and str(as_markdown) == _STANDARD_OUTPUT
    if as_json and on_output:
        raise UsageError("--json and --markdown both write to standard output; give --markdown a file")
    report = gate_folders(*folders, policy=policy, students=split_names(students))

    if junit is not None:
        write_bytes_atomic(junit, junit_xml(report))
    if as_markdown is not None:
        _append_step_summary(report)
        if not on_output:
            write_bytes_atomic(as_markdown, gate_markdown(report).encode())
    if as_json:
        write_json(report)
    elif on_output:
        sys.stdout.write(gate_markdown(report))
    else:
        print_gate(report, streams.results())
    if report.exit_code:
        raise typer.Exit(report.exit_code)


def _append_step_summary(report: GateReport) -> None:
    """Append the report to GitHub's step summary, if there is one."""
    if path := os.environ.get(_STEP_SUMMARY):
        try:
            with Path(path).open("a", encoding="utf-8") as file:
                file.write(gate_markdown(report))
        except OSError as error:
            raise StoreError(f"${_STEP_SUMMARY} names {path}, which cannot be written: {error}") from error
