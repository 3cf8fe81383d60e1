"""What is shown of a server's output, and how much of it is kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from coeval.sweeps.guard import BoundedLog, older
from coeval.sweeps.server_log import LINES, ServerLog

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
    assert "It wrote nothing" in log.told()
    log.path.write_text("out of memory\n")
    assert "Probably the GPU has too little memory free" in log.told()
    log.begin()
    assert "It wrote nothing" in log.told()
    with log.path.open("a") as file:
        file.write("ModuleNotFoundError: No module named 'vllm'\n")
    assert "Probably a package that the server needs is not installed" in log.told()


def test_gigabytes_of_output_take_no_more_than_a_log_may(tmp_path: Path) -> None:
    path, most = tmp_path / "server.log", 1 << 16
    for _ in range(2):  # the second goes on in the first one's file
        log = BoundedLog(path, most)
        for number in range(3_000):
            log.write(f"line {number:05d} {'x' * 50}\n".encode())
        log.close()
    assert path.stat().st_size + older(path).stat().st_size <= most
    lines = [*older(path).read_text().splitlines(), *path.read_text().splitlines()]
    numbers = [int(line.split()[1]) for line in lines]
    assert numbers[-1] == 2_999
    assert numbers == list(range(numbers[0], 3_000))
    assert len(ServerLog(tmp_path, {}).last_lines()) == 0  # all of it was there before
