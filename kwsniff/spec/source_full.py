"""Source of decoders of the `full` projection: every field, as a dict by name."""

from __future__ import annotations

from kwsniff.spec.codegen import CodeWriter, code_of
from kwsniff.spec.model import WIDTHS, Item


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
