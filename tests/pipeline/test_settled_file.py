"""However a file is written, what is proposed comes to stand in it, and the rest says what it said."""

from __future__ import annotations

from pathlib import Path

import pytest

from coeval.core.errors import UsageError
from coeval.pipeline.config.load_file import load_config, read_config
from coeval.pipeline.start.propose_only import ProposedPart
from coeval.pipeline.start.settled_file import SettledFile, refuse_credentials, settled_file

MODELS = "models:\n- {name: ann, interface: simulated, roles: [teacher, student, judge]}\n"
EXPERIMENT = "experiment: {id: x, storage_folder: runs}  # last"
PARTS = [
    ProposedPart("t", "target", {"mood": ["glad", "no"], "a: b": ["#1", "null", "ü"]}, ("ann",)),
    ProposedPart("t", "rubric", {"plot": 'It\'s "so": # [1]\n  two', "yes": " lead"}, ()),
]
REST = "description: D.\n  output_description: O.\n  nuanced_attributes: {}\n"

LAYOUTS = {
    "block": f"- name: t\n  {REST}  target_attributes: auto\n  sampling: {{total: 2}}\n  rubric: auto\n",
    "seeds before the next key": f"- name: t\n  {REST}  target_attributes: auto\n"
    "  target_attributes_seed:\n    mood: [glad]\n\n  # kept\n  sampling: {total: 2}\n  rubric: auto\n",
    "complete, with a range to replace": f"- name: t\n  {REST}  target_attributes: complete # all\n"
    "  sampling:\n    target: [1, 2]\n    total: 2\n  rubric: auto\n",
    "complete, without a range": f"- name: t\n  {REST}  target_attributes: complete # all\n"
    "  sampling:\n    total: 2\n  rubric: auto\n",
    "flow": "- {name: t, description: D., target_attributes_seed: {mood: [glad]}, target_attributes: auto, "
    "rubric: 'auto', sampling: {total: 2}}\n",
    "seed at the end": f"- name: t\n  {REST}  rubric: auto\n  sampling: {{total: 2}}\n"
    "  target_attributes: auto\n  target_attributes_seed: {mood: [glad]}",
    "lines of another system": f"- name: t\n  {REST}  target_attributes: auto # x\n"
    "  sampling: {total: 2}\n  rubric: auto # y\n".replace("\n", "\r\n"),
}
NOT_FOLLOWED = {
    "a word that stands elsewhere": "- name: t\n  description: &word auto\n  target_attributes: *word\n"
    "  sampling: {total: 2}\n  rubric: *word\n",
    "a seed that begins its task": "- target_attributes_seed: {mood: [glad]}\n  name: t\n"
    f"  {REST}  target_attributes: auto\n  sampling: {{total: 2}}\n  rubric: auto\n",
    "words over lines": f"- name: t\n  {REST}  target_attributes: >-\n    auto\n"
    "  sampling: {total: 2}\n  rubric: auto\n",
}


def settled(tmp_path: Path, task: str) -> tuple[str, SettledFile]:
    text = f"# first\n{MODELS}tasks:\n{task}\n{EXPERIMENT}\n"
    file = tmp_path / "draft.yaml"
    file.write_bytes(text.encode())
    return text, settled_file(file, read_config(file), PARTS)


def holds(tmp_path: Path, found: SettledFile) -> None:
    file = tmp_path / "settled.yaml"
    file.write_bytes(found.text.encode())
    task = load_config(file).tasks[0]
    assert (task.target_attributes, task.rubric) == (PARTS[0].value, PARTS[1].value)
    assert (task.target_attributes_seed, task.sampling.total) == (None, 2)
    assert load_config(file) == found.config


@pytest.mark.parametrize("layout", LAYOUTS)
def test_only_what_was_left_to_teachers_changes(layout: str, tmp_path: Path) -> None:
    text, found = settled(tmp_path, LAYOUTS[layout])
    assert not found.rewritten
    holds(tmp_path, found)
    touched = ("auto", "complete", "_seed", "mood:", "target: [", "sampling")
    stays = [line for line in text.splitlines() if not any(part in line for part in touched)]
    assert [line for line in stays if line not in found.text.splitlines()] == []
    walks = "complete" in layout
    assert (found.config.tasks[0].sampling.target == "all") is walks


@pytest.mark.parametrize("layout", NOT_FOLLOWED)
def test_what_is_written_too_oddly_is_written_anew(layout: str, tmp_path: Path) -> None:
    _, found = settled(tmp_path, NOT_FOLLOWED[layout])
    assert found.rewritten
    holds(tmp_path, found)


def test_a_key_in_an_address_is_refused(tmp_path: Path) -> None:
    key = "sk-" + "Ab1" * 15
    address = (
        f"- {{name: eve, interface: vllm, roles: [judge], parameters: {{base_url: 'http://u:{key}@h'}}}}\n"
    )
    file = tmp_path / "draft.yaml"
    file.write_text(f"{MODELS}{address}tasks:\n{LAYOUTS['block']}{EXPERIMENT}")
    with pytest.raises(UsageError, match=r"models\.eve\.parameters holds a credential") as caught:
        refuse_credentials(read_config(file))
    assert key not in str(caught.value)
