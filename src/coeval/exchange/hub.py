"""Sends exported files to the Hugging Face hub: figures to a model's card, other files to a dataset."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from coeval.core.entry_points import install_command
from coeval.core.errors import UsageError
from coeval.core.foreign import decode
from coeval.core.redaction import Redactor

if TYPE_CHECKING:
    from huggingface_hub import EvalResult


def check_hub() -> None:
    """Raises UsageError: the hub's client is not installed."""
    if find_spec("huggingface_hub") is None:
        raise UsageError(f"--push needs the client of the hub: {install_command('hub')}")


def push_dataset(out: Path, name: str, repo: str) -> None:
    """Upload the files of ``out`` as the folder ``name`` of the dataset ``repo``, which is created, private,
    where there is none. The token is the client's: ``HF_TOKEN``, or ``hf auth login``.

    Raises
    ------
    UsageError
        the hub did not take the files.
    """
    from huggingface_hub import HfApi

    hub = HfApi()
    # Without --private the command makes a public dataset where there is none.
    later = f"hf upload --repo-type dataset --private {quote(repo)} {quote(str(out))} {quote(name)}"
    with _refusals(f"the files are in {out}; send them later: {later}"):
        hub.create_repo(repo, repo_type="dataset", private=True, exist_ok=True)
        hub.upload_folder(
            repo_id=repo,
            repo_type="dataset",
            folder_path=out,
            path_in_repo=name,
            commit_message=f"Results of {name}",
        )


def push_card(paths: Sequence[Path], target: str) -> None:
    """Enter figures into a model's card on the hub, in the place of earlier ones of the same task and metric.

    Parameters
    ----------
    paths : files that `write_model_index` wrote
    target : ``USER/REPO``, or ``MODEL=USER/REPO`` where the files hold several models

    Raises
    ------
    UsageError
        it is open which figures are meant; the hub did not take them.
    """
    wanted, _, repo = target.rpartition("=")
    indexes: list[dict[str, Any]] = [decode(path.read_bytes()) for path in paths]
    named = [(index["model-index"][0]["name"], index) for index in indexes]
    chosen = [index for name, index in named if wanted in ("", name)]
    if len(chosen) != 1:
        names = ", ".join(sorted({name for name, _ in named}))
        raise UsageError(
            f"--push {target} has to name the figures of one model, and names those of {len(chosen)} files: "
            f"write --push MODEL=USER/REPO, with one of {names}; of a sweep, export one checkpoint's folder"
        )
    with _refusals(f"{repo} has to be a model that you may write to; the files are written"):
        _enter(chosen[0], repo)


def _enter(index: dict[str, Any], repo: str) -> None:
    """Put figures into a card in the place of CoEval's earlier ones. The client's own update takes a figure
    with another n or interval for one of another metric, and keeps both."""
    from huggingface_hub import ModelCard, ModelCardData
    from huggingface_hub.errors import EntryNotFoundError
    from huggingface_hub.repocard_data import model_index_to_eval_results

    model, new = model_index_to_eval_results(index["model-index"])
    try:
        card = ModelCard.load(repo)
    except EntryNotFoundError:
        card = ModelCard.from_template(ModelCardData())
    places = {_place(one) for one in new}
    there = card.data.eval_results or []
    card.data.eval_results = [one for one in there if not _is_ours(one) or _place(one) not in places] + new
    card.data.model_name = card.data.get("model_name") or model
    card.push_to_hub(repo, commit_message="Results by CoEval")


def _is_ours(result: EvalResult) -> bool:
    return str((result.metric_args or {}).get("measured_by", "")).startswith("CoEval")


def _place(result: EvalResult) -> tuple[Any, ...]:
    """What a figure is of; a newer one of the same is in its place."""
    sample = (result.metric_args or {}).get("sample", 0)
    return result.task_type, result.dataset_type, result.dataset_config, result.metric_type, sample


@contextmanager
def _refusals(way_out: str) -> Iterator[None]:
    from huggingface_hub.errors import HfHubHTTPError

    # Its first base is the error of whichever HTTP client this version of the hub's package uses.
    lost: type[Exception] = HfHubHTTPError.__bases__[0]
    try:
        yield
    except (lost, OSError, ValueError) as error:
        raise UsageError(f"the hub did not take the results: {Redactor().line(error)}; {way_out}") from error
