"""Text to tokens, and tokens to a tree, by precedence: `or`, `and`, `not`, comparisons, `+ -`, `* /`, sign,
single values.

Words of the language are written in any case.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from kwsniff.count.where import WhereError, wrong

# What the parser makes of an expression. `at` is the position of a node's first character, from 1.


class Constant(NamedTuple):
    """A value that stands in the expression."""

    at: int
    kind: str
    """Kind of its token, see `Token`, or `word` for true, false and none."""
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


# Tokens of an expression.
#
# Kinds: `number`, `quantity` (a number with a unit), `text` (in quotes), `moment` (a date, or date and time),
# `clock` (a time of day), `network` (an address or a CIDR range), `endpoint` (address and port), `name`,
# `sign`, and `end`. The value of a quantity is a pair: microseconds or bytes, and which of the two.

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


class Token(NamedTuple):
    """A word of the language, `value` as it is meant, `at` its position from 1."""

    kind: str
    text: str
    value: Any
    at: int


def tokens(text: str) -> Iterator[Token]:
    """The tokens of `text`, the last of kind `end`. Raises WhereError."""
    place = 0
    while place < len(text):
        found = _TOKENS.match(text, place)
        if found is None:
            raise wrong(place + 1, _unknown(text[place:]))
        kind = found.lastgroup or ""
        if kind != "space":
            yield _token(found, "number" if kind == "unit" else kind)
        place = found.end()
    yield Token("end", "", None, len(text) + 1)


def _token(found: re.Match[str], kind: str) -> Token:
    at, text = found.start() + 1, found[0]
    if kind == "number":
        number = _number(found["number"])
        return Token(kind, text, number, at) if not found["unit"] else _quantity(found, number, at)
    if kind == "text":
        return Token(kind, text, _unquoted(text), at)
    return Token(kind, text, text, at)


def _number(text: str) -> int | float:
    if text[:2] in ("0x", "0X"):
        return int(text, 16)
    return int(text) if text.isdecimal() else float(text)


def _quantity(found: re.Match[str], number: float, at: int) -> Token:
    unit = found["unit"]
    if unit in TIME_UNITS:
        return Token("quantity", found[0], (number * TIME_UNITS[unit], DURATION), at)
    if unit.lower() in BYTE_UNITS:
        return Token("quantity", found[0], (number * BYTE_UNITS[unit.lower()], SIZE), at)
    units = "ns us ms s min h d, and B kB MB GB KiB MiB GiB"
    raise wrong(at + len(found["number"]), f"unknown unit {unit!r}; there are {units}")


def _unquoted(text: str) -> str:
    if text[0] in "rR":
        return text[2:-1]
    return _ESCAPE.sub(lambda escape: _meant(escape[1]), text[1:-1])


def _meant(escape: str) -> str:
    # A backslash before anything else stays: regular expressions are full of them.
    if len(escape) > 1:
        return chr(int(escape[1:], 16))
    return _ESCAPED.get(escape, "\\" + escape)


def _unknown(rest: str) -> str:
    if rest[0] in "\"'":
        return "a quote that is not closed"
    return f"{rest[0]!r} is not part of the language"


MAX_LENGTH = 10_000
ORDER = ("==", "!=", "<", "<=", ">", ">=", "~", "!~")
WORDS = {"true": True, "false": False, "null": None, "none": None}
KEYWORDS = frozenset(("and", "or", "not", "in", "is", "like", "between"))
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
CONSTANTS = ("number", "quantity", "text", "moment", "clock", "network", "endpoint")


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

    def _word(self, *words: str) -> bool:
        """Whether these words of the language come next."""
        ahead = self._tokens[self._place : self._place + len(words)]
        return [token.text.lower() for token in ahead if token.kind == "name"] == list(words)

    def _taken(self, *words: str) -> bool:
        found = self._word(*words)
        self._place += len(words) if found else 0
        return found

    def _sign(self, *signs: str) -> bool:
        return self._next.kind == "sign" and self._next.text in signs

    def _expect(self, sign: str, why: str) -> None:
        if not self._sign(sign):
            raise self._unexpected(why)
        self._take()

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
        node = self.both()
        while self._word("or"):
            at = self._take().at
            node = Binary(at, "or", node, self.both())
        return node

    def both(self) -> Node:
        node = self.negated()
        while self._word("and"):
            at = self._take().at
            node = Binary(at, "and", node, self.negated())
        return node

    def negated(self) -> Node:
        if self._word("not"):
            return Unary(self._take().at, "not", self.negated())
        return self.comparison()

    def comparison(self) -> Node:
        operands, operators = [self.sum()], []
        while (operator := self.operator()) is not None:
            operators.append(operator)
            operands.append(self.bounds() if operator.endswith("between") else self.sum())
        if not operators:
            return operands[0]
        return Comparison(operands[0].at, tuple(operators), tuple(operands))

    def operator(self) -> str | None:
        if self._sign(*ORDER):
            return self._take().text
        for word in ("in", "like", "between"):
            if self._taken(word):
                return word
            if self._taken("not", word):
                return f"not {word}"
        if self._taken("is", "not"):
            return "is not"
        return "is" if self._taken("is") else None

    def bounds(self) -> Node:
        low = self.sum()
        if not self._taken("and"):
            raise self._unexpected("the `and` of between")
        return Listing(low.at, (low, self.sum()))

    def sum(self) -> Node:
        node = self.product()
        while self._sign("+", "-"):
            token = self._take()
            node = Binary(token.at, token.text, node, self.product())
        return node

    def product(self) -> Node:
        node = self.signed()
        while self._sign("*", "/"):
            token = self._take()
            node = Binary(token.at, token.text, node, self.signed())
        return node

    def signed(self) -> Node:
        if self._sign("-", "+"):
            token = self._take()
            return Unary(token.at, token.text, self.signed())
        return self.alone()

    def alone(self) -> Node:
        token = self._next
        if token.kind in CONSTANTS:
            self._take()
            return Constant(token.at, token.kind, token.value)
        if self._sign("(", "["):
            return self.listed()
        if token.kind == "name" and token.text.lower() not in KEYWORDS:
            return self.named()
        raise self._unexpected("a column or a value")

    def listed(self) -> Node:
        opening = self._take()
        closing = ")" if opening.text == "(" else "]"
        items: list[Node] = []
        comma = opening.text == "["
        while not self._sign(closing):
            items.append(self.either())
            if not self._sign(","):
                break
            self._take()
            comma = True
        self._expect(closing, f"`{closing}`")
        if len(items) == 1 and not comma:
            return items[0]
        return Listing(opening.at, tuple(items))

    def named(self) -> Node:
        first = self._take()
        if first.text.lower() in WORDS:
            return Constant(first.at, "word", WORDS[first.text.lower()])
        parts = [first.text]
        while self._sign("."):
            self._take()
            if self._next.kind != "name":
                raise self._unexpected("a name")
            parts.append(self._take().text)
        if not self._sign("("):
            return NameNode(first.at, tuple(parts))
        column = (NameNode(first.at, tuple(parts[:-1])),) if len(parts) > 1 else ()
        return Call(first.at, parts[-1], (*column, *self.arguments()))

    def arguments(self) -> tuple[Node, ...]:
        self._take()
        found: list[Node] = []
        while not self._sign(")"):
            found.append(self.either())
            if not self._sign(","):
                break
            self._take()
        self._expect(")", "`)`")
        return tuple(found)
