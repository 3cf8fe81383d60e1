"""The rows of hosts name batch interfaces that are there."""

from __future__ import annotations

import pytest

from coeval.core.errors import UsageError
from coeval.models.batch.batch_of_host import BATCH_APIS, batch_maker
from coeval.models.catalog import HOSTS, Host


def test_every_interface_with_batches_has_one() -> None:
    found = {name: batch_maker(HOSTS[name]) for name in HOSTS.own if HOSTS[name].batch}
    assert {"openai", "anthropic", "azure_openai", "mistral"} <= found.keys()
    assert {HOSTS[name].batch for name in found} == BATCH_APIS.keys()


def test_another_packages_host_that_names_nothing_is_told() -> None:
    host = Host(name="theirs", dialect="openai_chat", batch="coeval.models.batch:nothing")
    with pytest.raises(UsageError, match="theirs"):
        batch_maker(host)
