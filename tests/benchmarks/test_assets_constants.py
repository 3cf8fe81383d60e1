from __future__ import annotations

import pytest

from coeval.benchmarks.assets.fetch import string_constant
from coeval.models.transport.network import SourceFailed

SOURCE = '''
raise SystemExit("this source must never run")
PLAIN = "a judge"
JOINED = (
    "two "
    "halves"
)
STRIPPED = """
text {x}
""".strip()
SUM = PLAIN + ", " + JOINED
NESTED = {"one": {"prompt": PLAIN}, "two": {"prompt": "other"}}
FORMATTED = f"{PLAIN}!"
CALLED = open("/etc/passwd").read()
LOOP = POOL
POOL = LOOP
'''


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("PLAIN", "a judge"),
        ("JOINED", "two halves"),
        ("STRIPPED", "text {x}"),
        ("SUM", "a judge, two halves"),
        ("NESTED/one/prompt", "a judge"),
        ("NESTED/two/prompt", "other"),
    ],
)
def test_a_constant_is_read_without_running_its_source(path: str, text: str) -> None:
    assert string_constant(SOURCE, path) == text


@pytest.mark.parametrize(
    "path", ["ABSENT", "NESTED", "NESTED/three", "PLAIN/key", "FORMATTED", "CALLED", "LOOP"]
)
def test_what_is_no_plain_text_is_refused(path: str) -> None:
    with pytest.raises(SourceFailed, match=path):
        string_constant(SOURCE, path)


def test_a_source_that_is_no_python_is_refused() -> None:
    with pytest.raises(SourceFailed, match="no Python"):
        string_constant("def (", "PLAIN")
