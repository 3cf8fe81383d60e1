"""``coeval export --push``, by the hub's own client against a hub on this machine."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from hashlib import blake2b
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from cli.invoked import Ended
from cli.warm_process import WarmProcess
from fakes.threaded import http_in_a_thread
from huggingface_hub import ModelCard

from coeval import import_results

pytestmark = pytest.mark.process

CARD = "---\nlicense: mit\n---\n# Mine\n\nWritten by hand.\n"


class Hub:
    """Repositories, with the text of their files; ``refuses`` is what it says to everything."""

    def __init__(self) -> None:
        self.files: dict[str, dict[str, str]] = {"models/me/my-model": {"README.md": CARD}}
        self.created: list[dict[str, Any]] = []
        self.tokens: set[str | None] = set()
        self.refuses = 0
        self.url = ""

    def post(self, path: str, body: bytes) -> tuple[int, Any]:
        if path == "/api/repos/create":
            asked = json.loads(body)
            self.created.append(asked)
            name = f"{asked['type']}s/{asked['organization']}/{asked['name']}"
            if name in self.files:
                return 409, {"error": "You already created this repo", "url": f"{self.url}/{name}"}
            self.files[name] = {}
            return 200, {"url": f"{self.url}/{name}"}
        if path == "/api/validate-yaml":
            return 200, {"errors": [], "warnings": []}
        found = re.fullmatch(r"/api/(\w+/[^/]+/[^/]+)/(preupload|commit)/main", path)
        assert found is not None, path
        if found[1] not in self.files:
            return 404, {"error": "Repository not found"}
        if found[2] == "preupload":
            files = [file["path"] for file in json.loads(body)["files"]]
            told = [{"path": file, "uploadMode": "regular", "shouldIgnore": False} for file in files]
            return 200, {"files": told}
        for line in body.splitlines():
            entry = json.loads(line)
            if entry["key"] == "file":
                value = entry["value"]
                self.files[found[1]][value["path"]] = base64.b64decode(value["content"]).decode()
        url = f"{self.url}/{found[1]}/commit/c0ffee"
        return 200, {"commitOid": "c0ffee", "commitUrl": url}

    def get(self, path: str) -> tuple[int, Any]:
        if path.startswith("/api/"):
            found = re.fullmatch(r"/api/(\w+/[^/]+/[^/]+)(/revision/main)?", path)
            if found is None or found[1] not in self.files:
                return 404, {"error": "Repository not found"}
            return 200, {"id": found[1].partition("/")[2], "sha": "c0ffee", "siblings": []}
        repo, _, file = path.removeprefix("/").partition("/resolve/main/")
        files = self.files.get(f"models/{repo}", {})
        return (200, files[file]) if file in files else (404, {"error": "Entry not found"})


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    made = Hub()

    class Handler(BaseHTTPRequestHandler):
        def _answer(self, status: int, said: Any) -> None:
            body = (said if isinstance(said, str) else json.dumps(said)).encode()
            self.send_response(made.refuses or status)
            self.send_header("Content-Length", str(len(body)))
            # The client keeps a file of the same commit and tag.
            tag = blake2b(body, digest_size=20).hexdigest()
            self.send_header("X-Repo-Commit", tag)
            self.send_header("ETag", f'"{tag}"')
            if status == 404:
                self.send_header("X-Error-Code", str(said["error"]).replace(" n", "N").replace(" ", ""))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def do_GET(self) -> None:
            made.tokens.add(self.headers["authorization"])
            self._answer(*made.get(self.path.partition("?")[0]))

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self._answer(*made.post(self.path.partition("?")[0], body))

        def log_message(self, *_: object) -> None:
            pass

    with http_in_a_thread(Handler) as url:
        monkeypatch.setenv("HF_ENDPOINT", url)
        monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
        made.url = url
        monkeypatch.setenv("HF_TOKEN", "hf_abcdefghijklmnopqrstuvwxyz01234567")
        yield made


@pytest.fixture
def made(tmp_path: Path) -> dict[str, Path]:
    """Output folders of two models, and both in one folder."""
    rows = [f"{item},{model},{score}\n" for item in range(4) for model, score in (("a/b", 1), ("c", 0.5))]
    (tmp_path / "s.csv").write_text("item,model,score\n" + "".join(rows))
    return dict(import_results(tmp_path / "s.csv", out=tmp_path / "two").folders)


def export(*words: object) -> Ended:
    """In a process, since the hub's client reads where the hub is once."""
    process = WarmProcess("export", *words)
    said = process.communicate()
    return Ended(process.wait(), said.out, said.err)


def card(hub: Hub) -> Any:
    return ModelCard(hub.files["models/me/my-model"]["README.md"])


def test_figures_enter_the_card_and_nothing_else_in_it_changes(
    hub: Hub, made: dict[str, Path], tmp_path: Path
) -> None:
    words = ("--to", "hf-results", "--push", "me/my-model")
    ended = export(made["a/b"], *words, "--out", tmp_path / "card")
    assert (ended.code, "sent to me/my-model" in ended.out) == (0, True), ended.err
    (result,) = card(hub).data.eval_results or []
    assert (result.metric_value, (result.metric_args or {})["n"]) == (1.0, 4)
    assert card(hub).data.license == "mit"
    assert card(hub).text.strip() == "# Mine\n\nWritten by hand."

    ended = export(made["c"], *words, "--out", tmp_path / "other")  # of the same task, so it takes the place
    assert ended.code == 0
    (result,) = card(hub).data.eval_results or []
    assert result.metric_value == 0.5
    assert hub.created == []


def test_figures_of_more_items_take_the_place_of_ours_and_of_no_other(hub: Hub, tmp_path: Path) -> None:
    others = {"type": "score", "name": "score", "value": 0.9}
    theirs = [
        {"task": {"type": "text-generation"}, "dataset": {"name": "s", "type": "s"}, "metrics": [others]}
    ]
    front = json.dumps({"license": "mit", "model-index": [{"name": "mine", "results": theirs}]})
    hub.files["models/me/my-model"]["README.md"] = f"---\n{front}\n---\n# Mine\n"
    for n in (4, 6):
        rows = [f"{item},m,{item % 2}\n" for item in range(n)]
        (tmp_path / "s.csv").write_text("item,model,score\n" + "".join(rows))
        (folder,) = import_results(tmp_path / "s.csv", out=tmp_path / f"of_{n}").folders.values()
        words = ("--to", "hf-results", "--out", tmp_path / f"card_{n}", "--push", "me/my-model")
        assert export(folder, *words).code == 0
        results = card(hub).data.eval_results or []
        assert [(one.metric_value, (one.metric_args or {}).get("n")) for one in results] == [
            (0.9, None),
            (0.5, n),
        ]
    assert card(hub).data.model_name == "mine"


def test_tables_become_a_folder_of_a_private_dataset(hub: Hub, made: dict[str, Path], tmp_path: Path) -> None:
    for name in ("a/b", "c"):
        out = tmp_path / f"out{made[name].name}"
        assert export(made[name], "--to", "csv", "--out", out, "--push", "me/results").code == 0
        for path in out.rglob("*.csv"):
            there = hub.files["datasets/me/results"][f"{made[name].name}/{path.relative_to(out)}"]
            assert there == path.read_bytes().decode()
    assert [asked["visibility"] if "visibility" in asked else asked["private"] for asked in hub.created]
    assert hub.tokens <= {None, "Bearer hf_abcdefghijklmnopqrstuvwxyz01234567"}


def test_what_the_hub_refuses_is_written_all_the_same(
    hub: Hub, made: dict[str, Path], tmp_path: Path
) -> None:
    hub.refuses = 403
    for to in ("csv", "hf-results"):
        ended = export(made["c"], "--to", to, "--out", tmp_path / to, "--push", "me/results")
        assert ended.code == 1
        assert "the hub did not take the results" in ended.err
        assert "hf_abc" not in ended.err
        assert any(path.is_file() for path in (tmp_path / to).rglob("*"))
    out = tmp_path / "again"
    ended = export(made["a/b"], "--to", "csv", "--out", out, "--push", "me/results")
    assert f"hf upload --repo-type dataset --private me/results {out} a_b" in ended.err
