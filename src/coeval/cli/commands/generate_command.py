"""`coeval generate`: lets teachers propose attributes and rubrics, and writes them as a file to edit."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Annotated

import typer
from rich.console import Console

from coeval.cli import streams
from coeval.cli.command_names import ExperimentFile, KeyFile, Probe, ProbeOnFail
from coeval.cli.views.description_view import (
    check_page_path,
    preview_experiment,
    print_report,
)
from coeval.cli.views.gaps_view import print_gaps
from coeval.cli.views.progress_view import show_progress_while
from coeval.core.errors import GAPS, INTERRUPTED, UsageError
from coeval.engine.probing import Probing
from coeval.models.keys import load_keys
from coeval.pipeline.config.load_file import read_config
from coeval.pipeline.start.partial_starts import Proposals, request_proposals
from coeval.pipeline.start.proposed_file import (
    FileWithProposals,
    insert_proposed_parts,
    refuse_credentials_in_addresses,
)
from coeval.reports.description_report import description_report
from coeval.reports.site.page import make_page
from coeval.store.jsonl import write_bytes_atomic

NOT_PROPOSED = ("models", "tasks", "phases", "prompts", "values")
"""Tables that are left out of what is shown: they say nothing of what was proposed."""


def generate(
    config: ExperimentFile,
    out: Annotated[Path, typer.Option(help="The file to write. Example: --out designed.yaml")],
    report: Annotated[
        Path | None,
        typer.Option(help="Also write a page that describes the result. Example: --report my.html"),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the --out file.")] = False,
    ask_again: Annotated[
        bool, typer.Option("--ask-again", help="Also request existing proposals again.")
    ] = False,
    keys: KeyFile = None,
    probe: Probe = None,
    probe_on_fail: ProbeOnFail = None,
) -> None:
    """Let teachers propose attributes and rubrics, as a file to edit.

    It runs phases 1 and 2: wherever the experiment file leaves attributes or
    rubrics to its teachers (auto, complete, extend), their proposals are filled
    in, under a comment that names the author. Other comments stay; API keys of
    models are left out. Requests count against the quotas and budgets of the
    run, and repeating the command never repeats a finished request.

    \b
    Examples:
      coeval generate --config draft.yaml --out designed.yaml
      coeval generate --config draft.yaml --out designed.yaml --report designed.html
      coeval generate --config draft.yaml --out designed.yaml --overwrite --ask-again
      coeval run --config designed.yaml

    \b
    Exit codes: 0 written, 1 usage error, 2 a model is unavailable,
    3 not every teacher answered, 130 interrupted (proposals so far are kept).
    """
    if report is not None:
        check_page_path(report, config)
    if out.is_dir():
        raise UsageError(f"--out {out} is a folder; name a file in it")
    if out.exists() and (not overwrite or out.samefile(config)):
        ways = "name another file" if overwrite else "--overwrite replaces it, or name another file"
        raise UsageError(f"--out {out} already exists; {ways}")
    loaded, key_set, messages = read_config(config), load_keys(keys), streams.messages()
    refuse_credentials_in_addresses(loaded)
    settled = loaded.with_experiment_settings(probe_mode=probe, probe_on_fail=probe_on_fail)
    experiment = settled.config.experiment
    probing = Probing(experiment.probe_mode, experiment.probe_on_fail)
    proposed = show_progress_while(
        key_set, lambda context: request_proposals(settled.config, probing, context, ask_again=ask_again)
    )
    _print_missing_proposals(proposed, config, out, messages)
    if proposed.lacking or proposed.summary.interrupted:
        raise typer.Exit(INTERRUPTED if proposed.summary.interrupted else GAPS)
    written = insert_proposed_parts(config, loaded, proposed.parts)
    write_bytes_atomic(out, written.text.encode())
    described = description_report(preview_experiment(written.config, key_set))
    print_report(described, streams.results(), skipped_tables=NOT_PROPOSED)
    if not proposed.parts:
        streams.say(messages, "The file leaves nothing to its teachers; it is copied unchanged.")
    _print_result_warnings(written, out, messages)
    if report is not None:
        write_bytes_atomic(report, make_page(described))
        streams.say(messages, f"Written: {report}.")
    streams.say(messages, f"Written: {out}. Edit it, review it and run it:")
    for command in ("describe", "run"):
        streams.say(messages, f"  coeval {command} --config {quote(str(out))}")
    raise typer.Exit(GAPS if proposed.summary.notes else 0)


def _print_missing_proposals(proposed: Proposals, config: Path, out: Path, messages: Console) -> None:
    """Print what is missing, why, and the command that continues."""
    summary = proposed.summary
    for sentence in (*summary.notes, *summary.stopped.values()):
        streams.warn(messages, sentence)
    if summary.missing:
        print_gaps(summary, messages)
    for part in proposed.lacking:
        streams.warn(messages, f"no proposal for {part}")
    command = f"  coeval generate --config {quote(str(config))} --out {quote(str(out))}"
    if proposed.lacking or summary.interrupted:
        streams.say(messages, f"{out} is not written; the proposals are kept. Continue with:")
        streams.say(messages, command)
    elif summary.notes:
        streams.say(messages, "To request the remaining proposals:")
        streams.say(messages, f"{command} --overwrite")


def _print_result_warnings(settled: FileWithProposals, out: Path, messages: Console) -> None:
    if settled.rewritten:
        streams.warn(messages, f"the comments of the file could not be kept: {out} is written without them")
    for name in settled.hidden:
        streams.warn(messages, f"a key of the model {name} was left out; put it into a key file")
    if settled.config.experiment.resume_from is not None:
        streams.warn(
            messages,
            "the file has resume_from: that run's results of phases 1 and 2 replace what "
            "you edit, unless phases has attribute_mapping: New and rubric_mapping: New",
        )
