"""Writes results in other tools' formats, one file for each model and task where the format asks for it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

from coeval.benchmarks.run.task_folder import file_name
from coeval.core.errors import UsageError
from coeval.exchange.exported import AnswerOut, Export, FigureOut, export_of, folders_to_export
from coeval.exchange.hub import check_hub, push_card, push_dataset
from coeval.exchange.inspect_out import write_inspect
from coeval.exchange.lm_eval_out import write_lm_eval
from coeval.exchange.published_figures import write_every_eval_ever, write_model_index
from coeval.exchange.tables_out import write_csv, write_parquet
from coeval.store.jsonl import store_error


def _by_model(
    write: Callable[[str, str, Sequence[AnswerOut], Sequence[FigureOut], Path], list[Path]],
) -> Callable[[Export, Path], list[Path]]:
    """Call ``write`` for each task and model."""

    def write_each(found: Export, out: Path) -> list[Path]:
        answers: defaultdict[tuple[str, str], list[AnswerOut]] = defaultdict(list)
        for answer in found.answers():
            answers[answer.task, answer.model].append(answer)
        figures = found.figures()
        paths = []
        for (task, model), of_task in answers.items():
            own = [figure for figure in figures if (figure.task, figure.model) == (task, model)]
            paths += write(task, model, of_task, own, out / file_name(model))
        return paths

    return write_each


FORMATS: dict[str, Callable[[Export, Path], list[Path]]] = {
    "csv": write_csv,
    "parquet": write_parquet,
    "inspect": _by_model(write_inspect),
    "lm-eval": _by_model(write_lm_eval),
    "every-eval-ever": write_every_eval_ever,
    "hf-results": write_model_index,
}
"""What writes each format: the files that it wrote."""


def export_results(folder: str | Path, to: str, out: str | Path, *, push: str | None = None) -> list[Path]:
    """Write the results of a run, an output folder or a sweep in another format; return the files.

    Parameters
    ----------
    folder : a run, an output folder of ``eval-framework``, or a sweep, whose checkpoints get a folder each
    to : ``inspect``, ``lm-eval``, ``every-eval-ever``, ``hf-results``, ``csv`` or ``parquet``
    out : a folder that is new or empty
    push : also send the files to the Hugging Face hub: ``hf-results`` to the card of the model ``USER/REPO``
        (``MODEL=USER/REPO`` where they hold several models), other formats to the dataset ``USER/REPO``

    Raises
    ------
    UsageError
        the folder holds no results, or none that this format can hold; ``out`` is not empty; the hub did not
        take the files.
    StoreError
        a file cannot be read or written.
    """
    if to not in FORMATS:
        raise UsageError(f"{to} is no format; there are {', '.join(FORMATS)}")
    if push is not None:
        check_hub()
    target = Path(out)
    try:
        if target.exists() and any(target.iterdir()):
            raise UsageError(f"{target} is not empty; give --out another folder")
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise store_error("create", target, error) from error
    paths: list[Path] = []
    for name, place in folders_to_export(Path(folder)).items():
        with export_of(place) as found:
            paths += FORMATS[to](found, target / name)
    if push is not None and to == "hf-results":
        push_card(paths, push)
    elif push is not None:
        push_dataset(target, Path(folder).resolve().name, push)
    return paths
