"""The template of a server's command: placeholders, quotes, braces, what it is asked for by."""

from __future__ import annotations

import pytest

from coeval.core.errors import UsageError
from coeval.sweeps.server_command import DEFAULT, PRESETS, ServerCommand
from coeval.sweeps.worker_files import Server


def filled(template: str, **values: object) -> list[str]:
    given = {"checkpoint": "/my ckpt/step_10", "name": "Qwen3", "tp_size": 2, "gpus": ("2", "3"), **values}
    return list(ServerCommand(template).filled(Server(template=template, **given), 8123))  # type: ignore[arg-type]


def test_the_default_is_vllm_as_the_guide_has_it() -> None:
    words = filled(DEFAULT)
    assert words[:5] == ["vllm", "serve", "/my ckpt/step_10", "--served-model-name", "Qwen3"]
    assert words[5:9] == ["--host", "127.0.0.1", "--port", "8123"]
    assert words[9:] == ["--tensor-parallel-size", "2", "--gpu-memory-utilization", "0.95"]
    assert filled("vllm") == filled(DEFAULT)
    assert "--max-model-len" not in DEFAULT


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
            r"\{model\} is no placeholder; there are \{checkpoint\}, \{name\}",
        ),
        ("vllm serve {chekpoint} --port {port}", r"did you mean \{checkpoint\}\?"),
        ("vllm serve {checkpoint}", r"is to say \{port\}"),
        ("vllm serve x --port {port} > log", "without a shell, and '>' is a shell's"),
        ("CUDA_VISIBLE_DEVICES=1 vllm serve x --port {port}", "write `env` before it"),
    ],
)
def test_what_is_wrong_is_said_at_once(template: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        ServerCommand(template)


def test_presets_have_a_port_of_their_own() -> None:
    assert all("8123" in filled(name) for name in PRESETS)
