"""The files of Inspect's logs: JSON, or an archive of JSON whose members may be compressed with Zstandard."""

from __future__ import annotations

import struct
import zipfile
import zlib
from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec
import zstandard

from coeval.core.errors import UsageError
from coeval.core.foreign import decode_python
from coeval.core.plain import file_bytes

_ZSTANDARD = 93  # Python reads this compression by itself from 3.14
_ENCRYPTED = 0x1
# What a damaged archive raises, by where the damage lies.
_DAMAGES = (
    *(zipfile.BadZipFile, zlib.error, zstandard.ZstdError, struct.error),
    *(EOFError, NotImplementedError, ValueError),
)
# Bytes of one member of an archive: a sample with its transcript is a few megabytes.
_LARGEST = 1 << 30


class _LogScore(msgspec.Struct):
    value: Any = None


class _LogOutput(msgspec.Struct):
    completion: str | None = None
    choices: list[dict[str, Any]] = []
    usage: dict[str, Any] | None = None
    time: float | None = None


class LogSample(msgspec.Struct):
    id: int | str
    epoch: int = 1
    input: Any = ""
    output: _LogOutput = msgspec.field(default_factory=_LogOutput)
    scores: dict[str, _LogScore] | None = None
    error: dict[str, Any] | None = None
    attachments: dict[str, str] = {}


class LogEval(msgspec.Struct):
    task: str
    model: str
    task_display_name: str | None = None
    model_generate_config: dict[str, Any] = {}
    scorers: list[dict[str, Any]] | None = None


class _LogMetric(msgspec.Struct):
    value: Any = None


class _LogFigures(msgspec.Struct):
    name: str
    metrics: dict[str, _LogMetric] = {}
    scorer: str = ""


class _LogResults(msgspec.Struct):
    scores: list[_LogFigures] = []


class InspectLog(msgspec.Struct):
    eval: LogEval
    status: str = ""
    results: _LogResults | None = None
    samples: list[LogSample] | None = None


def read_log(path: Path) -> tuple[InspectLog, list[LogSample]]:
    """Read a log and its samples. Raises Undecodable, UsageError: it is none, damaged or unfinished."""
    return _of_archive(path) if path.suffix.lower() == ".eval" else _of_json(path)


def _of_json(path: Path) -> tuple[InspectLog, list[LogSample]]:
    log = decode_python(file_bytes(path), InspectLog)
    return log, log.samples or []


def _of_archive(path: Path) -> tuple[InspectLog, list[LogSample]]:
    data = file_bytes(path)
    try:
        with zipfile.ZipFile(BytesIO(data)) as archive:
            members = {info.filename: info for info in archive.infolist()}
            if "header.json" not in members:
                raise UsageError(f"{path} was never finished; `inspect log recover` closes it")
            log = decode_python(_member(archive, members["header.json"], data), InspectLog)
            samples = [
                decode_python(_member(archive, info, data), LogSample)
                for name, info in members.items()
                if name.startswith("samples/") and name.endswith(".json")
            ]
    except _DAMAGES as error:
        raise UsageError(f"{path} is damaged, or no log of Inspect: {error}") from error
    return log, sorted(samples, key=lambda one: (one.epoch, str(one.id).rjust(12)))


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, data: bytes) -> bytes:
    if info.file_size > _LARGEST:
        raise UsageError(f"{info.filename} in the log has {info.file_size:,} bytes")
    if info.flag_bits & _ENCRYPTED:
        raise UsageError(f"{info.filename} in the log is encrypted; write the log again without a password")
    if info.compress_type == _ZSTANDARD:
        # Behind the 30 bytes of the member's own header are its name and its extra field.
        name, extra = struct.unpack("<HH", data[info.header_offset + 26 : info.header_offset + 30])
        start = info.header_offset + 30 + name + extra
        packed = data[start : start + info.compress_size]
        stream: Any = zstandard.ZstdDecompressor().stream_reader(packed, read_across_frames=True)
    elif info.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        stream = archive.open(info)
    else:
        raise zipfile.BadZipFile(f"{info.filename} has a compression that Inspect does not use")
    with stream:  # a few kilobytes can unpack to gigabytes: no more than the archive declares
        content: bytes = stream.read(info.file_size + 1)
    if len(content) != info.file_size or zlib.crc32(content) != info.CRC:
        raise zipfile.BadZipFile(f"{info.filename} differs from the length or checksum in the archive")
    return content
