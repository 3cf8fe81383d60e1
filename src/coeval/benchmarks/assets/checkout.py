"""Assets from elsewhere than the manifest says: a checkout of a benchmark's repository, another dataset."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from coeval.benchmarks.assets.cache import cache_folder
from coeval.benchmarks.assets.fetch import HUBS
from coeval.benchmarks.assets.library import Library, Presence
from coeval.models.transport.download import download
from coeval.store.cache_folder import file_name_of

__all__ = ["checked_out", "fetched_from_hub"]


def checked_out(folder: Path, files: Mapping[str, str]) -> dict[str, Path]:
    """Of ``files`` (asset → where it lies in the checkout ``folder``), those that the cache lacks and that
    lie there: what is taken where nobody names a checkout."""
    library = Library()
    return {
        asset: folder / path
        for asset, path in files.items()
        if library.presence(asset)[0] is Presence.ABSENT and (folder / path).is_file()
    }


def fetched_from_hub(repository: str, file: str) -> Path:
    """A file of a dataset on the hub, fetched into the cache at its newest revision.

    Raises
    ------
    SourceFailed
        it cannot be fetched.
    """
    hub = HUBS["huggingface"]
    path = hub.path.format(repo=repository, revision="main", path=file)
    target = cache_folder() / "given" / file_name_of(repository) / file
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_suffix(".partial")
    download(f"{os.environ.get(hub.variable) or hub.url}/{path}", partial, None, lambda _: None)
    return partial.replace(target)
