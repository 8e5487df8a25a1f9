"""What the parser makes of an expression. `at` is the position of a node's first character, from 1."""

from __future__ import annotations

from typing import Any, NamedTuple


class Constant(NamedTuple):
    """A value that stands in the expression."""

    at: int
    kind: str
    """Kind of its token, see `kwsniff.where.lexer`, or `word` for true, false and none."""
    value: Any


class NameNode(NamedTuple):
    """A column, a short name, or a path into one: `partitions.error_code`."""

    at: int
    parts: tuple[str, ...]


class Call(NamedTuple):
    """A function with its arguments; `column.startswith("x")` is `startswith(column, "x")`."""

    at: int
    name: str
    arguments: tuple[Node, ...]


class Listing(NamedTuple):
    """`[a, b]` or `(a, b)`."""

    at: int
    items: tuple[Node, ...]


class Unary(NamedTuple):
    """`not`, `-` or `+` before something."""

    at: int
    operator: str
    operand: Node


class Binary(NamedTuple):
    """Arithmetic, `and`, `or`."""

    at: int
    operator: str
    left: Node
    right: Node


class Comparison(NamedTuple):
    """`a < b <= c`: each operator stands between two neighbours. `in`, `like` and `between` are operators
    too; `between` has a Listing of its two bounds."""

    at: int
    operators: tuple[str, ...]
    operands: tuple[Node, ...]


Node = Constant | NameNode | Call | Listing | Unary | Binary | Comparison
