"""Figures of training runs in sentences: scores in their unit, differences in points."""

from __future__ import annotations

from coeval.analysis.comparison.comparison_sentence import difference_text

__all__ = ["p_text", "points_text", "score_text", "signed_points"]


def score_text(value: float, unit: str) -> str:
    """``0.612`` of a share, ``6.36`` points, ``61.2 %``"""
    match unit:
        case "percent":
            return f"{value:.1f} %"
        case "points":
            return f"{value:.2f}"
        case _:
            return f"{value:.3f}"


def points_text(difference: float, unit: str) -> str:
    """``3.1``: points of a hundred, or of ten where that is the scale."""
    return _plain(f"{difference * _points(unit):.{_digits(unit)}f}")


def signed_points(difference: float, low: float, high: float, unit: str) -> str:
    """``3.1 ± 1.9``, or ``3.1 [0.4, 4.2]`` where the interval is lopsided."""
    by = _points(unit)
    return difference_text(difference * by, low * by, high * by, _digits(unit))


def p_text(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def _points(unit: str) -> float:
    return 100.0 if unit == "share" else 1.0


def _digits(unit: str) -> int:
    return 2 if unit == "points" else 1


def _plain(text: str) -> str:
    return text.replace("-", "−") if float(text) else text.removeprefix("-")
