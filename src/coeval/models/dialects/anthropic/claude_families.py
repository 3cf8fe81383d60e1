"""What each family of Claude models takes, wherever it is served: at Anthropic, in a cloud, behind a proxy.

Sources: Anthropic's pages on thinking ("support, defaults and rejected configurations by model"), effort,
structured outputs and prompt caching, and its migration guides, read in November 2026.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal, NamedTuple, TypeAlias

__all__ = ["ClaudeFamily", "family_of"]

Drawing: TypeAlias = Literal["any", "one of them", "none"]


class ClaudeFamily(NamedTuple):
    """What a model takes.

    ``drawing`` says which of temperature and top_p may be set; where none may, top_k may not either. A model
    ``budgets`` its thinking by a number of tokens, or ``adapts`` it to the question by itself; ``effort``
    says how much it does altogether. ``off`` is what turns thinking off, None where nothing does. Where
    ``hides``, its reasoning is told only if that is asked for. ``schemas``: it follows a JSON schema, else a
    tool has to be forced on it. ``cached_from`` is the least number of tokens in a prefix that the cache
    keeps; ``max_tokens`` what an answer gets that is given no limit, which the API insists on. Thinking
    counts towards it.
    """

    drawing: Drawing = "any"
    budgets: bool = False
    adapts: bool = False
    effort: bool = False
    off: Literal["disabled", "between_tools"] | None = "disabled"
    hides: bool = False
    schemas: bool = False
    cached_from: int = 1024
    max_tokens: int = 8192


_OTHER = ClaudeFamily(budgets=True, effort=True)
"""No Claude by its name, behind an address that speaks Anthropic's API: it is sent what it is asked with."""
_OLD = ClaudeFamily(cached_from=2048, max_tokens=4096)
_BUDGETED = ClaudeFamily(budgets=True)
_ONE = _BUDGETED._replace(drawing="one of them")
_FOUR_FIVE = _ONE._replace(schemas=True)
_FOUR_SIX = _FOUR_FIVE._replace(adapts=True, effort=True)
_ADAPTIVE = ClaudeFamily(
    drawing="none", adapts=True, effort=True, hides=True, schemas=True, max_tokens=16_384
)
_FIVE = _ADAPTIVE._replace(cached_from=512)
_ALWAYS = _FIVE._replace(off=None)

_FAMILIES: tuple[tuple[str, tuple[int, int], ClaudeFamily], ...] = (
    ("fable", (5, 0), _ALWAYS),
    ("mythos", (5, 0), _ALWAYS),
    ("mythos", (0, 0), _ALWAYS._replace(budgets=True)),
    ("opus", (5, 5), _ALWAYS),
    ("opus", (5, 0), _FIVE),
    ("opus", (4, 8), _ADAPTIVE),
    ("opus", (4, 7), _ADAPTIVE._replace(cached_from=2048)),
    ("opus", (4, 6), _FOUR_SIX._replace(cached_from=4096)),
    ("opus", (4, 5), _FOUR_FIVE._replace(effort=True, cached_from=4096)),
    ("opus", (4, 1), _ONE),
    ("opus", (4, 0), _BUDGETED),
    ("sonnet", (5, 5), _FIVE._replace(off="between_tools")),
    ("sonnet", (5, 0), _FIVE._replace(cached_from=1024)),
    ("sonnet", (4, 6), _FOUR_SIX),
    ("sonnet", (4, 5), _FOUR_FIVE),
    ("sonnet", (3, 7), _BUDGETED),
    ("haiku", (5, 0), _FIVE),
    ("haiku", (4, 5), _FOUR_FIVE._replace(cached_from=4096)),
    ("haiku", (3, 5), _OLD._replace(max_tokens=8192)),
    ("sonnet", (3, 5), ClaudeFamily()),
    ("", (5, 0), _FIVE),
    ("", (0, 0), _OLD),
)
"""A line of models ("": any), the first version, and what it takes: the first row that a model is not older
than holds. A minimum for the cache that is too low does no harm: a prefix that is too short is priced as any
other."""

_VERSION = r"(\d{1,2})(?:[-.](\d{1,2}))?(?!\d)"
_NAMES = (
    re.compile(rf"claude-(?P<line>[a-z]+)-{_VERSION}"),
    re.compile(rf"claude-{_VERSION}-(?P<line>[a-z]+)"),
    re.compile(r"claude-(?P<line>mythos)"),
)


@lru_cache(maxsize=1024)
def family_of(model: str) -> ClaudeFamily:
    """The family of a model by its id, however a host spells it: ``claude-sonnet-4-5-20250929``,
    ``anthropic.claude-opus-4-1-20250805-v1:0``, ``claude-3-7-sonnet-latest``."""
    for name in _NAMES:
        if (found := name.search(model.lower())) is not None:
            numbers = [int(number or 0) for number in found.groups() if number is None or number.isdigit()]
            line, version = found["line"], (*numbers, 0, 0)[:2]
            return next(family for of, first, family in _FAMILIES if of in (line, "") and version >= first)
    return _OTHER
