"""Dissector texts to their model. Line-oriented, two spaces of indentation a level; `docs/dissectors.md`
describes the notation. Anything unexpected raises `DissectorError` with file and line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from kwsniff.spec.model import NO_VERSIONS, ROLES, TYPES, Field, Message, Versions

INDENT = 2
MAX_VERSION = 32767

_NAME = re.compile(r"[a-z][a-z0-9_]*\Z")
_TYPE = re.compile(r"(?P<array>\[\])?(?P<type>[a-z]+[0-9]*|\{\})?(?P<null>\?)?(?P<range>[0-9][0-9+,-]*)?\Z")
_RANGES = re.compile(r"[0-9]+(\+|-[0-9]+)?(,[0-9]+(\+|-[0-9]+)?)*\Z")
_API_CLAUSES = frozenset({"versions", "flexible", "kafka4", "alias", "request-header-0", "response-header-0"})
_DATA_CLAUSES = frozenset({"versions", "flexible", "used", "record"})


class DissectorError(ValueError):
    """A dissector that does not follow the notation; the message begins with file and line."""


@dataclass(frozen=True, slots=True)
class SourceLine:
    """One line that is neither blank nor comment: its words, its depth, and the comment behind it."""

    file: str
    number: int
    depth: int
    words: tuple[str, ...]
    doc: str

    def error(self, message: str) -> DissectorError:
        return DissectorError(f"{self.file}:{self.number}: {message}")


@dataclass(frozen=True, slots=True)
class Head:
    """The `api` line of a file: all that is known without reading further."""

    key: int
    name: str
    versions: Versions
    flexible: Versions
    kafka4: Versions
    """Versions a 4.x broker or client still speaks; none if the API is gone."""
    aliases: tuple[str, ...]
    request_header_0: Versions
    response_header_0: Versions
    doc: str


@dataclass(frozen=True, slots=True)
class ErrorCode:
    """A Kafka error: what `error_code` numbers mean. Retriable ones may vanish if the client tries again."""

    code: int
    name: str
    retriable: bool
    doc: str


def lines(text: str, file: str) -> Iterator[SourceLine]:
    """The lines that say something. A comment right below an unindented line belongs to that line."""
    head: SourceLine | None = None
    for number, raw in enumerate(text.splitlines(), 1):
        body, mark, doc = raw.partition("#")
        if not body.strip():
            if head is not None and mark:
                head = replace(head, doc=f"{head.doc} {doc.strip()}".lstrip())
            elif head is not None:
                yield head
                head = None
            continue
        if head is not None:
            yield head
            head = None
        stripped = body.lstrip(" ")
        spaces = len(body) - len(stripped)
        line = SourceLine(file, number, spaces // INDENT, tuple(stripped.split()), doc.strip())
        if "\t" in body:
            raise line.error("tab: indent with two spaces a level")
        if spaces % INDENT:
            raise line.error(f"indentation of {spaces} spaces is no multiple of {INDENT}")
        if line.depth:
            yield line
        else:
            head = line
    if head is not None:
        yield head


def versions(text: str, within: Versions, line: SourceLine) -> Versions:
    """`3`, `3-5`, `3+` (to the last of `within`) or several of them with commas, all inside `within`."""
    if not _RANGES.match(text):
        raise line.error(f"{text!r} is no version range")
    ranges: list[tuple[int, int]] = []
    for part in text.split(","):
        low_text, _, high_text = part.rstrip("+").partition("-")
        low = int(low_text)
        high = within.last if part.endswith("+") else int(high_text or low_text)
        if low > high or (ranges and low <= ranges[-1][1]):
            raise line.error(f"version range {text!r} does not ascend within {within}")
        ranges.append((low, high))
    if ranges[-1][1] > MAX_VERSION:
        raise line.error(f"version range {text!r} goes beyond {MAX_VERSION}")
    found = Versions(tuple(ranges))
    if not found <= within:
        raise line.error(f"versions {text} lie outside {within}")
    return found


def head(line: SourceLine) -> Head:
    """`api KEY NAME versions R flexible R ...`"""
    if len(line.words) < 3 or line.words[0] != "api" or not line.words[1].isdecimal():
        raise line.error("expected 'api KEY NAME versions ...'")
    clauses = _clauses(line, 3, _API_CLAUSES)
    every = _own_versions(clauses, line)
    within = partial(_of_clause, clauses, every, line)
    return Head(
        key=int(line.words[1]),
        name=line.words[2],
        versions=every,
        flexible=within("flexible"),
        kafka4=within("kafka4"),
        aliases=tuple(clauses["alias"].split(",")) if "alias" in clauses else (),
        request_header_0=within("request-header-0"),
        response_header_0=within("response-header-0"),
        doc=line.doc,
    )


def _clauses(line: SourceLine, start: int, known: frozenset[str]) -> dict[str, str]:
    words = line.words[start:]
    clauses: dict[str, str] = {}
    for word, value in zip(words[::2], words[1::2], strict=False):
        if word not in known:
            raise line.error(f"unknown clause {word!r}, expected one of {', '.join(sorted(known))}")
        if word in clauses:
            raise line.error(f"clause {word!r} given twice")
        clauses[word] = value
    if len(words) % 2:
        raise line.error(f"clause {words[-1]!r} has no value")
    return clauses


def _own_versions(clauses: dict[str, str], line: SourceLine) -> Versions:
    if "versions" not in clauses:
        raise line.error("clause 'versions' is missing")
    if "+" in clauses["versions"]:
        raise line.error("the versions of a message must have an end")
    return versions(clauses["versions"], Versions(((0, MAX_VERSION),)), line)


def _of_clause(clauses: dict[str, str], every: Versions, line: SourceLine, name: str) -> Versions:
    """The versions that a clause names, none if it is not there."""
    text = clauses.get(name, "none")
    return NO_VERSIONS if text == "none" else versions(text, every, line)


def api(text: str, file: str) -> tuple[Head, Message, Message]:
    """A file of one API: its head, the request and the response."""
    found = list(lines(text, file))
    if not found:
        raise DissectorError(f"{file}:1: empty dissector")
    first = head(found[0])
    parts: dict[str, Message] = {}
    for line, body in sections(found[1:]):
        direction = line.words[0]
        if direction not in ("request", "response") or len(line.words) > 1:
            raise line.error(f"expected 'request' or 'response', found {' '.join(line.words)!r}")
        if direction in parts:
            raise line.error(f"second {direction}")
        fields = _fields(body, 1, first.versions, first.flexible)
        parts[direction] = Message(
            first.name, direction, first.key, first.versions, first.flexible, fields, line.doc
        )
    for direction in ("request", "response"):
        if direction not in parts:
            raise found[-1].error(f"no {direction} in this file")
    return first, parts["request"], parts["response"]


def data(text: str, file: str) -> dict[str, Message]:
    """A file of data messages: `data NAME versions R flexible R used PLACE`, then its fields."""
    messages: dict[str, Message] = {}
    for line, body in sections(list(lines(text, file))):
        if line.words[0] != "data" or len(line.words) < 2:
            raise line.error(f"expected 'data NAME versions ...', found {' '.join(line.words)!r}")
        clauses = _clauses(line, 2, _DATA_CLAUSES)
        name, every = line.words[1], _own_versions(clauses, line)
        if name in messages:
            raise line.error(f"second {name}")
        flexible = _of_clause(clauses, every, line, "flexible")
        record = clauses.get("record")
        if record is not None and not record.isdecimal():
            raise line.error(f"record type {record!r} is no number")
        messages[name] = Message(
            name,
            "data",
            None,
            every,
            flexible,
            _fields(body, 1, every, flexible),
            doc=line.doc,
            used=clauses.get("used", ""),
            record=None if record is None else int(record),
        )
    return messages


def errors(text: str, file: str) -> dict[int, ErrorCode]:
    """The error file: `CODE NAME [retriable]  # meaning`."""
    codes: dict[int, ErrorCode] = {}
    names: set[str] = set()
    for line in lines(text, file):
        number, name, *flags = line.words if len(line.words) > 1 else ("", "")
        if not re.match(r"-?[0-9]+\Z", number) or not re.match(r"[A-Z][A-Z0-9_]*\Z", name) or line.depth:
            raise line.error("expected 'CODE NAME [retriable]'")
        if flags not in ([], ["retriable"]):
            raise line.error(f"unexpected {' '.join(flags)!r} after the name")
        if int(number) in codes or name in names:
            raise line.error(f"second {number} {name}")
        codes[int(number)] = ErrorCode(int(number), name, bool(flags), line.doc)
        names.add(name)
    return codes


def sections(found: list[SourceLine]) -> Iterator[tuple[SourceLine, list[SourceLine]]]:
    """Lines without indentation, each with the indented lines below it."""
    at = 0
    while at < len(found):
        line = found[at]
        if line.depth:
            raise line.error("indented line that belongs to nothing")
        at += 1
        start = at
        while at < len(found) and found[at].depth:
            at += 1
        yield line, found[start:at]


def _fields(found: list[SourceLine], depth: int, within: Versions, flexible: Versions) -> tuple[Field, ...]:
    """Lines at `depth`, each with the deeper lines below it as fields of its struct."""
    fields: list[Field] = []
    at = 0
    while at < len(found):
        line = found[at]
        if line.depth != depth:
            raise line.error("indented by more than one level")
        end = at + 1
        while end < len(found) and found[end].depth > depth:
            end += 1
        field = _field(line, within, flexible)
        inner = _fields(found[at + 1 : end], depth + 1, field.versions, flexible)
        if inner and field.type != "struct":
            raise found[at + 1].error(f"{field.name} is no struct and can have no fields")
        if not inner and field.type == "struct":
            raise line.error(f"struct {field.name} has no fields")
        field = replace(field, fields=inner)
        _check_siblings(field, fields, line)
        fields.append(field)
        at = end
    return tuple(fields)


def _check_siblings(field: Field, before: list[Field], line: SourceLine) -> None:
    for other in before:
        if other.name == field.name:
            raise line.error(f"second field {field.name}, the first is in line {other.line}")
        if field.tag is not None and other.tag == field.tag:
            raise line.error(f"tag {field.tag} is that of {other.name} in line {other.line}")


def _field(line: SourceLine, within: Versions, flexible: Versions) -> Field:
    """`name type [versions] [tag N] [never-compact] [@role ...] [alias NAME,...]`"""
    if len(line.words) < 2:
        raise line.error("expected 'name type ...'")
    name, kind, *rest = line.words
    if not _NAME.match(name):
        raise line.error(f"{name!r} is no field name")
    spelled = _TYPE.match(kind)
    base = spelled and (spelled["type"] or ("struct" if spelled["array"] else None))
    base = "struct" if base == "{}" else base
    if spelled is None or base not in TYPES or (spelled["range"] and not spelled["null"]):
        raise line.error(f"unknown type {kind!r}")
    own = versions(rest.pop(0), within, line) if rest and rest[0][0].isdigit() else within
    tag = _tag(rest, own, flexible, line)
    aliases = _aliases(rest, line)
    nullable = own if spelled["null"] else NO_VERSIONS
    if spelled["range"]:
        nullable = versions(spelled["range"], own, line)
    compact = "never-compact" not in rest
    rest = [word for word in rest if word != "never-compact"]
    field = Field(
        name=name,
        type=base,
        array=bool(spelled["array"]),
        versions=own,
        nullable=nullable,
        tag=tag,
        compact=compact,
        roles=_roles(rest, base, line),
        doc="; ".join([*([line.doc] if line.doc else []), *(f"or {each}" for each in aliases)]),
        line=line.number,
        aliases=aliases,
    )
    if field.nullable and not field.array and field.type not in ("string", "bytes", "records", "struct"):
        raise line.error(f"{base} cannot be null")
    return field


def _tag(rest: list[str], own: Versions, flexible: Versions, line: SourceLine) -> int | None:
    if not rest or rest[0] != "tag":
        return None
    if len(rest) < 2 or not rest[1].isdecimal():
        raise line.error("'tag' needs a number")
    tag = int(rest[1])
    del rest[:2]
    if not own <= flexible:
        raise line.error(f"a tagged field in versions {own} that are not all flexible ({flexible})")
    return tag


def _aliases(rest: list[str], line: SourceLine) -> tuple[str, ...]:
    if "alias" not in rest:
        return ()
    at = rest.index("alias")
    names = tuple(rest[at + 1].split(",")) if len(rest) > at + 1 else ("",)
    if not all(_NAME.match(name) for name in names):
        raise line.error("'alias' needs other names of the field, separated by commas")
    del rest[at : at + 2]
    return names


def _roles(rest: list[str], base: str, line: SourceLine) -> tuple[str, ...]:
    roles: list[str] = []
    for word in rest:
        role = word[1:]
        if not word.startswith("@"):
            raise line.error(f"unexpected {word!r}")
        if role not in ROLES:
            raise line.error(f"unknown role {word}, expected one of @{' @'.join(ROLES)}")
        if role in roles:
            raise line.error(f"role {word} given twice")
        if ROLES[role][0] not in (base, "*"):
            raise line.error(f"role {word} needs {ROLES[role][0]}, not {base}")
        roles.append(role)
    return tuple(roles)
