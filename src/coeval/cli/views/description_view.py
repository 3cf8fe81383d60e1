"""The description of an experiment, on a terminal and as a page."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from rich.console import Console
from rich.text import Text

from coeval.cli.streams import say, warn
from coeval.cli.views.table_view import show_tables
from coeval.core.errors import UsageError
from coeval.core.folding import wrap_lines
from coeval.core.plain import escape_line, escape_lines
from coeval.models.catalog import HOSTS
from coeval.models.keys import Keys
from coeval.pipeline.config.doubtful_settings import find_doubtful_settings
from coeval.pipeline.config.schema import Config
from coeval.pipeline.plan.estimate.recorded_lengths import read_recorded_lengths
from coeval.pipeline.plan.estimate.run_estimate import EstimateInputs, estimate_run
from coeval.pipeline.plan.estimate.start_preview import add_batch_savings, preview_start
from coeval.pipeline.run_options import RunOptions
from coeval.pricing.price_book import PriceBook
from coeval.reports.content import Passage, Report, ReportSection
from coeval.reports.description_report import DescribedExperiment

_STAND_IN = ("‹", "›")
_INDENT = "    "


def print_report(
    report: Report, console: Console, *, skipped_tables: Collection[str] = (), with_passages: bool = False
) -> None:
    """Print a report, except the tables named by ``skipped_tables``."""
    console.print(Text(escape_line(report.title), style="bold"))
    if report.facts:
        say(console, " · ".join(report.facts), "dim")
    for alert in report.alerts:
        warn(console, alert.text)
    console.print()
    for sentence in report.lead:
        say(console, sentence.text)
    for section in report.sections:
        _print_section(section, console, skipped_tables, with_passages)


def _print_section(
    section: ReportSection, console: Console, skipped_tables: Collection[str], with_passages: bool
) -> None:
    console.print()
    console.print(Text(escape_line(section.question), style="bold"))
    for sentence in section.sentences:
        say(console, sentence.text)
    show_tables(console, (table for table in section.tables if table.name not in skipped_tables))
    if with_passages:
        for passage in section.passages:
            console.print()
            _print_passage(passage, console)


def _print_passage(passage: Passage, console: Console) -> None:
    """Print a passage as written, indented; signs and colour set off its stand-ins."""
    console.print(Text(escape_line(passage.title), style="italic"))
    text = Text()
    for part in passage.parts:
        words = escape_lines(part.text)
        text.append(words.join(_STAND_IN) if part.stand_in else words, "yellow" if part.stand_in else "")
    for line in text.split("\n", allow_blank=True):
        start = 0
        for piece in wrap_lines(line.plain, max(20, console.width - len(_INDENT))):
            end = line.plain.find(piece, start) + len(piece)
            indented = Text(_INDENT) + line[end - len(piece) : end]
            indented.rstrip()
            console.print(indented, soft_wrap=True)
            start = end


# --- The description of an experiment as a page


def preview_experiment(config: Config, keys: Keys) -> DescribedExperiment:
    """Preview an experiment, or the rest of a started one, without calling a model or changing a file. Raises
    UsageError: a model has no host, or the user's items cannot be used."""
    prices = PriceBook()
    prices.refuse_unknown_interfaces(HOSTS, HOSTS.own)
    options = RunOptions.continue_if_started(config)
    start = preview_start(config, options, keys, prices)
    assumed = EstimateInputs(prices, read_recorded_lengths(start.config, start.preview))
    estimate = estimate_run(start.config, start.preview, assumed)
    estimate = add_batch_savings(estimate, start.config, start.preview, assumed)
    warnings = [*find_doubtful_settings(config), *start.warnings]
    try:
        start.preview.refuse_start(options)
    except UsageError as changed:  # records of another configuration exist
        warnings.append(str(changed))
    warnings += start.choices
    return DescribedExperiment(start.config, start.preview, options, estimate, tuple(warnings))


def check_page_path(path: Path, config: Path) -> None:
    """Raise UsageError if a page cannot, or should not, be written to this path."""
    if path.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"{path} cannot hold a page; end its name in .html (print it from a browser)")
    if path.is_dir() or (path.exists() and path.samefile(config)):
        raise UsageError(f"{path} cannot be replaced by a page; name a new file")
    if not path.parent.is_dir():
        raise UsageError(f"{path}: there is no folder {path.parent}; make it, or name another")
