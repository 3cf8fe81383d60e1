"""What a user may set of a sweep: the keys of its YAML file, which are the flags of the command."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, get_type_hints

import msgspec

from coeval.core.errors import Misshapen
from coeval.core.foreign import convert
from coeval.pipeline.config.document import read_document
from coeval.pipeline.config.findings import Finding, KeyPath, WayOut, refused

Count: TypeAlias = Annotated[int, msgspec.Meta(ge=1)]
Positive: TypeAlias = Annotated[float, msgspec.Meta(gt=0)]
Share: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=1)]
AtLeastZero: TypeAlias = Annotated[float, msgspec.Meta(ge=0)]


EngineName: TypeAlias = Literal["local", "ray", "slurm"]


class ListedCheckpoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One of ``checkpoints``, where they are named one by one."""

    step: int
    path: str


class CheckpointFolder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``checkpoints`` as a mapping: those below a folder, and ``more`` by name."""

    folder: str | None = None
    name_pattern: str | None = None
    steps: tuple[int, ...] | str | None = None
    more: tuple[ListedCheckpoint, ...] = ()


class SweepSettings(msgspec.Struct, kw_only=True, omit_defaults=True):
    """None: nobody has said. Text with commas may stand for any list, as it does in a flag. ``slurm`` are
    submitit's parameters, such as ``slurm_partition``; they have no flag."""

    out: Path | None = None
    checkpoints: str | CheckpointFolder | tuple[ListedCheckpoint, ...] | None = None
    name_pattern: str | None = None
    steps: tuple[int, ...] | str | int | None = None
    base_model: str | None = None
    watch: bool | None = None
    until_step: int | None = None
    watch_interval: Positive | None = None

    tasks: dict[str, Count] | tuple[str, ...] | str | None = None
    n_samples: dict[str, Count] | Count | str | None = None
    max_examples: Count | None = None
    task_options: dict[str, Any] | tuple[str, ...] | None = None

    engine: EngineName | None = None
    slurm: dict[str, Any] | None = None
    gpus: tuple[int | str, ...] | str | int | None = None
    slots: Count | None = None
    tp_size: Count | None = None
    shards: Count | None = None

    server_command: str | None = None
    server_env: tuple[str, ...] | str | None = None
    served_name: str | None = None
    start_timeout: Positive | None = None
    external: tuple[str, ...] | str | None = None
    api_key: str | None = None

    num_threads: Count | None = None
    temperature: AtLeastZero | None = None
    top_p: Share | None = None
    top_k: int | None = None
    max_tokens: Count | None = None
    timeout: Positive | None = None
    seed: int | None = None

    judge_model: str | None = None
    judge_base_url: str | None = None
    judge_api_key: str | None = None
    judge_temperature: AtLeastZero | None = None
    judge_top_p: Share | None = None
    judge_top_k: int | None = None
    judge_max_tokens: Count | None = None
    judge_jobs: Count | None = None
    judge_batch: bool | None = None

    inference: bool | None = None
    judge: bool | None = None
    plot: bool | None = None
    log_dir: Path | None = None
    keys: Path | None = None

    def under(self, flags: SweepSettings) -> SweepSettings:
        """With what the flags say in place of these."""
        said = {name: value for name, value in msgspec.structs.asdict(flags).items() if value is not None}
        return msgspec.structs.replace(self, **said)


# --- A sweep's YAML file: the flags of the command as keys, every mistake told with its line

_UNKNOWN, _WRONG = "V-18", "V-20"
_KINDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
    "object": "a mapping",
    "null": "nothing",
}
_EXPECTED = re.compile(r"Expected `([^`]*)`, got `([^`]*)`")
_BOUND = re.compile(r"Expected `(\w+)` (>=|<=|>) ([-\d.]+)")
_BOUNDS = {">=": "of at least", "<=": "of at most", ">": "above"}


def read_sweep_file(path: Path) -> SweepSettings:
    """
    Raises
    ------
    ConfigError
        it cannot be read, or has mistakes: unknown keys, values of another kind.
    """
    document = read_document(path, "checkpoints:, out: and tasks:")
    problems = list(document.problems)
    values: dict[str, Any] = {}
    hints = get_type_hints(SweepSettings, include_extras=True)
    for key, value in document.data.items():
        findings = list(_unknown(key, value))
        if not findings and value is not None:
            try:
                values[key] = convert(value, hints[key])
            except Misshapen as error:
                findings = [Finding((key,), _WRONG, _in_words(str(error)))]
        problems += map(document.lines.locate, findings)
    if problems:
        raise refused(problems, str(path))
    return SweepSettings(**values)


def _unknown(key: str, value: Any) -> Iterator[Finding]:
    """Keys that are none, at the top and within ``checkpoints``."""
    yield from _not_among((key,), SweepSettings.__struct_fields__)
    if key != "checkpoints":
        return
    listed: list[tuple[KeyPath, Any]] = []
    if isinstance(value, dict):
        for name in value:
            yield from _not_among((key, name), CheckpointFolder.__struct_fields__)
        listed = [((key, "more", number), each) for number, each in _numbered(value.get("more"))]
    listed += [((key, number), each) for number, each in _numbered(value)]
    for path, each in listed:
        for name in each if isinstance(each, dict) else ():
            yield from _not_among((*path, name), ListedCheckpoint.__struct_fields__)


def _numbered(value: Any) -> Iterator[tuple[int, Any]]:
    return enumerate(value) if isinstance(value, list) else iter(())


def _not_among(path: KeyPath, known: tuple[str, ...]) -> Iterator[Finding]:
    name = str(path[-1])
    if name not in known:
        yield Finding(path, _UNKNOWN, f"the key '{name}' is unknown", WayOut(name, known, "known here:"))


def _in_words(said: str) -> str:
    """What the decoder says of a value, in this project's words."""
    if bound := _BOUND.search(said):
        return f"is to be {_KINDS.get(bound[1], bound[1])} {_BOUNDS[bound[2]]} {float(bound[3]):g}"
    found = _EXPECTED.search(said)
    if found is None:
        return f"cannot be used: {said}"
    wanted = " or ".join(dict.fromkeys(_KINDS.get(kind.strip(), kind) for kind in found[1].split("|")))
    return f"is {_KINDS.get(found[2], found[2])}, and is to be {wanted.replace(' or nothing', '')}"
