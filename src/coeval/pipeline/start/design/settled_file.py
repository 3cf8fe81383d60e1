"""An experiment file in which what was left to teachers stands as they proposed it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

from ruamel.yaml.error import YAMLError

from coeval.core.errors import ConfigError, UsageError
from coeval.pipeline.config.document import parse_document, read_text
from coeval.pipeline.config.load_file import Loaded, read_config
from coeval.pipeline.config.schema import Config
from coeval.pipeline.phases.blueprint import Kind
from coeval.pipeline.start.design.file_edits import KeyWay, Unplaced, YamlEdits, written
from coeval.pipeline.start.design.propose_only import ProposedPart
from coeval.store.rundir import yaml_text
from coeval.store.snapshot import without_credentials

__all__ = ["SettledFile", "refuse_credentials", "settled_file"]

_KEY: Mapping[Kind, str] = {
    "target": "target_attributes",
    "nuanced": "nuanced_attributes",
    "rubric": "rubric",
}


class SettledFile(NamedTuple):
    """``config`` is what ``text`` says. ``rewritten``: the comments of the file could not be kept;
    ``hidden`` are models of which a key was left out."""

    text: str
    config: Config
    rewritten: bool
    hidden: tuple[str, ...]


def settled_file(file: Path, loaded: Loaded, parts: Sequence[ProposedPart]) -> SettledFile:
    """The file with every part in its place, and without keys of models; all else as it stands, comments
    too, where the file is written so that this can be done. What comes of it is read and compared before it
    is given back."""
    data, hidden = _settled(loaded, parts)
    expected = read_config(deepcopy(data)).config
    text = _edited(file, loaded, parts)
    kept = text is not None and _says(text, file, expected)
    return SettledFile(
        text if text is not None and kept else yaml_text(data), expected, rewritten=not kept, hidden=hidden
    )


def refuse_credentials(loaded: Loaded) -> None:
    """
    Raises
    ------
    UsageError
        a model has a credential elsewhere than in ``access_key``, as in an address: a copy of the file would
        hold it too, or not work.
    """
    for model in loaded.data["models"]:
        bare = {name: value for name, value in model.items() if name != "access_key"}
        shown = without_credentials([model])[0]
        if differing := [name for name, value in bare.items() if shown[name] != value]:
            raise UsageError(
                f"models.{model['name']}.{differing[0]} holds a credential, which would come into the "
                "new file as well; put it into a key file first"
            )


def _says(text: str, file: Path, expected: Config) -> bool:
    try:
        return read_config(parse_document(text, file)).config == expected
    except ConfigError:
        return False


def _settled(loaded: Loaded, parts: Sequence[ProposedPart]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The file as plain data, and the models of which a credential is hidden in it."""
    data = deepcopy(loaded.data)
    hidden = tuple(model["name"] for model in data["models"] if model.pop("access_key", None) is not None)
    tasks = {task["name"]: task for task in data["tasks"]}
    for part in parts:
        task, key = tasks[part.task], _KEY[part.kind]
        for name, asked in _sampling(loaded.config, part).items():
            task["sampling"][name] = asked
        task[key] = part.value
        task.pop(f"{key}_seed", None)
    return data, hidden


def _sampling(config: Config, part: ProposedPart) -> dict[str, Any]:
    """What of a task's ``sampling`` changes with a part: ``complete`` walks the full cross product, and
    items cannot have more attributes than were proposed."""
    task = next(task for task in config.tasks if task.name == part.task)
    if part.kind == "rubric":
        return {}
    if part.kind == "target" and task.target_attributes == "complete":
        return {"target": "all"}
    name = "target" if part.kind == "target" else "nuance"
    asked = task.sampling.target if part.kind == "target" else task.sampling.nuance
    labels = task.label_attributes if part.kind == "target" else ()
    there = sum(attribute not in labels for attribute in part.value)
    return {name: [there, there]} if not isinstance(asked, str) and asked[0] > there else {}


def _edited(file: Path, loaded: Loaded, parts: Sequence[ProposedPart]) -> str | None:
    """The text of the file with these parts, where its words can be found."""
    text = read_text(file)
    places = {task["name"]: place for place, task in enumerate(loaded.data["tasks"])}
    tasks = loaded.data["tasks"]
    try:
        edits = YamlEdits(text)
        for place, model in enumerate(loaded.data["models"]):
            if "access_key" in model:
                edits.remove(("models", place, "access_key"))
        for part in parts:
            key, way = _KEY[part.kind], ("tasks", places[part.task])
            said: KeyWay = (*way, key)
            edits.expand(said, part.value, _remark(part))
            for name, asked in _sampling(loaded.config, part).items():
                edits.put((*way, "sampling", name), written(asked))
            if f"{key}_seed" in tasks[places[part.task]]:
                edits.remove((*way, f"{key}_seed"))
        return edits.text()
    except (Unplaced, YAMLError):
        return None


def _remark(part: ProposedPart) -> str:
    return f"proposed by {', '.join(part.authors)}" if part.authors else "as the run has it"
