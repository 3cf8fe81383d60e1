"""Logs of Inspect (``.eval``, ``.json``), version 2 of its format: https://inspect.aisi.org.uk/eval-logs.html"""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec
import zstandard

from coeval.core.errors import Undecodable, UsageError
from coeval.core.foreign import decode_python
from coeval.core.regular_files import read_file_bytes
from coeval.core.text import canonical_json
from coeval.exchange.imported import ForeignAnswer, ForeignResult, make_usage_if_plausible, to_float

# --- Files

_ZSTANDARD = 93  # Python reads this compression by itself from 3.14
_ENCRYPTED = 0x1
# What a damaged archive raises, by where the damage lies.
_DAMAGES = (
    *(zipfile.BadZipFile, zlib.error, zstandard.ZstdError, struct.error),
    *(EOFError, NotImplementedError, ValueError),
)
# Bytes of one member of an archive: a sample with its transcript is a few megabytes.
_LARGEST = 1 << 30


class _LogValue(msgspec.Struct):
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
    scores: dict[str, _LogValue] | None = None
    error: dict[str, Any] | None = None
    attachments: dict[str, str] = {}


class LogEval(msgspec.Struct):
    task: str
    model: str
    task_display_name: str | None = None
    model_generate_config: dict[str, Any] = {}
    scorers: list[dict[str, Any]] | None = None


class _LogFigures(msgspec.Struct):
    name: str
    metrics: dict[str, _LogValue] = {}
    scorer: str = ""


class _LogResults(msgspec.Struct):
    scores: list[_LogFigures] = []


class InspectLog(msgspec.Struct):
    eval: LogEval
    status: str = ""
    results: _LogResults | None = None
    samples: list[LogSample] | None = None


def _read_archive_log(path: Path) -> InspectLog:
    """Read an ``.eval`` archive; raises UsageError if it is damaged or was never finished."""
    data = read_file_bytes(path)
    try:
        with zipfile.ZipFile(BytesIO(data)) as archive:
            members = {info.filename: info for info in archive.infolist()}
            if "header.json" not in members:
                raise UsageError(f"{path} was never finished; `inspect log recover` closes it")
            log = decode_python(_unpack_member(archive, members["header.json"], data), InspectLog)
            log.samples = [
                decode_python(_unpack_member(archive, info, data), LogSample)
                for name, info in members.items()
                if name.startswith("samples/") and name.endswith(".json")
            ]
    except _DAMAGES as error:
        raise UsageError(f"{path} is damaged, or no log of Inspect: {error}") from error
    log.samples.sort(key=lambda sample: (sample.epoch, str(sample.id).rjust(12)))
    return log


def _unpack_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, data: bytes) -> bytes:
    """Unpack a file of the archive, limited to the size that the archive declares."""
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


TOOL = "inspect"

# How Inspect itself makes numbers of these.
_WORDS = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0, "yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}
_ATTACHMENT = "attachment://"


def read_inspect(path: Path) -> ForeignResult:
    """Read a log. Raises UsageError: it is no log, is damaged, or holds no samples."""
    try:
        is_archive = path.suffix.lower() == ".eval"
        log = _read_archive_log(path) if is_archive else decode_python(read_file_bytes(path), InspectLog)
    except Undecodable as error:
        raise UsageError(f"{path} is not an Inspect log: {error}") from error
    if not log.samples:
        raise UsageError(f"{path} holds no samples: Inspect was run without logging them")
    remarks = () if log.status == "success" else (f"the log's status is {log.status or 'unknown'}",)
    reported = {
        score.name if score.name == score.scorer else f"{score.scorer}/{score.name}": to_float(metric.value)
        for score in (log.results.scores if log.results is not None else [])
        for name, metric in score.metrics.items()
        if name.rpartition("/")[2] in ("accuracy", "mean") and isinstance(metric.value, int | float)
    }
    return ForeignResult(
        tool=TOOL,
        task=log.eval.task_display_name or log.eval.task,
        model=log.eval.model,
        answers=[_convert_sample(sample) for sample in log.samples],
        settings=canonical_json(log.eval.model_generate_config),
        judges=dict(_list_judges(log.eval)),
        reported=reported,
        remarks=remarks,
    )


def _list_judges(log: LogEval) -> Iterator[tuple[str, str]]:
    """Yield each scorer that calls a model, with the model's name."""
    for scorer in log.scorers or []:
        options = scorer.get("options")
        model = options.get("model") if isinstance(options, Mapping) else None
        name = model.get("model") if isinstance(model, Mapping) else model
        if isinstance(name, str) and isinstance(scorer.get("name"), str):
            yield scorer["name"], name


def _convert_sample(sample: LogSample) -> ForeignAnswer:
    """Convert a sample; scores with several values are named ``scorer/part``."""
    scores: dict[str, float | None] = {}
    for name, score in (sample.scores or {}).items():
        if isinstance(score.value, Mapping):
            scores |= {f"{name}/{part}": _convert_score(value) for part, value in score.value.items()}
        else:
            scores[name] = _convert_score(score.value)
    text = sample.output.completion
    if text is None and sample.output.choices:
        text = _join_text_parts(sample.output.choices[0].get("message", {}).get("content"))
    failed = sample.error is not None
    usage = sample.output.usage or {}
    return ForeignAnswer(
        item=str(sample.id),
        sample=sample.epoch - 1,
        scores={} if failed and not scores else scores,
        prompt=_resolve_attachment(_read_last_message(sample.input), sample.attachments),
        answer=None if failed else _resolve_attachment(text or "", sample.attachments),
        error=str((sample.error or {}).get("message", "")) if failed else "",
        usage=make_usage_if_plausible(usage.get("input_tokens"), usage.get("output_tokens")),
        latency_s=sample.output.time,
    )


def _convert_score(value: Any) -> float | None:
    """Return a score as the number that Inspect takes it for: NaN if not scored, None if no number."""
    if isinstance(value, str):
        if (known := _WORDS.get(value, _WORDS.get(value.lower()))) is not None:
            return known
        try:
            return float(value)
        except ValueError:
            return None
    return to_float(value) if isinstance(value, int | float) else None


def _read_last_message(messages: Any) -> str:
    """Return the input text, or the last message of a conversation."""
    if isinstance(messages, list):
        last = messages[-1] if messages else None
        return _join_text_parts(last.get("content")) if isinstance(last, Mapping) else ""
    return messages if isinstance(messages, str) else ""


def _join_text_parts(content: Any) -> str:
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, Mapping)]
        return "\n".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""


def _resolve_attachment(text: str, attachments: Mapping[str, str]) -> str:
    return attachments.get(text.removeprefix(_ATTACHMENT), text) if text.startswith(_ATTACHMENT) else text
