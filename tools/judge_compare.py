"""The same answers judged by different judges: ``coeval sweep judges``, whose ``--help`` explains it."""

from __future__ import annotations

import sys

from coeval.cli.entry import coeval

if __name__ == "__main__":
    sys.argv[1:1] = ["sweep", "judges"]
    coeval()
