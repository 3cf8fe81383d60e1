"""The template of a server's command: placeholders, quotes, braces, what it is asked for by."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from coeval.core.errors import UsageError
from coeval.sweeps.guard import RotatingLog, rotated_log
from coeval.sweeps.server_command import PRESETS, ServerCommand
from coeval.sweeps.server_log import LINES, ServerLog
from coeval.sweeps.server_process import find_free_port, find_own_and_foreign_listener, is_port_free
from coeval.sweeps.worker_files import Server


def filled(template: str, **values: object) -> list[str]:
    given = {"checkpoint": "/my ckpt/step_10", "name": "Qwen3", "tp_size": 2, "gpus": ("2", "3"), **values}
    return list(ServerCommand(template).fill_for_server(Server(template=template, **given), 8123))  # type: ignore[arg-type]


def test_the_default_is_vllm_as_the_guide_has_it() -> None:
    words = filled(PRESETS["vllm"])
    assert words[:5] == ["vllm", "serve", "/my ckpt/step_10", "--served-model-name", "Qwen3"]
    assert words[5:9] == ["--host", "127.0.0.1", "--port", "8123"]
    assert words[9:] == ["--tensor-parallel-size", "2", "--gpu-memory-utilization", "0.95"]
    assert filled("vllm") == filled(PRESETS["vllm"])
    assert "--max-model-len" not in PRESETS["vllm"]


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ("vllm", "Qwen3"),
        ("sglang", "Qwen3"),
        ("transformers", "/ckpt"),
        ("vllm serve {checkpoint} --port {port}", "/ckpt"),
        ("coeval simulate --port {port} --model {name}:skill=0.5", "Qwen3"),
        ("my-server {port}", "Qwen3"),
    ],
)
def test_what_a_request_calls_the_model_there(template: str, name: str) -> None:
    assert ("/ckpt" if ServerCommand(template).serves_path else "Qwen3") == name


def test_braces_of_json_and_quotes_survive_and_values_are_not_read_again() -> None:
    template = (
        """env A=b s --port={port} --override-config '{"a": {"b":1}}' --t '{}' --x "{{name}}={name}" {gpus}"""
    )
    words = filled(template, name="{port} $(id) ; rm")
    assert words[:6] == ["env", "A=b", "s", "--port=8123", "--override-config", '{"a": {"b":1}}']
    assert words[6:] == ["--t", "{}", "--x", "{name}={port} $(id) ; rm", "2,3"]


@pytest.mark.parametrize(
    "template",
    [
        "sh -c 'vllm serve {checkpoint} --port {port}'",
        "bash -lc vllm-{checkpoint} {port}",
        "/bin/sh -ec {checkpoint} {port}",
        "env -S {checkpoint} {port}",
        "nohup nice -n 5 zsh -c 'exec vllm serve \"{checkpoint}\"' {port}",
        """python -c 'serve("{checkpoint}")' {port}""",
        "ssh gpu7 vllm serve {checkpoint} --port {port}",
        """vllm serve x --hf-overrides '{"path": "{checkpoint}"}' --port {port}""",
    ],
)
def test_what_another_program_reads_as_code_takes_harmless_values_alone(template: str) -> None:
    assert filled(template, checkpoint="/ckpts/lr=1e-5,b/step_10@main")
    for hostile in ("/my ckpt", "a;b", "$HOME", "`id`", 'a"b', "a'b", "a\nb", "~root", "a\\b", "été", "a*"):
        with pytest.raises(UsageError, match="could be read there as code"):
            filled(template, checkpoint=hostile)


@pytest.mark.parametrize(
    ("part", "named"),
    [
        ("--api-key hunter2hunter2", "api-key"),
        ("--api-key=hunter2", "api-key"),
        ("--hf-token x1", "hf-token"),
        ("env HF_TOKEN=x1", "HF_TOKEN"),
        ("sh -c 'OPENAI_API_KEY=x1 exec y'", "OPENAI_API_KEY"),
        ("""--config '{"api_key": "x1"}'""", "api_key"),
        ("--x sk-proj-abcdefgh1234", "looks like a key"),
        ("--header 'Authorization: Bearer abcdefgh1234'", "Authorization"),
        ("--proxy http://user:x1@proxy.example", "a password in an address"),
    ],
)
def test_a_credential_is_refused_since_commands_are_kept(part: str, named: str) -> None:
    with pytest.raises(UsageError, match=r"--server-env NAME") as refused:
        ServerCommand(f"vllm serve x --port {{port}} {part}")
    assert named in str(refused.value)
    assert "x1" not in str(refused.value)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    "part",
    [
        "--api-key EMPTY",
        "sh -c 'HF_TOKEN=$HF_TOKEN exec vllm'",
        "--hf-token --trust-remote-code",
        "--tokenizer x --tokenizer-mode auto --max-num-batched-tokens 8192",
        "--ssl-keyfile key.pem --allowed-headers '[\"*\"]' --allow-credentials",
        "--served-model-name qwen3-4b-sft-2026",
    ],
)
def test_what_is_no_credential_is_none(part: str) -> None:
    assert ServerCommand(f"vllm serve x --port {{port}} {part}").words


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("", "is empty"),
        ("vllm serve 'a", "No closing quotation"),
        (
            "vllm serve {model} --port {port}",
            r"\{model\} is not a placeholder; there are \{checkpoint\}, \{name\}",
        ),
        ("vllm serve {chekpoint} --port {port}", r"did you mean \{checkpoint\}\?"),
        ("vllm serve {checkpoint}", r"needs \{port\}: every server gets one"),
    ],
)
def test_what_is_wrong_is_said_at_once(template: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        ServerCommand(template)


@pytest.mark.parametrize(
    "template",
    [
        """serve --port {port} --json '{"a": {"b": 1}}'""",
        """serve --port {port} --stop '{"stop": "}"}'""",
        "serve --port {port} --literal {{name}}",
        """sh -c 'exec serve "$1" --port ${2:-1} # don'"'"'t wait' sh {checkpoint} {port}""",
        """python -c "print('it', '}') # isn't" {port}""",
    ],
)
def test_braces_and_quotes_that_match_are_taken(template: str) -> None:
    assert ServerCommand(template).words


def test_presets_have_a_port_of_their_own() -> None:
    assert all("8123" in filled(name) for name in PRESETS)


# What is shown of a server's output, and how much of it is kept.

TOKEN = "hf_abcdefghijklmnopqrstuvwxyz0123456789"


def shown(folder: Path, written: bytes, **environment: str) -> list[str]:
    log = ServerLog(folder, environment, ["my-own-key-0815-xyz"])
    log.path.write_bytes(written)
    return log.last_lines()


def test_it_is_shown_without_control_signs_and_secrets(tmp_path: Path) -> None:
    written = (
        b"\x1b]0;owned\x07\x1b[31mred\x1b[0m caf\xe9 \xe2\x80\xae\x00\r\n 10%\r 99% loaded\r\n\n"
        + f"token {TOKEN} {TOKEN[:20]} my-own-key-0815-xyz other-secret-4711-abc\n".encode()
    )
    lines = shown(tmp_path, written, MY_API_KEY="other-secret-4711-abc", HF_TOKEN=TOKEN)
    assert lines[:2] == [r"red caf\xe9 \u202e\x00", " 99% loaded"]
    assert "token [redacted]" in lines[2]
    for secret in (TOKEN[:16], "0815", "4711"):
        assert secret not in lines[2]


@pytest.mark.parametrize("written", [b"x" * (1 << 20), b"ab\n" * (1 << 19), b"\x1b[" * (1 << 19)])
def test_what_is_shown_is_bounded(tmp_path: Path, written: bytes) -> None:
    lines = shown(tmp_path, written)
    assert len(lines) <= LINES
    assert all(len(line) < 400 for line in lines)


def test_of_an_earlier_start_nothing_is_shown(tmp_path: Path) -> None:
    log = ServerLog(tmp_path, {})
    assert "It wrote nothing" in log.describe_failure()
    log.path.write_text("out of memory\n")
    assert "Probably the GPU has too little memory free" in log.describe_failure()
    log.begin()
    assert "It wrote nothing" in log.describe_failure()
    with log.path.open("a") as file:
        file.write("ModuleNotFoundError: No module named 'vllm'\n")
    assert "Probably a package that the server needs is not installed" in log.describe_failure()


def test_gigabytes_of_output_take_no_more_than_a_log_may(tmp_path: Path) -> None:
    path, most = tmp_path / "server.log", 1 << 16
    for _ in range(2):  # the second goes on in the first one's file
        log = RotatingLog(path, most)
        for number in range(3_000):
            log.write(f"line {number:05d} {'x' * 50}\n".encode())
        log.close()
    assert path.stat().st_size + rotated_log(path).stat().st_size <= most
    lines = [*rotated_log(path).read_text().splitlines(), *path.read_text().splitlines()]
    numbers = [int(line.split()[1]) for line in lines]
    assert numbers[-1] == 2_999
    assert numbers == list(range(numbers[0], 3_000))
    assert len(ServerLog(tmp_path, {}).last_lines()) == 0  # all of it was there before


# Whose port it is: a server is asked only where nobody else could answer for it.

LISTENER = """
import socket, sys
with socket.socket() as s:
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    s.bind(("127.0.0.1", int(sys.argv[1])))
    s.listen()
    print("up", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def stranger() -> Iterator[tuple[int, int]]:
    """A process that listens on a port, and would share it; both numbers."""
    port = find_free_port("127.0.0.1")
    with subprocess.Popen(
        [sys.executable, "-c", LISTENER, f"{port}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        yield process.pid, port


@pytest.mark.process
def test_a_port_that_is_shared_is_a_strangers_too(stranger: tuple[int, int]) -> None:
    pid, port = stranger
    assert not is_port_free("127.0.0.1", port)
    assert find_own_and_foreign_listener(port, [os.getpid()]) == (False, pid)
    assert find_own_and_foreign_listener(port, [pid]) == (True, None)
    with socket.socket() as mine:
        mine.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        mine.bind(("127.0.0.1", port))
        mine.listen()
        assert find_own_and_foreign_listener(port, [os.getpid()]) == (True, pid)
        assert find_own_and_foreign_listener(port, [os.getpid(), pid]) == (True, None)


@pytest.mark.process
def test_a_free_port_is_below_those_of_outgoing_connections() -> None:
    ports = [find_free_port("127.0.0.1") for _ in range(20)]
    assert max(ports) < 32_768
    assert len(set(ports)) > 15
    assert all(is_port_free("127.0.0.1", port) for port in ports)
    assert find_own_and_foreign_listener(ports[0], [os.getpid()]) == (False, None)
