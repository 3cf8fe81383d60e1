"""`coeval describe`: an experiment before it is run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from coeval.cli.command_names import ExperimentFile, KeyFile

PAGE_ONLY = ("values",)
"""Tables that are too long for a terminal; the page has them."""


def describe(
    config: ExperimentFile,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Write a page. Example: --out experiment.html"),
    ] = None,
    prompts: Annotated[
        bool, typer.Option("--prompts", help="Print the prompts in full, as they will be sent.")
    ] = False,
    keys: KeyFile = None,
) -> None:
    """Show an experiment before it runs: prompts, calls, cost.

    No model is called, and the run's folder is unchanged. Prompts are shown with
    the attributes of a planned item; text that a model will write is marked. If
    the run has started, calls and cost are those that remain. --out writes all of
    it as one page.

    \b
    Examples:
      coeval describe --config examples/quickstart.yaml
      coeval describe --config my.yaml --prompts
      coeval describe --config my.yaml --out my.html

    \b
    Exit codes: 0 described, 1 wrong request.
    """
    from coeval.api import find_keys
    from coeval.cli import streams
    from coeval.cli.views.description_view import (
        described_experiment,
        print_report,
        refuse_place,
        write_description,
    )
    from coeval.pipeline.config.load_file import read_config
    from coeval.reports.description_report import description_report

    if out is not None:
        refuse_place(out, config)
    described = described_experiment(read_config(config).config, find_keys(keys))
    report = description_report(described)
    print_report(report, streams.results(), without=PAGE_ONLY, passages=prompts)
    messages = streams.messages()
    if not prompts:
        streams.say(messages, "--prompts prints the prompts in full.", "dim")
    if out is not None:
        write_description(report, out)
        streams.say(messages, f"written: {out}")
