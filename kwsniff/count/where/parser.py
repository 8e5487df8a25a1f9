"""Text to tokens, and tokens to a tree by recursive descent: `or`, `and`, `not`, comparisons, `+ -`, `* /`,
sign, single values.

Words of the language are written in any case.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from kwsniff.count.where import WhereError, wrong

TIME_UNITS = {
    "ns": 1e-3, "us": 1, "µs": 1, "μs": 1, "ms": 1e3, "s": 1e6, "sec": 1e6, "min": 60e6, "m": 60e6,
    "h": 3600e6, "d": 86_400e6,
}  # fmt: skip
"""In microseconds."""
BYTE_UNITS = {
    "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30,
}  # fmt: skip
"""In bytes; written in any case."""
DURATION, SIZE = "µs", "bytes"

_TOKENS = re.compile(
    r"""
    (?P<space>\s+)
  | (?P<text>[rR]?(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'))
  | (?P<moment>\d{4}-\d\d-\d\d(?:T\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?(?![\w.:-]))
  | (?P<endpoint>\d+\.\d+\.\d+\.\d+:\d+)
  | (?P<network>\d+\.\d+\.\d+\.\d+(?:/\d+)?
              |[0-9a-fA-F:]*::[0-9a-fA-F:.]*(?:/\d+)?
              |(?:[0-9a-fA-F]+:){7}[0-9a-fA-F]+(?:/\d+)?)
  | (?P<clock>\d{1,2}:\d\d(?::\d\d(?:\.\d+)?)?(?!\w))
  | (?P<number>(?:0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?))(?P<unit>[A-Za-zµμ]\w*)?
  | (?P<name>[^\W\d]\w*)
  | (?P<sign>==|!=|<=|>=|!~|=~|<>|&&|\|\||\*\*|//|[<>~+\-*/()\[\],.=!&|])
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"', "'": "'"}

MAX_LENGTH = 10_000
CONSTANTS = ("number", "quantity", "text", "moment", "clock", "network", "endpoint")
WORDS = {"true": True, "false": False, "null": None, "none": None}
KEYWORDS = frozenset(("and", "or", "not", "in", "is", "like", "between"))
OPERATORS = (
    *(("==",), ("!=",), ("<",), ("<=",), (">",), (">=",), ("~",), ("!~",), ("in",), ("like",), ("between",)),
    *(("not", "in"), ("not", "like"), ("not", "between"), ("is", "not"), ("is",)),
)
"""What compares, as the tokens that it is written in."""
FOREIGN = {
    "&&": "&& is written and",
    "||": "|| is written or",
    "&": "& and | are not part of the language; write and",
    "|": "& and | are not part of the language; write or",
    "!": "! is written not",
    "<>": "<> is written !=",
    "=": "equality is written ==",
    "=~": "a regular expression is written ~",
    "**": "arithmetic knows + - * / only",
    "//": "arithmetic knows + - * / only",
}


class Token(NamedTuple):
    """A word of the language."""

    kind: str
    """One of CONSTANTS, `name`, `sign`, or `end`."""
    text: str
    value: Any
    """What is meant: of a quantity a pair of microseconds or bytes, and which of the two; a name in lower
    case."""
    at: int
    """Its position, from 1."""


class Node(NamedTuple):
    """A part of an expression."""

    at: int
    """Position of its first character, from 1."""
    kind: str
    """One of CONSTANTS, `word` for true, false and none, `name`, `call`, `list`, `comparison`, `arithmetic`,
    `sign`, `and`, `or`, `not`."""
    value: Any = None
    """Of a constant its value; the parts of a name such as `partitions.error_code`; the name of a function;
    the operator of arithmetic; the operators of a comparison, each between two neighbours."""
    items: tuple[Node, ...] = ()
    """What it is made of; of `between` the bounds are a list."""


def tokens(text: str) -> Iterator[Token]:
    """The tokens of `text`, the last of kind `end`. Raises WhereError."""
    place = 0
    while place < len(text):
        found = _TOKENS.match(text, place)
        if found is None:
            quote = text[place] in "\"'"
            what = "a quote that is not closed" if quote else f"{text[place]!r} is not part of the language"
            raise wrong(place + 1, what)
        if found.lastgroup != "space":
            yield _token(found)
        place = found.end()
    yield Token("end", "", None, len(text) + 1)


def _token(found: re.Match[str]) -> Token:
    kind, text, at = found.lastgroup or "", found[0], found.start() + 1
    if kind == "unit":
        return Token("quantity", text, _quantity(found), at)
    if kind == "text":
        # A backslash before anything else than these stays: regular expressions are full of them.
        value = text[2:-1] if text[0] in "rR" else _ESCAPE.sub(_unescaped, text[1:-1])
        return Token(kind, text, value, at)
    if kind == "number":
        return Token(kind, text, _number(text), at)
    return Token(kind, text, text.lower() if kind == "name" else text, at)


def _number(text: str) -> int | float:
    if text[:2] in ("0x", "0X"):
        return int(text, 16)
    return int(text) if text.isdecimal() else float(text)


def _quantity(found: re.Match[str]) -> tuple[float, str]:
    number, unit = _number(found["number"]), found["unit"]
    if unit in TIME_UNITS:
        return number * TIME_UNITS[unit], DURATION
    if unit.lower() in BYTE_UNITS:
        return number * BYTE_UNITS[unit.lower()], SIZE
    units = "ns us ms s min h d, and B kB MB GB KiB MiB GiB"
    raise wrong(found.end("number") + 1, f"unknown unit {unit!r}; there are {units}")


def _unescaped(found: re.Match[str]) -> str:
    escape = found[1]
    return chr(int(escape[1:], 16)) if len(escape) > 1 else _ESCAPED.get(escape, found[0])


def parse(text: str) -> Node:
    """The tree of an expression.

    Raises:
        WhereError: it is not one; with the position of the first thing that is wrong.
    """
    if len(text) > MAX_LENGTH:
        raise WhereError(f"--where: longer than {MAX_LENGTH} characters")
    if not text.strip():
        raise wrong(1, "the expression is empty")
    try:
        return _Parser(list(tokens(text))).whole()
    except (RecursionError, MemoryError):
        raise WhereError("--where: nested too deeply") from None


class _Parser:
    def __init__(self, found: list[Token]) -> None:
        self._tokens = found
        self._place = 0

    @property
    def _next(self) -> Token:
        return self._tokens[self._place]

    def _take(self) -> Token:
        self._place += 1
        return self._tokens[self._place - 1]

    def _is(self, *words: str) -> bool:
        """Whether one of these words or signs comes next."""
        return self._next.kind in ("name", "sign") and self._next.value in words

    def _taken(self, *words: str) -> bool:
        """Whether these come next, one after the other; then they are passed."""
        ahead = self._tokens[self._place : self._place + len(words)]
        found = [token.value for token in ahead if token.kind in ("name", "sign")] == list(words)
        self._place += len(words) if found else 0
        return found

    def _unexpected(self, wanted: str) -> WhereError:
        token = self._next
        if token.kind == "sign" and token.text in FOREIGN:
            return wrong(token.at, FOREIGN[token.text])
        if token.kind == "end":
            return wrong(token.at, f"the expression ends where {wanted} is missing")
        return wrong(token.at, f"{token.text!r} stands where {wanted} is expected")

    def whole(self) -> Node:
        node = self.either()
        if self._next.kind != "end":
            raise self._unexpected("and, or, or the end")
        return node

    def either(self) -> Node:
        return self._joined("or", lambda: self._joined("and", self.negated))

    def _joined(self, word: str, operand: Callable[[], Node]) -> Node:
        nodes = [operand()]
        while self._taken(word):
            nodes.append(operand())
        return nodes[0] if len(nodes) == 1 else Node(nodes[0].at, word, None, tuple(nodes))

    def negated(self) -> Node:
        at = self._next.at
        return Node(at, "not", None, (self.negated(),)) if self._taken("not") else self.comparison()

    def comparison(self) -> Node:
        nodes, operators = [self.sum()], []
        while operator := next((" ".join(words) for words in OPERATORS if self._taken(*words)), ""):
            operators.append(operator)
            nodes.append(self.bounds() if operator.endswith("between") else self.sum())
        return Node(nodes[0].at, "comparison", operators, tuple(nodes)) if operators else nodes[0]

    def bounds(self) -> Node:
        low = self.sum()
        if not self._taken("and"):
            raise self._unexpected("the `and` of between")
        return Node(low.at, "list", None, (low, self.sum()))

    def sum(self) -> Node:
        return self._calculated(("+", "-"), lambda: self._calculated(("*", "/"), self.signed))

    def _calculated(self, signs: tuple[str, ...], operand: Callable[[], Node]) -> Node:
        node = operand()
        while self._is(*signs):
            node = Node(node.at, "arithmetic", self._take().text, (node, operand()))
        return node

    def signed(self) -> Node:
        if self._is("-", "+"):
            token = self._take()
            return Node(token.at, "sign", token.text, (self.signed(),))
        return self.alone()

    def alone(self) -> Node:
        token = self._next
        if token.kind in CONSTANTS:
            self._take()
            return Node(token.at, token.kind, token.value)
        if self._is("(", "["):
            items, comma = self._listed()
            alone = len(items) == 1 and not comma and token.text == "("
            return items[0] if alone else Node(token.at, "list", None, tuple(items))
        if token.kind == "name" and token.value not in KEYWORDS:
            return self.named()
        raise self._unexpected("a column or a value")

    def _listed(self) -> tuple[list[Node], bool]:
        """What stands in brackets, and whether the last of it is followed by a comma."""
        closing = {"(": ")", "[": "]"}[self._take().text]
        items: list[Node] = []
        comma = True
        while comma and not self._is(closing):
            items.append(self.either())
            comma = self._taken(",")
        if not self._taken(closing):
            raise self._unexpected(f"`{closing}`")
        return items, comma

    def named(self) -> Node:
        first = self._take()
        if first.value in WORDS:
            return Node(first.at, "word", WORDS[first.value])
        parts = [first.text]
        while self._taken("."):
            if self._next.kind != "name":
                raise self._unexpected("a name")
            parts.append(self._take().text)
        if not self._is("("):
            return Node(first.at, "name", tuple(parts))
        # `column.startswith("x")` is `startswith(column, "x")`.
        column = [Node(first.at, "name", tuple(parts[:-1]))] if len(parts) > 1 else []
        return Node(first.at, "call", parts[-1], (*column, *self._listed()[0]))
