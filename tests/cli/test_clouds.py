"""One run of `coeval` whose students are on three clouds, as a user starts it: a process of its own, keys in
the environment, fakes of the hosts on loopback."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli.coeval_process import called
from fakes.bedrock import fake_bedrock
from fakes.gemini import fake
from fakes.vertex import fake_vertex, key_file

pytestmark = pytest.mark.slow

ACCESS_KEY, SECRET = "AKIAMADEUP0EXAMPLE07", "s3cr3t/Made+Up0123456789abcdefghijklmnop"
GEMINI_KEY = "AIzaSyTest-0123456789abcdefghijklmnopqrs"

EXPERIMENT = """
models:
  - {{name: writer, interface: simulated, parameters: {{model: sim}}, roles: [teacher, judge]}}
  - name: gem
    interface: gemini
    parameters: {{model: gemini-2.5-flash, base_url: "{gemini}"}}
    roles: [student]
  - name: ver
    interface: vertex
    parameters: {{model: gemini-2.5-flash, base_url: "{vertex}"}}
    roles: [student]
  - name: bed
    interface: bedrock
    parameters: {{model: us.anthropic.claude-sonnet-4-5-20250929-v1:0, base_url: "{bedrock}"}}
    roles: [student]
tasks:
  - name: explain
    description: Explain a concept
    output_description: a paragraph
    target_attributes: {{level: [easy, hard]}}
    sampling: {{total: 3}}
    rubric: {{clear: Is it clear?}}
experiment: {{id: clouds, storage_folder: "{runs}"}}
"""


async def test_three_clouds_answer_in_one_run_and_no_output_holds_a_credential(tmp_path: Path) -> None:
    async with (
        fake_bedrock(keys={ACCESS_KEY: SECRET}) as bedrock,
        fake(keys=[GEMINI_KEY]) as gemini,
        fake_vertex() as vertex,
    ):
        account = tmp_path / "account"
        account.mkdir()
        env = {
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
            "GEMINI_API_KEY": GEMINI_KEY,
            "GOOGLE_APPLICATION_CREDENTIALS": str(key_file(account, vertex.token_url)),
        }
        urls = {"bedrock": bedrock.url, "gemini": gemini.url, "vertex": vertex.url}
        runs, file = tmp_path / "runs", tmp_path / "clouds.yaml"
        file.write_text(EXPERIMENT.format(runs=runs, **urls))
        ended = await called(tmp_path, "run", "--config", file, "--log-level", "DEBUG", env=env)
    assert ended.code == 0, ended.err
    asked = [len(host.asked) for host in (bedrock, gemini, vertex)]
    assert asked == [4, 4, 4]  # a probe and three items each
    assert vertex.token_asked == 1
    kept = [path.read_text() for path in runs.rglob("*") if path.is_file()]
    everything = "\n".join([ended.out, ended.err, *kept])
    assert "explain__writer__00003__bed" in everything
    for secret in (ACCESS_KEY, SECRET, GEMINI_KEY, *vertex.issued, "PRIVATE KEY"):
        assert secret not in everything
