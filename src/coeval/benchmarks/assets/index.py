"""Download wheels from a package index: by pip where available, else from the index's file list.

Nothing is installed or run. The index is configured in the environment (pip's configuration,
``PIP_INDEX_URL``, ``PIP_EXTRA_INDEX_URL``).
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import urldefrag, urljoin, urlsplit

import msgspec

from coeval.benchmarks.assets.cache import Parcel
from coeval.core.errors import Undecodable
from coeval.core.foreign import decode
from coeval.core.redaction import Redactor
from coeval.core.shown_url import shown_url, url_secrets
from coeval.models.transport.network import SourceFailed, download, read_page

# Often enough for a bar that moves; a look walks one folder.
_LOOK_EVERY_S = 0.2
_JSON = "application/vnd.pypi.simple.v1+json"


class _File(msgspec.Struct):
    filename: str
    url: str


class _Page(msgspec.Struct):
    """An index's page for a project, as JSON."""

    files: list[_File]


def download_wheel(
    parcel: Parcel, folder: Path, tell: Callable[[int], None], patience_s: float | None = None
) -> Path:
    """Download the wheel ``parcel`` into the empty ``folder``.

    With ``patience_s`` an index silent for so long is given up; pip's own environment variables take
    precedence.

    Raises SourceFailed: there is neither pip nor an index to ask, or the wheel is not to be had there.
    """
    if pip := pip_command():
        return _by_pip(pip, parcel, folder, tell, patience_s)
    if indexes := index_urls(os.environ):
        return _by_list(indexes, parcel, folder, tell, patience_s)
    raise SourceFailed("there is no pip here, and PIP_INDEX_URL names no package index")


def pip_command() -> list[str] | None:
    """Return the command of pip: this interpreter's, or the one on the path; None for neither."""
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip"]
    found = shutil.which("pip") or shutil.which("pip3")
    return [found] if found else None


def index_urls(environment: Mapping[str, str]) -> list[str]:
    named = f"{environment.get('PIP_INDEX_URL', '')} {environment.get('PIP_EXTRA_INDEX_URL', '')}"
    return [url for url in named.split() if url.startswith(("http://", "https://"))]


def _by_pip(
    pip: list[str], parcel: Parcel, folder: Path, tell: Callable[[int], None], patience_s: float | None
) -> Path:
    options = ["--no-deps", "--only-binary", ":all:", "--no-input", "--progress-bar", "off"]
    command = [*pip, "download", *options, "--dest", str(folder), parcel.requirement]
    # pip writes to its own temporary folder first: here, it is seen growing and swept away with the rest.
    environment = {**_patience(patience_s), **os.environ, "TMPDIR": str(folder)}
    log = folder / "pip.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)  # noqa: S603
        try:
            while process.poll() is None:
                tell(sum(_size(path) for path in folder.rglob("*.whl")))
                try:
                    process.wait(timeout=_LOOK_EVERY_S)
                except subprocess.TimeoutExpired:
                    continue
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    wheel = folder / parcel.file
    if process.returncode or not wheel.is_file():
        raise SourceFailed(f"pip could not download it: {_last_error(log)}")
    return wheel


def _patience(patience_s: float | None) -> dict[str, str]:
    """How long pip tries, where the user's environment does not say so."""
    if patience_s is None:
        return {"PIP_RETRIES": "2"}
    return {"PIP_RETRIES": "0", "PIP_DEFAULT_TIMEOUT": f"{patience_s:.0f}"}


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # pip has moved it meanwhile
        return 0


def _last_error(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines()]
    if any("connection broken by" in line for line in lines):
        return "the package index cannot be reached"
    errors = [line.removeprefix("ERROR:").strip() for line in lines if line.startswith("ERROR:")]
    return _redact_completion((errors or [line for line in lines if line] or ["it said nothing"])[-1])


def _redact_completion(said: str) -> str:
    """A message without what the indexes are asked with: an index may repeat it."""
    secrets = (secret for url in index_urls(os.environ) for secret in url_secrets(url))
    return Redactor(secrets).message(said)


def _by_list(
    indexes: list[str], parcel: Parcel, folder: Path, tell: Callable[[int], None], patience_s: float | None
) -> Path:
    name = re.sub(r"[-_.]+", "-", parcel.requirement.partition("==")[0]).lower()
    reasons = []
    for index in indexes:
        try:
            url = _listed(f"{index.rstrip('/')}/{name}/", parcel.file, patience_s)
            download(url, folder / parcel.file, parcel.bytes, tell, patience_s)
            return folder / parcel.file
        except SourceFailed as error:
            reasons.append(_redact_completion(str(error)))
    raise SourceFailed("; ".join(reasons))


def _listed(page: str, file: str, patience_s: float | None) -> str:
    """The address of ``file`` on an index's page for a project (PEP 691)."""
    _, content = read_page(page, _JSON, patience_s)
    for each in _files(content):
        if each.filename == file:
            return _with_user(urldefrag(urljoin(page, each.url)).url, page)
    raise SourceFailed(f"{shown_url(page)} lists no {file}")


def _with_user(url: str, page: str) -> str:
    """``url`` with the user and password of the page that lists it, if they are of one host."""
    user, at, host = urlsplit(page).netloc.rpartition("@")
    parts = urlsplit(url)
    return parts._replace(netloc=f"{user}{at}{host}").geturl() if at and parts.netloc == host else url


def _files(content: bytes) -> list[_File]:
    try:
        return decode(content, _Page).files
    except Undecodable as error:
        raise SourceFailed(f"the package index sends no list of files as JSON (PEP 691): {error}") from error
