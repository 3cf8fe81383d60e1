"""Vega, Vega-Lite and Vega-Embed as one script, as vl-convert brings them.

Putting them together takes seconds, so what came of it is kept in the user's cache folder, by vl-convert's
version; a folder that cannot be written costs nothing but that time.
"""

from __future__ import annotations

import gzip
import logging
from functools import cache
from importlib.metadata import version

import vl_convert

from coeval.store.cache_folder import cache_folder
from coeval.store.jsonl import write_bytes_atomic

__all__ = ["VEGA_SCRIPT", "vega_script"]

log = logging.getLogger("coeval")

VEGA_SCRIPT = "window.vegaEmbed = vegaEmbed;"


@cache
def vega_script() -> bytes:
    """The script, gzipped; it gives the page ``vegaEmbed``."""
    place = cache_folder() / "pages" / f"vega-{version('vl-convert-python')}.js.gz"
    try:
        kept = place.read_bytes()
        gzip.decompress(kept)
    except (OSError, EOFError, gzip.BadGzipFile):
        kept = gzip.compress(vl_convert.javascript_bundle(VEGA_SCRIPT).encode(), 9, mtime=0)
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            write_bytes_atomic(place, kept)
        except OSError as error:
            log.debug("the script of charts is not kept: %s", error)
    return kept
