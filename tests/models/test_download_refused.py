"""A file that a host refuses: the connection is given back at once."""

from __future__ import annotations

from urllib.error import HTTPError

import pytest
from fakes.hub import serving_hub

from coeval.models.transport.download import SourceFailed, read_page


def test_a_refused_file_leaves_no_connection_open() -> None:
    with serving_hub([]) as hub, pytest.raises(SourceFailed, match="status 404") as refused:
        read_page(f"{hub.url}/nothing", "*/*", 10.0)
    cause = refused.value.__cause__
    assert isinstance(cause, HTTPError)
    assert cause.fp.closed
