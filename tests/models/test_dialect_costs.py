"""That what a call costs is measured of every dialect."""

from __future__ import annotations

import json

import pytest

from coeval.core.redaction import Redactor
from coeval.models.catalog import HOSTS
from coeval.models.hosts.address import dialect_of
from perf.dialects import SAID, TYPICAL


def test_every_dialect_that_hosts_speak_is_measured_on_an_answer_that_it_reads() -> None:
    asked_over_http = {
        type(dialect_of(host)).__name__
        for host in HOSTS.values()
        if host.dialect not in ("simulated", "benchmark", "local")
    }
    measured = {type(dialect_of(HOSTS[interface])).__name__ for interface in TYPICAL}
    assert measured == asked_over_http, "add what a host of it answers to perf/dialects.py"


@pytest.mark.parametrize("interface", TYPICAL)
def test_the_answer_that_is_measured_is_one(interface: str) -> None:
    body = json.dumps(TYPICAL[interface].answer).encode()
    completion = dialect_of(HOSTS[interface]).decode(body, Redactor())
    assert (completion.text, completion.usage.input_tokens, completion.usage.output_tokens) == (SAID, 500, 20)
