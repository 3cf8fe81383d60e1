"""What came of one batched request, as it is kept until a record is made of it."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from coeval.core.errors import ModelError
from coeval.core.records import Completion, Usage
from coeval.models.dialects.dialect import FieldRejected, LimitRenamed, SchemaRejected

__all__ = ["BatchOutcome", "StoredError"]


class StoredError(msgspec.Struct, frozen=True, omit_defaults=True):
    """A ModelError by the name of its class; ``field`` is that of a `FieldRejected`."""

    kind: str
    message: str
    status: int | None = None
    retry_advised: bool = True
    field: str = ""
    usage: Usage | None = None

    @classmethod
    def of(cls, error: ModelError) -> StoredError:
        field = error.field if isinstance(error, FieldRejected) else ""
        return cls(type(error).__name__, str(error), error.status, error.retry_advised, field, error.usage)

    def error(self) -> ModelError:
        """The error itself, to be raised as if it came now."""
        kind = _KINDS.get(self.kind, ModelError)
        if issubclass(kind, FieldRejected):
            return kind(self.message, field=self.field, status=self.status)
        made = kind(self.message, status=self.status, retry_advised=self.retry_advised, usage=self.usage)
        made.status = self.status
        return made


class BatchOutcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answer to a request, priced and freed of credentials, or the error that it ended in."""

    id: str
    completion: Completion | None = None
    error: StoredError | None = None


def _all(kind: type[ModelError]) -> Iterator[type[ModelError]]:
    yield kind
    for more in kind.__subclasses__():
        yield from _all(more)


_KINDS: dict[str, type[ModelError]] = {
    kind.__name__: kind for kind in (*_all(ModelError), FieldRejected, LimitRenamed, SchemaRejected)
}
