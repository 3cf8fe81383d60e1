"""The reference pages made from the code: ``cli.md``, ``eval-framework-cli.md``, ``configuration.md``.

``python tools/docs/write_reference.py`` writes them, ``--check`` exits 1 where one is stale.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from coeval.cli import main as cli
from coeval.cli.eval_framework.command import make_app as eval_framework
from coeval.core.records import LABELS_KEY
from coeval.models.catalog import HOSTS, Host
from coeval.models.dialects.anthropic_messages import find_claude_family
from coeval.pipeline.config import rules
from coeval.pipeline.config.json_schema import FOLLOWING, build_schema_text
from coeval.pipeline.prompts import NEEDS, VARIABLES
from coeval.simulation.traits import RANGES, SAMPLING

FOLDER = Path(__file__).resolve().parents[2] / "docs"
WIDTH = 100
_MANY = 10
MADE = "<!-- Made from the code by tools/docs/write_reference.py: change it there, and run `make docs`. -->\n"

Node = Mapping[str, Any]
"""A part of the JSON schema."""


def cli_page() -> str:
    """The help of ``coeval`` and of each of its commands."""
    parts = [
        MADE,
        "# The `coeval` command\n",
        "Exit codes, of every command: 0 complete; 1 the request was wrong; "
        "2 a probed model is unavailable; 3 finished, but with gaps; 4 a comparison failed its threshold; "
        "130 interrupted, with all finished work on disk. Closing the output early (`| head -1`) does not "
        "change the exit code. `--help` or `-h` shows a command's section.\n",
        _help(typer.main.get_command(cli.build_app()), "coeval"),
    ]
    return "\n".join(parts)


def eval_framework_page() -> str:
    """The help of ``eval-framework``."""
    parts = [
        MADE,
        "# The `eval-framework` command\n",
        "Published benchmarks on one model. What each task asks, judges and reports stands in "
        "[benchmarks.md](benchmarks.md), where its data come from in [datasets.md](datasets.md).\n",
        _help(typer.main.get_command(eval_framework()), "eval-framework"),
    ]
    return "\n".join(parts)


def _help(command: Any, path: str, parent: Any = None) -> str:
    """A command's section, and those of the commands below it: its help text as a terminal shows it, and a
    table of what it takes."""
    settings = command.context_settings | {"terminal_width": WIDTH, "max_content_width": WIDTH}
    context = command.context_class(command, info_name=path.rpartition(" ")[2], parent=parent, **settings)
    formatter = context.make_formatter()
    command.format_usage(context, formatter)
    command.format_help_text(context, formatter)
    command.format_epilog(context, formatter)
    text = "\n".join(line.rstrip() for line in formatter.getvalue().splitlines())
    below = {name: part for name, part in getattr(command, "commands", {}).items() if not part.hidden}
    commands = [(f"`{name}`", part.get_short_help_str(WIDTH)) for name, part in below.items()]
    taken = _table(("", "meaning"), [*_taken(command, context), *commands])
    sections = [f"## `{path}`\n\n```text\n{text}\n```\n\n{taken}"]
    sections += [_help(part, f"{path} {name}", context) for name, part in below.items()]
    return "\n".join(sections)


def _taken(command: Any, context: Any) -> Iterator[tuple[str, str]]:
    """Each argument and option with its meaning, below the heading of its group where it has one."""
    groups: dict[str, list[tuple[str, str]]] = {}
    for parameter in command.get_params(context):
        shown = parameter.get_help_record(context)
        if shown is not None and "--help" not in parameter.opts:
            name, meaning = (" ".join(part.split()).replace("|", "\\|") for part in shown)
            group = getattr(parameter, "rich_help_panel", None) or ""
            groups.setdefault(group, []).append((f"`{name}`", meaning.replace("<", "\\<")))
    for group in sorted(groups, key=bool):
        yield from [(f"**{group}**", "")] * bool(group)
        yield from groups[group]


def configuration_page() -> str:
    """Every key of an experiment file, every rule it is held to, every interface and template."""
    schema = json.loads(build_schema_text())
    sections = schema["$defs"]
    task = sections["TaskConfig"]
    parts = [
        MADE,
        "# The experiment file\n",
        "One YAML 1.2 file with three sections: who takes part, what is evaluated, and where and within what "
        "limits it is run. `examples/quickstart.yaml` is one with a comment at every key. Editors that know "
        "JSON schemas can check it against `src/coeval/pipeline/config/experiment.schema.json`.\n",
        _keys(
            "Sections", schema, "With `resume_from`, `models` and `tasks` may be left out and are inherited."
        ),
        _keys("`models[]`", sections["ModelConfig"]),
        _keys("`models[].variants.{variant}`", sections["Variant"]),
        _parameters(sections["Parameters"]),
        _keys("`tasks[]`", {**task, "required": [*task["required"], *FOLLOWING]}),
        _keys("`tasks[].items`", sections["Items"]),
        _keys("`students[]`", sections["AnsweredStudent"]),
        _keys("`students[].responses`", sections["AnswerTable"]),
        _keys("`tasks[].sampling`", sections["Sampling"]),
        _keys("`experiment`", sections["Experiment"]),
        _keys("`experiment.quota.{model}`", sections["Quota"]),
        _rules(),
        _interfaces(),
        _templates(),
    ]
    return "\n".join(parts)


def _keys(title: str, section: Node, note: str = "") -> str:
    required = set(section.get("required", ()))
    rows = [
        (f"`{name}`", _type(key), _default(key, name in required), key.get("description", ""))
        for name, key in section["properties"].items()
    ]
    about = " ".join(filter(None, [section.get("description", ""), note]))
    return f"## {title}\n\n{about}\n\n{_table(('key', 'type', 'default', 'meaning'), rows)}"


def _parameters(section: Node) -> str:
    """Our parameters as keys; those of providers whose types are checked in a sentence."""
    usual = {name: key for name, key in section["properties"].items() if name in SAMPLING}
    ours = {name: key for name, key in section["properties"].items() if name not in usual}
    kinds: dict[str, list[str]] = {}
    for name, key in usual.items():
        kinds.setdefault(_type(key), []).append(f"`{name}`")
    listed = "; ".join(f"{kind}: {', '.join(names)}" for kind, names in kinds.items())
    note = f"Of these others the types are checked too, and null is not sent: {listed}."
    return _keys("`models[].parameters`", {**section, "properties": ours}, note)


def _type(key: Node) -> str:
    """A key's type in words."""
    match key:
        case {"$ref": str(reference)}:
            return "mapping, see below" if reference.rpartition("/")[2] != "Parameters" else "parameters"
        case {"enum": list(words)} if len(words) > _MANY:
            return "a word, see below"
        case {"enum": list(words)}:
            return " \\| ".join(f"`{word}`" for word in words)
        case {"const": word}:
            return f"`{word}`"
        case {"anyOf": list(choices)} | {"oneOf": list(choices)}:
            return " or ".join(_type(choice) for choice in choices if choice.get("type") != "null")
        case {"type": "array", "maxItems": 2}:
            return "[lo, hi]"
        case {"type": "array", "items": items}:
            return f"list of {_type(items)}"
        case {"type": "object", "additionalProperties": dict(values)}:
            return f"mapping to {_type(values)}"
        case {"type": "object"}:
            return "mapping"
        case {"type": list()}:
            return "values"
        case _:
            return f"{key['type']}{_range(key)}"


def _range(key: Node) -> str:
    if "minimum" in key:
        return f" ≥ {key['minimum']}"
    return f" > {key['exclusiveMinimum']}" if "exclusiveMinimum" in key else ""


def _default(key: Node, required: bool) -> str:
    if required:
        return "required"
    value = key.get("default")
    return "" if value in (None, "") else f"`{json.dumps(value, ensure_ascii=False)}`"


def _rules() -> str:
    """The table beside ``rules``."""
    table = Path(rules.__file__).with_suffix(".md").read_text(encoding="utf-8")
    about = "All mistakes of a file are reported at once, each as `file:line  key  rule  what is wrong`."
    return f"## Rules\n\n{about}\n\n{table}"


_PLACES = (
    "What stands in braces in an address is a key of the host's entry in the key file, a variable, or a "
    "parameter of the model; `parameters.base_url` goes before it, and the rest of the path is kept. "
    "`azure_openai` asks the deployment that `model` names at `{endpoint}/openai/deployments/{model}/"
    "chat/completions?api-version={api_version}` where `api_version` is a date; without one, with `v1`, "
    "`preview` or `latest`, and where the endpoint ends in `/openai/v1` (or `/v1`), at the newer "
    "`{endpoint}/openai/v1/chat/completions`. `azure_ai` asks at `{endpoint}/models/chat/completions`, or, "
    "where the endpoint ends in `/v1` or serves a single model, at `{endpoint}/chat/completions`. Both take "
    "the target URI that Azure's portal shows for an endpoint. "
    "`OLLAMA_HOST` may leave out the scheme, the port and `/v1`; a `base_url` of `groq`, `mistral`, "
    "`cerebras`, `huggingface_api` and `cohere` may leave out the path of the API, as for their own clients."
)


_CLOUDS = (
    "`gemini` is called by generateContent; its base URL may leave out `/v1beta`. `vertex` is called by the "
    "same below the project and the location (`global` and the multi-regions `us` and `eu` have hosts of "
    "their own): a `model` is an id of Google's (`gemini-2.5-flash`), `publisher/id` for what another "
    "publisher serves by generateContent (Claude is not, nor what has only an OpenAI-shaped address), "
    "`endpoints/NUMBER` for one that was tuned, or a full name (`projects/…`). It needs `pip install "
    "'.[vertex]'` and a service account's key (`service_account_key`), whose project is asked where no "
    "other is set, or the application default credentials; tokens are renewed while a run goes on. An "
    "`access_key` is an access token as `gcloud auth print-access-token` prints it. `bedrock` is called by "
    "Converse: `model` is a model's id, an inference profile's, or an ARN. It needs an API key of "
    "Bedrock, or `access_key_id` and `secret_access_key` (and `session_token`) and `pip install "
    "'.[bedrock]'`; profiles and roles of AWS are not looked for. What only Google knows "
    "(`safetySettings`, `presencePenalty`) or a model on Bedrock goes through under its own name, into "
    "`generationConfig` and `additionalModelRequestFields` where it belongs there, and `extra_body` is "
    "laid over these field by field. Both read `reasoning_effort` in the words of the model's family: a "
    "`thinkingBudget` before Gemini 3 and a `thinkingLevel` from it on, Claude's `effort`, Nova's "
    "`reasoningConfig`; of Gemini, thoughts come with the answer where one of the two is set. `bedrock` "
    "does not support `seed` and log-probabilities; Gemini from 3.6 on, and 3.5 Flash-Lite, would pass "
    "over `temperature`, `top_p` and `top_k`: these are refused by name, or left out where nobody asked "
    "for them. Gemma 3 and Mixtral, which take no system prompt, are told it at the beginning of the "
    "first turn."
)


def _refusals() -> str:
    """Which host does not support which typed parameter, and which model."""
    hosts = list(HOSTS.own.values())
    names = sorted({name for host in hosts for name in host.lacks})
    lacking = [(name, [host.name for host in hosts if name in host.lacks]) for name in names]
    shaped = [h.name for h in hosts if h.dialect == "openai_chat" and h.reasons_by != "reasoning"]
    reported = "; ".join(
        f"`{name}` by {', '.join(f'`{host}`' for host in by)}"
        for name, by in [*lacking, ("thinking_budget", shaped)]
    )
    return (
        f"A parameter that a host does not support is refused by name before anything is sent: {reported}. "
        "With a `base_url`, `openai` stands for any server of its shape, which may know more: then that "
        "server's refusal decides. Parameters that a family of models refuses, or passes over without a "
        "word, are refused alike: OpenAI's reasoning models take no `temperature` or `top_p` but 1, no "
        "log-probabilities, and o3, o4-mini and GPT-5 no `stop` (from GPT-5.1 on, what goes with "
        "`reasoning_effort`); `deepseek-reasoner` takes no `temperature`, `top_p` or log-probabilities. A "
        "system prompt is sent to OpenAI's reasoning models in the role `developer`, and to models without "
        "such a role (o1-mini; Gemma before 3 behind `vllm` and `huggingface_api`) at the beginning of the "
        "first turn."
    )


_ANSWER, _THINKING_ANSWER = (
    find_claude_family(f"claude-{name}").max_tokens for name in ("haiku-4-5", "opus-5")
)
_CLAUDE = (
    "`anthropic` is called by the Messages API, version 2023-06-01, at a `base_url` with or without `/v1`. "
    "What a family of Claude takes stands in `src/coeval/models/dialects/anthropic_messages.py`; "
    "what it does not take is refused by name, or left out where nobody asked for it. `temperature`, "
    "`top_p` and `top_k` are for models up to Opus 4.6, Sonnet 4.6 and Haiku 4.5 (from 4.1 on not "
    "`temperature` and `top_p` together), and not for one that thinks. `thinking_budget` (1,024 tokens or "
    "more; 0 turns thinking off) is for models up to 4.6, `reasoning_effort` for Opus from 4.5, Sonnet "
    f"from 4.6 and Haiku from 5 on. An answer without `max_tokens` gets {_ANSWER:,} tokens (4,096 of "
    f"Claude 3), and {_THINKING_ANSWER:,} from "
    "Opus 4.7 and the models of 5 on, which think within them; a `thinking_budget` comes beside. There "
    "are no seeds and no log-probabilities. A schema goes as `output_config.format`, and to models before "
    "4.5 as a tool that they have to call. Where judgments of one answer begin alike (`per_factor`, "
    "HealthBench), that beginning is kept in Anthropic's cache if it is long enough for the model, and "
    "one request goes ahead of the others so that they find it; `prompt_caching: false` among a model's "
    "parameters turns it off."
)


def _interfaces() -> str:
    reported = " and ".join(f"`{host.name}`" for host in HOSTS.own.values() if host.takes_labels)
    simulated = ", ".join(f"`{name}` {lo:g}–{hi:g}" for name, (lo, hi) in RANGES.items())
    about = (
        "Who serves a model. A key is looked for in the model's `access_key`, then in the key files "
        "(`--keys`, `COEVAL_KEYS_FILE`, `keys.yaml` in the working folder, `~/.coeval/keys.yaml`; the first "
        "that has the provider is its), then in the environment. A key file reads `providers:` and, below "
        "it, `NAME: KEY` or `NAME: {api_key: KEY, ...}` for each; an entry `NAME: {interface: openai, "
        "api_key: KEY}` is a further account, which a model names as `account: NAME`. "
        "`auto` becomes the cheapest host with a key ([prices.md](prices.md)). Parameters of "
        f"`simulated` models: {simulated}, and `family`, a name.\n\n"
        f"{_PLACES}\n\n"
        f"{_CLOUDS}\n\n"
        f"{_refusals()}\n\n"
        f"{_CLAUDE}\n\n"
        f"Of a task with `label_attributes`, {reported} are sent the values that its labels may have, in the "
        f"field `metadata.{LABELS_KEY}` of each request to a student (never which of them is right). "
        "Simulated models may stand behind these addresses, and answer with a label whatever the wording of "
        "the task; other servers leave the field unread, and one that refuses it is asked without it. No "
        "other interface is "
        "sent it."
    )
    rows = [(f"`{h.name}`", _address(h), ", ".join(_variables(h))) for h in HOSTS.own.values()]
    return f"## Interfaces\n\n{about}\n\n{_table(('interface', 'address', 'environment'), rows)}"


def _address(host: Host) -> str:
    """Its URL, with what it is where nothing is set; what has to be set stays in braces."""
    unset = {name: f"{{{name}}}" for name in host.settings}
    return f"`{host.url.format_map(unset | dict(host.defaults))}`" if host.url else ""


def _variables(host: Host) -> Iterator[str]:
    for names in (host.key_env, *host.settings.values()):
        yield from (f"`{name}`" for name in names)


def _templates() -> str:
    about = (
        "Ids for `prompt_library`, what a template of each may use, and what it has to use (V-35): what "
        "changes from request to request, `{rubric}` only where teachers write it and `{target_attributes}` "
        "only where a task has some. A template that is to do without says so in its task, as in "
        "`prompts_may_omit: [response]`. `{{` and `}}` stand for braces."
    )
    rows = [
        (
            f"`{name}`",
            _placeholders(used),
            ", ".join(_placeholders(one_of, " or ") for one_of in NEEDS.get(name, ())),
        )
        for name, used in VARIABLES.items()
    ]
    return f"## Prompt templates\n\n{about}\n\n{_table(('id', 'variables', 'has to use'), rows)}"


def _placeholders(names: Collection[str], between: str = ", ") -> str:
    return between.join(f"`{{{name}}}`" for name in sorted(names))


def _table(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [header, tuple("---" for _ in header), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


PAGES = {
    "cli.md": cli_page,
    "eval-framework-cli.md": eval_framework_page,
    "configuration.md": configuration_page,
}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only say whether the pages are current")
    check = parser.parse_args(arguments).check
    stale = []
    for name, page in PAGES.items():
        path, text = FOLDER / name, page()
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            continue
        if check:
            stale.append(name)
        else:
            path.write_text(text, encoding="utf-8")
    if stale:
        sys.stderr.write(f"docs/ is stale ({', '.join(stale)}); run make docs\n")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
