"""`coeval view`: serves runs and outputs as pages, to this machine only."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer
from aiohttp.web import Application

from coeval.analysis.comparison.comparisons import compare_sides
from coeval.cli import streams
from coeval.cli.command_names import NoToken, OpenIt, Port
from coeval.cli.loop import run_server
from coeval.cli.views.folder_status import read_folder_status
from coeval.core.errors import UsageError
from coeval.reports.compared_sides import open_side_groups_and_notes
from coeval.reports.comparison_page import comparison_page
from coeval.reports.site.page import make_page
from coeval.reports.view.view_app import ViewToken, make_view_app
from coeval.reports.view.viewed_folder import ViewedPlaces
from coeval.simulation.server import serve

_HERE = "127.0.0.1"


def view(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[PATH]...",
            help="Runs, outputs of eval-framework, or folders that contain them.",
            show_default="./runs, else the current folder",
        ),
    ] = None,
    run: Annotated[list[Path] | None, typer.Option(help="The same as PATH.")] = None,
    port: Port = 7575,
    open_it: OpenIt = False,
    no_token: NoToken = False,
) -> None:
    """Browse runs: progress, results, every item and answer.

    It serves pages to this machine until Ctrl-C; they follow a run in progress.
    Items can be searched, filtered, sorted and read with every judgment; marks and
    notes on them go to labels.jsonl in the folder. The printed address contains a
    token, so that other users of the machine have no access.

    \b
    Examples:
      coeval view
      coeval view ./runs/quickstart --open
      coeval view ./runs ./outputs --port 0
    """
    default = Path("runs") if Path("runs").is_dir() else Path()
    viewed = ViewedPlaces([*(paths or ()), *(run or ())] or [default], read_folder_status)
    messages = streams.messages()
    token = None if no_token else ViewToken()

    def announce() -> None:
        names = ", ".join(folder.name for folder in viewed.folders[:5])
        more = f" and {len(viewed.folders) - 5} more" if len(viewed.folders) > 5 else ""
        streams.say(messages, f"{names}{more}; Ctrl-C ends it", "dim")
        viewed.start_watching()

    app = make_view_app(viewed, token, _render_comparison_page)
    try:
        serve_pages(app, token, port, announce, open_it=open_it)
    finally:
        ended = viewed.stop_and_close()
    if not ended:  # a thread reads, for half a minute perhaps, and Python does not exit cleanly beside it
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def serve_pages(
    app: Application, token: ViewToken | None, port: int, announce: Callable[[], None], *, open_it: bool
) -> None:
    """Serve an app to this machine until Ctrl-C, and print its address, then whatever ``announce`` prints.
    Raises UsageError: the port is taken."""

    def begin(actual_port: int) -> None:
        address = f"http://{_HERE}:{actual_port}/"
        typer.echo(address if token is None else f"{address}?token={token.text}")
        announce()
        if open_it:
            import webbrowser

            webbrowser.open(address if token is None else f"{address}?token={token.make_ticket()}")

    run_server(serve(app, _HERE, port, begin), _HERE, port)


def _render_comparison_page(folders: Sequence[Path], best_by_folder: Sequence[str | None]) -> bytes:
    """Return the page of ``coeval compare --html``: of shared students, else of the ``best`` of each."""

    def render(students: Sequence[str]) -> bytes:
        with open_side_groups_and_notes(folders, students) as (groups, notes):
            return make_page(comparison_page(compare_sides(groups, notes)))

    try:
        return render([])
    except UsageError:
        best_students = [name for name in best_by_folder if name is not None]
        if len(best_students) < len(folders):
            raise
        return render(best_students)
