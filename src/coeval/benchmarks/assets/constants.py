"""String constants out of Python source, read with ``ast``: the source is never imported or run."""

from __future__ import annotations

import ast

from coeval.models.transport.download import SourceFailed

__all__ = ["string_constant"]


def string_constant(source: str, path: str) -> str:
    """The text that a module-level name is bound to; ``NAME/key/key`` goes into a dictionary.

    Literals, their concatenation, ``.strip()`` without arguments, and other names of the module are
    followed; anything else is refused.

    Raises
    ------
    SourceFailed
        there is no such constant, or it is no text that can be read without running code.
    """
    try:
        module = ast.parse(source)
    except (SyntaxError, ValueError) as error:
        raise SourceFailed(f"the source with the constant {path} is no Python: {error}") from error
    names = {
        target.id: statement.value
        for statement in module.body
        if isinstance(statement, ast.Assign)
        for target in statement.targets
        if isinstance(target, ast.Name)
    }
    name, *keys = path.split("/")
    try:
        node = names[name]
        for key in keys:
            node = _entry(node, key)
        return _text(node, names, frozenset([name]))
    except KeyError as error:
        raise SourceFailed(f"the constant {path} is not readable: there is no {error.args[0]}") from None


def _entry(node: ast.expr, key: str) -> ast.expr:
    if isinstance(node, ast.Dict):
        for candidate, value in zip(node.keys, node.values, strict=True):
            if isinstance(candidate, ast.Constant) and candidate.value == key:
                return value
    raise KeyError(key)


def _text(node: ast.expr, names: dict[str, ast.expr], seen: frozenset[str]) -> str:
    """``seen`` are the names being followed, so that two that name each other end."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _text(left, names, seen) + _text(right, names, seen)
        case ast.Call(func=ast.Attribute(value=inner, attr="strip"), args=[], keywords=[]):
            return _text(inner, names, seen).strip()
        case ast.Name(id=name) if name in names and name not in seen:
            return _text(names[name], names, seen | {name})
        case _:
            raise KeyError(f"plain text in `{ast.unparse(node)[:60]}`")
