"""Writes Python source for one layout: every field, as a dict by name.

How generated decoders work:

- `pos` only ever grows, so one comparison with `end` before the result is returned is enough to know that
  nothing was read beyond it; reading beyond `end` but within the buffer yields garbage nobody sees.
- Counts of arrays are compared with the bytes left before the loop, so garbage cannot make it long; `left` is
  how many elements the message may still have, so that honest arrays cannot take all memory either.
- Adjacent fixed-width fields, with the length of what follows them, form a *run*: one `unpack_from`.
- `lag` is how many bytes at `pos` are read already; `pos` catches up where it must (`settle`).
- Anything wrong raises some ValueError, IndexError or struct.error; `kwsniff.spec.compile` explains it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from struct import Struct
from typing import Any

from kwsniff.spec.binary import uvarint
from kwsniff.spec.model import WIDTHS, Item, Layout

CODES = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
"""`struct` format of the types of fixed width."""

LENGTH_CODES = {"string": ("h", 2), "bytes": ("i", 4), "records": ("i", 4)}


class CodeWriter:
    """Collects the lines of one decoder and the names they need."""

    def body(self) -> None:
        """Write what the decoder does."""
        raise NotImplementedError

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.lines: list[str] = []
        self.names: dict[str, Any] = {}
        self.depth = 1
        self.lag = 0
        self._run: list[tuple[str, int, str | None]] = []
        self._after: list[str] = []
        self._count = 0

    # Lines

    def line(self, *texts: str) -> None:
        for text in texts:
            self.lines.append("    " * self.depth + text)

    @contextmanager
    def block(self, opening: str) -> Iterator[None]:
        """An indented block, entered and left with `pos` settled."""
        self.line(opening)
        self.depth += 1
        before = len(self.lines)
        yield
        self.settle()
        if len(self.lines) == before:
            self.line("pass")
        self.depth -= 1

    def name(self, stem: str) -> str:
        """A variable name that nothing else uses."""
        self._count += 1
        return f"{stem}_{self._count}"

    # Runs

    def fixed(self, code: str, width: int, variable: str | None, *after: str) -> None:
        """Adds a field of fixed width to the run; `after` are lines that use its value."""
        self._run.append((code, width, variable))
        self._after.extend(after)

    def take(self) -> None:
        """Reads the run. `pos` stays behind by `lag`."""
        run, self._run = self._run, []
        after, self._after = self._after, []
        while run and run[0][2] is None:
            self.lag += run.pop(0)[1]
        offset = self.lag
        self.lag += sum(width for _, width, _ in run)
        while run and run[-1][2] is None:
            run.pop()
        if run:
            self._unpack(run, f"pos + {offset}" if offset else "pos")
        self.line(*after)

    def _unpack(self, run: list[tuple[str, int, str | None]], at: str) -> None:
        variables = [variable for _, _, variable in run if variable is not None]
        if len(run) == 1 and run[0][0] == "B":
            self.line(f"{variables[0]} = buf[{at}]")
            return
        if len(run) == 1 and run[0][0] == "16s":
            self.line(f"{variables[0]} = buf[{at} : {at} + 16]")
            return
        form = "".join(code if variable is not None else f"{width}x" for code, width, variable in run)
        comma = "," if len(variables) == 1 else ""
        self.line(f"{', '.join(variables)}{comma} = {self.unpacker(form)}(buf, {at})")

    def unpacker(self, form: str) -> str:
        name = "unpack_" + form.replace("?", "z")
        self.names[name] = Struct(">" + form).unpack_from
        return name

    def unpackers(self, code: str) -> str:
        name = f"unpack_many_{code}"
        self.names[name] = unpackers(code)
        return name

    def settle(self) -> None:
        """Reads the run and lets `pos` catch up."""
        self.take()
        if self.lag:
            self.line(f"pos += {self.lag}")
            self.lag = 0

    # Lengths

    def lead(self, item: Item, code: str, width: int) -> str:
        """Reads a length into a variable: as stored, so compact ones are one more, 0 for null.

        Of a compact one only the first byte has been read.
        """
        length = self.name("n")
        if item.compact:
            self.fixed("B", 1, length)
        else:
            self.fixed(code, width, length)
        self.take()
        return length

    def span(self, item: Item, nullable: bool, check: bool) -> tuple[str, str]:
        """Reads the length of a string or bytes and moves `pos` behind it.

        Returns the variable of its first byte and the condition that it is not null ("" if it cannot be).
        With `check` the length is compared with the bytes left, so that slicing copies no more than those.
        """
        n = self.lead(item, *LENGTH_CODES[item.type])
        start = self.name("at")
        lag, self.lag = self.lag, 0
        if item.compact:
            self.line(f"if {n} < 128:", f"    {start} = pos + {lag}")
            self.line("else:", f"    {n}, {start} = tail(buf, pos + {lag}, {n}, end)")
            if not nullable:
                self.line(f"if not {n}:", "    raise MalformedError", f"pos = {start} + {n} - 1")
                return start, ""
            self.line(f"pos = {start} + {n} - 1 if {n} else {start}")
            return start, n
        self.line(f"{start} = pos + {lag}")
        if nullable:
            self.line(
                f"if {n} < -1:", "    raise MalformedError", f"pos = {start} + {n} if {n} > 0 else {start}"
            )
        else:
            self.line(f"if {n} < 0:", "    raise MalformedError", f"pos = {start} + {n}")
        if check and item.type != "string":
            self.line("if pos > end:", "    raise MalformedError")
        return start, f"{n} >= 0" if nullable else ""

    def count(self, item: Item) -> str:
        """Reads the count of an array into a variable, -1 for null, and settles `pos`."""
        n = self.lead(item, "i", 4)
        lag, self.lag = self.lag, 0
        if item.compact:
            self.line(f"if {n} < 128:", f"    pos += {lag}")
            self.line("else:", f"    {n}, pos = tail(buf, pos + {lag}, {n}, end)")
            self.line(f"{n} -= 1")
        else:
            self.line(f"pos += {lag}")
        return n

    def check_count(self, item: Item, n: str, packed: bool = False) -> None:
        """Refuses more elements than the bytes left can hold, or than the message may still have.

        `packed` elements are plain numbers, which take an eighth of the memory of others.
        """
        least = max(item.least, 1)
        size = n if least == 1 else f"{n} * {least}"
        self.line(f"if not 0 <= {size} <= end - pos:", "    raise MalformedError")
        self.line(f"left -= {n} >> 3" if packed else f"left -= {n}")
        self.line("if left < 0:", "    raise TooManyError")

    # Tagged fields

    @contextmanager
    def tag_loop(self, count: str) -> Iterator[tuple[str, str]]:
        """Goes through tagged fields if there are any; yields the variables of tag and stop."""
        lag, self.lag = self.lag, 0
        tag, stop = self.name("tag"), self.name("stop")
        with self.block(f"if {count}:"):
            self.line(
                f"pos += {lag}", f"if {count} > 127:", f"    {count}, pos = tail(buf, pos, {count}, end)"
            )
            with self.block(f"for _ in range({count}):"):
                self.line(f"{tag}, pos = uvarint(buf, pos, end)", f"{stop}, pos = uvarint(buf, pos, end)")
                self.line(f"{stop} += pos", f"if {stop} > end:", "    raise MalformedError")
                yield tag, stop
                self.line(f"pos = {stop}")
        self.line("else:", f"    pos += {lag}")

    @contextmanager
    def tagged(self, item: Item, tag: str, stop: str, first: bool) -> Iterator[None]:
        """What to do with one known tagged field; its content must fill its size."""
        with self.block(f"{'if' if first else 'elif'} {tag} == {item.tag}:"):
            yield
            self.settle()
            self.line(f"if pos != {stop}:", "    raise MalformedError")

    def tag_count(self) -> str:
        """Reads the first byte of the count of tagged fields."""
        count = self.name("tags")
        self.fixed("B", 1, count)
        self.take()
        return count

    def skip_tagged(self) -> None:
        """Passes over all tagged fields of a struct."""
        count = self.tag_count()
        self.line(f"if {count}:", f"    pos = skip_tags(buf, pos + {self.lag}, {count}, end)")
        self.line("else:", f"    pos += {self.lag}")
        self.lag = 0

    # Nullable structs

    def marker(self) -> str:
        """Reads the byte before a nullable struct."""
        marker = self.name("is")
        self.fixed("b", 1, marker)
        self.settle()
        return marker


def width_of(item: Item) -> int | None:
    """Bytes of the whole field if that is fixed at this version."""
    if item.array or (item.type == "struct" and item.nullable):
        return None
    return item.width


def code_of(item: Item) -> tuple[str, int]:
    """`struct` format and width of a type of fixed width."""
    return CODES[item.type], WIDTHS[item.type]


class FullWriter(CodeWriter):
    """Writes the body of a decoder that returns the fields of the message."""

    def body(self) -> None:
        expression = self._struct(self.layout.items, self.layout.flexible)
        self.settle()
        self.line("if pos > end:", "    raise MalformedError", f"return {expression}, pos")

    def _struct(self, items: tuple[Item, ...], flexible: bool) -> str:
        """Reads the fields; returns the expression of the dict. May leave a run that is not read yet."""
        values = [(item.name, self._field(item)) for item in items if item.tag is None]
        display = "{" + ", ".join(f"{name!r}: {value}" for name, value in values) + "}"
        if not flexible:
            return display
        known = [item for item in items if item.tag is not None]
        if not known:
            self.skip_tagged()
            return display
        count, fields = self.tag_count(), self.name("fields")
        self.line(f"{fields} = {display}")
        with self.tag_loop(count) as (tag, stop):
            for index, item in enumerate(known):
                with self.tagged(item, tag, stop, index == 0):
                    value = self._field(item)
                    self.take()
                    self.line(f"{fields}[{item.name!r}] = {value}")
        return fields

    def _field(self, item: Item) -> str:
        """Reads one field; returns the expression of its value, valid once the run is read."""
        if item.array:
            return self._array(item)
        if item.type == "struct":
            return self._nullable_struct(item) if item.nullable else self._struct(item.items, item.flexible)
        return self._value(item, item.nullable)

    def _value(self, item: Item, nullable: bool) -> str:
        variable = self.name(item.name)
        if item.type in WIDTHS:
            self.fixed(*code_of(item), variable)
            return f"uuid_text({variable})" if item.type == "uuid" else variable
        start, present = self.span(item, nullable, check=True)
        value = f"buf[{start}:pos]" + (".decode()" if item.type == "string" else "")
        self.line(f"{variable} = {value}" + (f" if {present} else None" if present else ""))
        return variable

    def _nullable_struct(self, item: Item) -> str:
        variable, marker = self.name(item.name), self.marker()
        with self.block(f"if {marker} == 1:"):
            expression = self._struct(item.items, item.flexible)
            self.settle()
            self.line(f"{variable} = {expression}")
        self.line(f"elif {marker} == -1:", f"    {variable} = None", "else:", "    raise MalformedError")
        return variable

    def _array(self, item: Item) -> str:
        variable, n = self.name(item.name), self.count(item)
        if not item.nullable:
            self._elements(item, n, variable)
            return variable
        self.line(f"if {n} == -1:", f"    {variable} = None")
        with self.block("else:"):
            self._elements(item, n, variable)
        return variable

    def _elements(self, item: Item, n: str, variable: str) -> None:
        self.check_count(item, n, packed=item.type in WIDTHS and item.type != "uuid")
        if item.type == "uuid":
            stop = f"pos + {n} * 16"
            self.line(f"{variable} = [uuid_text(buf[at : at + 16]) for at in range(pos, {stop}, 16)]")
            self.line(f"pos += {n} * 16")
        elif item.type in WIDTHS:
            code, width = code_of(item)
            small = f"{self.unpackers(code)}[{n}](buf, pos)"
            self.line(
                f"{variable} = list({small} if {n} < SMALL else unpack_from(f'>{{{n}}}{code}', buf, pos))"
            )
            self.line(f"pos += {n} * {width}")
        else:
            self.line(f"{variable} = []")
            with self.block(f"for _ in range({n}):"):
                if item.type == "struct":
                    value = self._struct(item.items, item.flexible)
                else:
                    value = self._value(item, nullable=False)
                self.take()
                self.line(f"{variable}.append({value})")


# What decoders call: the rare and the repeated, kept out of their source.

SMALL = 32
"""Arrays of fewer numbers are unpacked with a ready-made format."""


class MalformedError(ValueError):
    """Raised inside a compiled decoder; what exactly is wrong, the interpreter finds out."""


class TooManyError(ValueError):
    """Raised inside a compiled decoder when a message has more elements than it may."""


def tail(buf: bytes, pos: int, first: int, end: int) -> tuple[int, int]:
    """The rest of an unsigned varint whose first byte, 128 or more, has been read.

    The value is a size or a count, plus one at most; one that cannot fit before `end` is refused here.
    """
    second = buf[pos]
    if second < 0x80:
        value = first - 0x80 + (second << 7)
        pos += 1
    else:
        value, pos = uvarint(buf, pos - 1, end)
    if value - 1 > end - pos:
        raise MalformedError
    return value, pos


def skip_tags(buf: bytes, pos: int, count: int, end: int) -> int:
    """Position behind `count` tagged fields; `pos` is behind the first byte of the count."""
    if count > 0x7F:
        count, pos = tail(buf, pos, count, end)
    for _ in range(count):
        _, pos = uvarint(buf, pos, end)
        size, pos = uvarint(buf, pos, end)
        pos += size
    return pos


@lru_cache(maxsize=8192)
def uuid_text(raw: bytes) -> str:
    """Hyphenated hexadecimal."""
    text = raw.hex()
    if len(text) != 32:
        raise MalformedError
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def unpackers(code: str) -> list[Callable[..., tuple[Any, ...]]]:
    """`unpackers("i")[3](buf, pos)` reads three int32."""
    return [Struct(f">{count}{code}").unpack_from for count in range(SMALL)]
