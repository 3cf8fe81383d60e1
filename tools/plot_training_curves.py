"""Training curves with error bars: ``coeval sweep plot``, whose ``--help`` explains it."""

from __future__ import annotations

import sys

from coeval.cli.entry import coeval

if __name__ == "__main__":
    sys.argv[1:1] = ["sweep", "plot"]
    coeval()
