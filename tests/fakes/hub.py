"""A hub of data sets on this machine, which serves Parquet files as the Hugging Face hub does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from fakes.threaded import http_in_a_thread


class HubFile(NamedTuple):
    """A Parquet file of a split; several of one split are its parts, in order."""

    repo: str
    config: str
    split: str
    path: Path


class FakeHub:
    """``requested`` are the paths in the order of the requests. ``cut`` ends each file in its middle;
    ``leads`` is where a file lies, in place of this machine; ``sha`` the revision that it says."""

    def __init__(self, files: list[HubFile]) -> None:
        self.files = files
        self.requested: list[str] = []
        self.cut = False
        self.leads = ""
        self.sha = "c0ffee"
        self.url = ""

    def listing(self, repo: str) -> dict[str, dict[str, list[str]]]:
        found: dict[str, dict[str, list[str]]] = {}
        for file in self.files:
            if file.repo == repo:
                urls = found.setdefault(file.config, {}).setdefault(file.split, [])
                place = f"{file.config}/{file.split}/{len(urls)}.parquet"
                urls.append(f"https://huggingface.co/api/datasets/{repo}/parquet/{place}")
        return found

    def answer(self, path: str) -> tuple[int, bytes | str]:
        """Status and body; a redirection's body is where it leads."""
        owner, name, *rest = [unquote(part) for part in path.removeprefix("/api/datasets/").split("/")]
        repo = f"{owner}/{name}"
        listing = self.listing(repo)
        if path.startswith("/cdn/"):
            return 200, Path(unquote(path).removeprefix("/cdn")).read_bytes()
        if not listing or not path.startswith("/api/datasets/"):
            return 404, json.dumps({"error": "Repository not found"}).encode()
        match rest:
            case []:
                card = {"license": "cc-by-4.0", "language": ["en"]}
                return 200, json.dumps({"id": repo, "sha": self.sha, "cardData": card}).encode()
            case ["parquet"]:
                return 200, json.dumps(listing).encode()
            case ["parquet", config, split, number]:
                of = [f for f in self.files if (f.repo, f.config, f.split) == (repo, config, split)]
                return 302, f"{self.leads or self.url}/cdn{of[int(number.removesuffix('.parquet'))].path}"
            case _:
                return 404, b"{}"


@contextmanager
def serving_hub(files: list[HubFile]) -> Iterator[FakeHub]:
    hub = FakeHub(files)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            hub.requested.append(self.path)
            status, body = hub.answer(self.path)
            self.send_response(status)
            if isinstance(body, str):
                self.send_header("Location", body)
                body = b""
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            cut = hub.cut and self.path.startswith("/cdn/")
            self.wfile.write(body[: len(body) // 2] if cut else body)

        def log_message(self, *_: object) -> None: ...

    with http_in_a_thread(Handler) as url:
        hub.url = url
        yield hub
