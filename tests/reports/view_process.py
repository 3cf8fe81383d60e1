"""`coeval view` as a process of its own, and how a program asks it."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")

NOTHING: Mapping[str, str] = MappingProxyType({})
JSON = {"Content-Type": "application/json"}
_LONGEST_S = 60.0


class Said(NamedTuple):
    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def value(self) -> Any:
        return json.loads(self.text)


@dataclass
class ViewServer:
    """A server at work; ``address`` ends with a slash, ``token`` is empty where none is needed."""

    process: subprocess.Popen[str]
    address: str
    token: str

    @property
    def port(self) -> int:
        return int(self.address.rstrip("/").rpartition(":")[2])

    def ask(self, path: str, method: str = "GET", body: str | None = None, **settings: Any) -> Said:
        """``settings``: ``headers``, besides the token, unless one of them is None."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_LONGEST_S)
        try:
            own = {"Host": f"127.0.0.1:{self.port}", "Authorization": f"Bearer {self.token}"}
            headers = {**own, **settings.get("headers", NOTHING)}
            reported = {name: value for name, value in headers.items() if value is not None}
            connection.request(method, path, body, reported)
            response = connection.getresponse()
            return Said(response.status, dict(response.headers), response.read().decode())
        finally:
            connection.close()

    def wait_for(self, path: str, reported: Callable[[Any], T | None]) -> T:
        """What is ``reported`` by what the server answers, as soon as that is not None or False."""
        end = time.monotonic() + _LONGEST_S
        while time.monotonic() < end:
            said = self.ask(path)
            assert said.status == 200, said.text
            found = reported(said.value)
            if found:
                return found
            time.sleep(0.1)
        raise AssertionError(f"{path} still says {said.text[:2000]}")

    def wait_for_text(self, path: str, text: str) -> None:
        """Until a page holds a text."""
        end = time.monotonic() + _LONGEST_S
        while text not in (said := self.ask(path)).text:
            assert time.monotonic() < end, said.text[:2000]
            time.sleep(0.1)

    def ready(self, number: int = 0) -> None:
        self.wait_for(f"/f/{number}/api/state", lambda reported: reported["generation"])

    def interrupt(self) -> tuple[int, str]:
        """Its exit code and what it said on standard error, once Ctrl-C has ended it."""
        self.process.send_signal(signal.SIGINT)
        _, err = self.process.communicate(timeout=_LONGEST_S)
        return self.process.returncode, err


@contextmanager
def viewing(*paths: object, folder: Path, command: str = "view", **variables: str) -> Iterator[ViewServer]:
    """``coeval view PATHS``, or another command that serves pages, in a folder, at a free port, until this is
    left; ``variables`` of its environment besides those of this process."""
    words = [sys.executable, "-m", "coeval", command, *map(str, paths), "--port", "0"]
    process = subprocess.Popen(
        words,
        cwd=folder,
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    address, _, token = process.stdout.readline().strip().partition("?token=")
    try:
        assert address, process.communicate()[1]
        yield ViewServer(process, address, token)
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()
