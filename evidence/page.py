"""Pages of evidence: written whole by the command that each of them names, or shown where less is drawn.

A page is kept only with all its repeats, so that figures in ``docs/evidence`` are those of the seeds alone;
with fewer it is a quick look, on the terminal.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path


def write_page(page: Callable[[int], str], file: Path, repeats: int, about: str | None, counted: str) -> None:
    """Read ``--repeats`` from the command line and write the page, or print it if that is not all.

    Parameters
    ----------
    page : returns Markdown for so many repeats
    file : where it is kept
    repeats : all of them
    about : the module's docstring, which ``--help`` shows
    counted : what is repeated, for ``--help``
    """
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=repeats, help=counted)
    needed = parser.parse_args().repeats
    written = page(needed)
    if needed == repeats:
        file.write_text(written, encoding="utf-8")
    else:
        print(written)
