"""A package index and hub on the loopback, with what a test puts on it, and faults."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from coeval.benchmarks.assets.cache import Parcel
from coeval.models.transport.network import download
from fakes.threaded import http_in_a_thread


def wheel(name: str, members: Mapping[str, str]) -> bytes:
    """A wheel that an installer accepts: ``members`` and the metadata of ``name`` 1.0."""
    info = f"{name}-1.0.dist-info"
    metadata = {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": "",
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path, content in (dict(members) | metadata).items():
            archive.writestr(zipfile.ZipInfo(path), content)
    return buffer.getvalue()


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def download_from(url: str) -> Callable[..., Path]:
    """What downloads wheels from the index at this address as pip does, in this process."""

    def downloaded(parcel: Parcel, folder: Path, tell: Callable[[int], None], *_: object) -> Path:
        download(f"{url}/files/{parcel.file}", folder / parcel.file, None, tell)
        return folder / parcel.file

    return downloaded


@dataclass
class PackageIndex:
    """``files`` by URL path; a project's page lists every ``/files/…`` of its name."""

    files: dict[str, bytes] = field(default_factory=dict)
    cut_off: int = 0
    """Bytes that every file lacks at its end, whatever its length says."""
    requested: list[str] = field(default_factory=list)
    url: str = ""

    def page(self, project: str) -> tuple[str, bytes]:
        names = [path.rpartition("/")[2] for path in self.files if path.startswith("/files/")]
        names = [name for name in names if name.partition("-")[0].replace("_", "-") == project]
        listed = [{"filename": name, "url": f"/files/{name}", "hashes": {}} for name in names]
        page = {"meta": {"api-version": "1.0"}, "name": project, "files": listed}
        return "application/vnd.pypi.simple.v1+json", json.dumps(page).encode()


@contextmanager
def running(index: PackageIndex) -> Iterator[PackageIndex]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            index.requested.append(self.path)
            if self.path.startswith("/simple/"):
                self.answer(200, *index.page(self.path.split("/")[2]))
            elif (content := index.files.get(self.path)) is not None:
                self.answer(200, "application/octet-stream", content, index.cut_off)
            else:
                self.answer(404, "text/plain", b"")

        def answer(self, status: int, kind: str, content: bytes, cut_off: int = 0) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[: len(content) - cut_off])

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the name it has there
            pass

    with http_in_a_thread(Handler) as url:
        index.url = url
        yield index
