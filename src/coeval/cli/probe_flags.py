"""Which models are tried before anything is asked of them, and what one that does not answer does."""

from enum import StrEnum


class ProbeMode(StrEnum):
    FULL = "full"
    RESUME = "resume"
    DISABLE = "disable"


class OnFail(StrEnum):
    ABORT = "abort"
    WARN = "warn"
