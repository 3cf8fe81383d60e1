"""An experiment file with teachers' proposals in place of ``auto``, ``complete`` and ``extend``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap
from ruamel.yaml.error import YAMLError

from coeval.core.errors import ConfigError, UsageError
from coeval.pipeline.config.document import parse_document, read_config_text
from coeval.pipeline.config.findings import FileData
from coeval.pipeline.config.load_file import LoadedConfig, read_config
from coeval.pipeline.config.schema import Config
from coeval.pipeline.phases.blueprint import Kind
from coeval.pipeline.start.partial_starts import ProposedPart
from coeval.store.rundir import hide_credentials

_KEY: Mapping[Kind, str] = {
    "target": "target_attributes",
    "nuanced": "nuanced_attributes",
    "rubric": "rubric",
}


class FileWithProposals(NamedTuple):
    """The new ``text``, and the ``config`` that it holds. ``rewritten``: comments could not be kept;
    ``hidden`` are models whose key was left out."""

    text: str
    config: Config
    rewritten: bool
    hidden: tuple[str, ...]


def insert_proposed_parts(
    file: Path, loaded: LoadedConfig, parts: Sequence[ProposedPart]
) -> FileWithProposals:
    """Insert the parts into a file's text, keeping its comments, without keys of models. The result is parsed
    and compared with what is expected."""
    data, yaml = deepcopy(loaded.data), _build_yaml()
    hidden = _insert_parts_and_hide_keys(data, loaded.config, parts)
    expected = read_config(data).config
    try:
        edited = yaml.load(read_config_text(file))
        _insert_parts_and_hide_keys(edited, loaded.config, parts)
        text = _dump_yaml(yaml, edited)
        kept = read_config(parse_document(text, file)).config == expected
    except (ConfigError, YAMLError, KeyError):  # of what is merged by <<, ruamel.yaml takes out no key
        kept = False
    return FileWithProposals(
        text if kept else _dump_yaml(yaml, data), expected, rewritten=not kept, hidden=hidden
    )


def _build_yaml() -> YAML:
    """Return a YAML reader and writer that keeps comments, quotes and the order of keys."""
    yaml = YAML(typ="rt", pure=True)
    yaml.preserve_quotes = True
    yaml.default_flow_style = None  # lists of words on a line
    yaml.width = 4096
    yaml.indent(mapping=2, sequence=4, offset=2)
    return yaml


def _dump_yaml(yaml: YAML, data: Any) -> str:
    stream = StringIO()
    yaml.dump(data, stream)
    return stream.getvalue()


def refuse_credentials_in_addresses(loaded: LoadedConfig) -> None:
    """Raise UsageError if a model has a credential outside ``access_key``, as in an address: a copy of the
    file would hold it, or not work."""
    for model in loaded.data["models"]:
        bare = {name: value for name, value in model.items() if name != "access_key"}
        hidden = hide_credentials([model])[0]
        if differing := [name for name, value in bare.items() if hidden[name] != value]:
            raise UsageError(
                f"models.{model['name']}.{differing[0]} holds a credential, which would end up in the "
                "new file; put it into a key file first"
            )


def _insert_parts_and_hide_keys(
    data: FileData, config: Config, parts: Sequence[ProposedPart]
) -> tuple[str, ...]:
    """Put the parts into a file's data; return the models whose credential was removed."""
    models = data.get("models") or ()
    hidden = tuple(model["name"] for model in models if model.pop("access_key", None) is not None)
    tasks = {task["name"]: task for task in data.get("tasks") or ()}
    for part in parts:
        task, key = tasks.get(part.task, {}), _KEY[part.kind]  # none: inherited by resume_from
        task.setdefault("sampling", {}).update(_find_sampling_changes(config, part))
        task[key] = CommentedMap(part.value)
        task[key].fa.set_block_style()
        task.pop(f"{key}_seed", None)
        if isinstance(task, CommentedMap) and not task.fa.flow_style():
            remark = f"proposed by {', '.join(part.authors)}" if part.authors else "as the run has it"
            task.yaml_set_comment_before_after_key(key, before=remark, indent=4)
    return hidden


def _find_sampling_changes(config: Config, part: ProposedPart) -> dict[str, Any]:
    """Return the changes to ``sampling`` that a part implies: ``complete`` walks all combinations, and an
    item cannot have more attributes than were proposed."""
    task = next(task for task in config.tasks if task.name == part.task)
    if part.kind == "rubric":
        return {}
    if part.kind == "target" and task.target_attributes == "complete":
        return {"target": "all"}
    name = "target" if part.kind == "target" else "nuance"
    requested = task.sampling.target if part.kind == "target" else task.sampling.nuance
    labels = task.label_attributes if part.kind == "target" else ()
    proposed = sum(attribute not in labels for attribute in part.value)
    return {name: [proposed, proposed]} if not isinstance(requested, str) and requested[0] > proposed else {}
