"""The dissectors as installed: which APIs there are, and their messages, parsed when first asked for.

`catalog()` reads only the first line of each API file, so that a command which decodes nothing starts
fast. The files lie in the package (in a wheel) or beside it (in a source tree).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache, cached_property
from pathlib import Path

from kwsniff.spec import parse
from kwsniff.spec.model import Message, Versions
from kwsniff.spec.parse import DissectorError, ErrorCode, Head, SourceLine

SUFFIX = ".kdef"
ERRORS = "errors"
RELEASES = "releases"
FIND_COORDINATOR, JOIN_GROUP, SYNC_GROUP, SASL_HANDSHAKE, API_VERSIONS = 10, 11, 14, 17, 18
UNSUPPORTED_VERSION = 35


class Api:
    """One API: what its first line says, and on demand its messages."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._text = path.read_text(encoding="utf-8")
        words, _, doc = self._text.partition("\n")[0].partition("#")
        self.head: Head = parse.head(SourceLine(path.name, 1, 0, tuple(words.split()), doc.strip()))
        self.key: int = self.head.key
        self.name: str = self.head.name
        self.versions: Versions = self.head.versions

    @property
    def min_version(self) -> int:
        return self.versions.first

    @property
    def max_version(self) -> int:
        return self.versions.last

    @cached_property
    def _parsed(self) -> tuple[Head, Message, Message]:
        return parse.api(self._text, self.path.name)

    def may_have_role(self, role: str) -> bool:
        """False only if no field has this role. Told from the text as it is: to parse all dissectors takes a
        tenth of a second."""
        return f"@{role}" in self._text

    @property
    def doc(self) -> str:
        """What the API is for, in a sentence."""
        return self._parsed[0].doc

    @property
    def request(self) -> Message:
        return self._parsed[1]

    @property
    def response(self) -> Message:
        return self._parsed[2]

    def message(self, direction: str) -> Message:
        """`request` or `response`; anything else raises ValueError."""
        if direction not in ("request", "response"):
            raise ValueError(f"direction must be 'request' or 'response', not {direction!r}")
        return self.request if direction == "request" else self.response

    def request_header_version(self, version: int) -> int:
        """2 if flexible, else 1; 0 where the API says so (Kafka protocol guide, "Headers")."""
        if version in self.head.request_header_0:
            return 0
        return 2 if version in self.head.flexible else 1

    def response_header_version(self, version: int) -> int:
        """1 if flexible, else 0; 0 where the API says so (ApiVersions: KIP-511)."""
        if version in self.head.response_header_0:
            return 0
        return 1 if version in self.head.flexible else 0

    # Behaviour that is in no published table

    def may_be_downgraded(self, version: int) -> bool:
        """Whether a response of this version may have the body of another one, see `is_downgraded`."""
        return self.key == API_VERSIONS and version > 0

    def starts_raw_tokens(self, version: int) -> bool:
        """Whether raw SASL tokens follow: SaslHandshake v0 is followed by length-prefixed tokens that are no
        Kafka messages; v1 wraps them in SaslAuthenticate (KIP-152)."""
        return self.key == SASL_HANDSHAKE and version == 0

    def may_answer_with_zero(self, version: int) -> bool:
        """Whether the response may carry correlation id 0: FindCoordinator before 0.8.3 (KAFKA-1841)."""
        return self.key == FIND_COORDINATOR and version == 0

    @property
    def held_by_broker(self) -> float:
        """Seconds for which a broker may hold a request, whatever the request says: members of a group wait
        for each other up to the rebalance timeout, by default `max.poll.interval.ms`, 5 minutes."""
        return 300.0 if self.key in (JOIN_GROUP, SYNC_GROUP) else 0.0


def is_downgraded(data: bytes, pos: int, end: int) -> bool:
    """Whether an ApiVersions response has a v0 body although another version was asked for.

    A broker that does not know the requested version cannot know its layout either, so it answers with
    v0 and error 35 (KIP-511).
    """
    return end - pos >= 2 and int.from_bytes(data[pos : pos + 2], "big") == UNSUPPORTED_VERSION


class Catalog:
    """All dissectors of one folder; those of `own`, another folder, take the places of its files for the same
    API, or of the same name."""

    def __init__(self, folder: Path, own: Path | None = None) -> None:
        self.folder = folder
        paths = _with_own(sorted(folder.glob(f"*{SUFFIX}")), own)
        found = [Api(path) for path in paths if path.name[:1].isdigit()]
        self.apis: dict[int, Api] = {api.key: api for api in sorted(found, key=lambda api: api.key)}
        if len(self.apis) < len(found):
            raise DissectorError(f"{folder}: two files for one API key")
        tables = (ERRORS, RELEASES)
        self._data_paths = [p for p in paths if not p.name[:1].isdigit() and p.stem not in tables]

    def api(self, key: int) -> Api:
        """By key; KeyError if there is none."""
        return self.apis[key]

    def named(self, name: str) -> Api:
        """By name, former name or key as text, whatever the case; KeyError if there is none."""
        if name.isdecimal():
            return self.apis[int(name)]
        for api in self.apis.values():
            if name.lower() in (n.lower() for n in (api.name, *api.head.aliases)):
                return api
        raise KeyError(name)

    @cached_property
    def _data(self) -> dict[str, Message]:
        messages: dict[str, Message] = {}
        for path in self._data_paths:
            for name, message in parse.data(path.read_text(encoding="utf-8"), path.name).items():
                if name in messages:
                    raise DissectorError(f"{path.name}:1: second {name}")
                messages[name] = message
        return messages

    def data(self, name: str) -> Message:
        """A data message by its name, for instance `OffsetCommitValue`; KeyError if there is none."""
        return self._data[name]

    def data_messages(self) -> Iterator[Message]:
        """All data messages: headers, records of internal topics, what clients put into bytes fields."""
        yield from self._data.values()

    @cached_property
    def errors(self) -> dict[int, ErrorCode]:
        """All error codes by number."""
        path = self.folder / f"{ERRORS}{SUFFIX}"
        return parse.errors(path.read_text(encoding="utf-8"), path.name)

    @cached_property
    def error_kinds(self) -> dict[int, tuple[str, bool]]:
        """Name of each error code, and whether a client may try again."""
        return {code: (error.name, error.retriable) for code, error in self.errors.items()}

    def error(self, code: int) -> ErrorCode:
        """An error by its number; one no table knows gets the name `UNKNOWN_<number>`."""
        return self.errors.get(code) or ErrorCode(code, f"UNKNOWN_{code}", False, "")


def _with_own(paths: list[Path], own: Path | None) -> list[Path]:
    """The files, with those of a folder in the places of some. Raises DissectorError."""
    if own is None:
        return paths
    mine = sorted(own.glob(f"*{SUFFIX}"))
    if not mine:
        raise DissectorError(f"{own}: holds no dissectors (*{SUFFIX})")
    if not_ours := [path.name for path in mine if path.stem in (ERRORS, RELEASES)]:
        raise DissectorError(f"{own / not_ours[0]}: is no dissector of an API or of data")
    keys = {Api(path).key for path in mine if path.name[:1].isdigit()}
    names = {path.name for path in mine}
    kept = [path for path in paths if path.name not in names]
    return mine + [path for path in kept if not path.name[:1].isdigit() or Api(path).key not in keys]


def folder() -> Path:
    """Where the dissectors are: inside the package if installed from a wheel, else beside it."""
    package = Path(__file__).resolve().parent.parent
    for candidate in (package / "dissectors", package.parent / "dissectors"):
        if (candidate / f"{ERRORS}{SUFFIX}").is_file():
            return candidate
    raise FileNotFoundError(f"no dissectors in {package} or beside it: the installation is incomplete")


OWN = "KWSNIFF_DISSECTORS"
"""Environment variable that names a folder of more dissectors, for this process and those it starts."""


@cache
def catalog() -> Catalog:
    """The installed dissectors, with those of the folder that `OWN` names, read once."""
    own = os.environ.get(OWN)
    return Catalog(folder(), Path(own) if own else None)


def use(own: Path | None) -> None:
    """Take the dissectors of a folder besides the installed ones; None: only those. Decoders are made from
    dissectors once, so this comes before the first of them.

    Raises:
        DissectorError: a file is wrong; the message names file and line.
        RuntimeError: something was decoded before.
    """
    before = os.environ.get(OWN)
    if before == (str(own) if own else None):
        return
    if catalog.cache_info().currsize:
        raise RuntimeError("dissectors were read before: choose a folder before anything is decoded")
    if own is None:
        os.environ.pop(OWN, None)
        return
    for api in Catalog(folder(), own).apis.values():
        if api.path.parent == own:
            _ = api.request, api.response
    os.environ[OWN] = str(own)


@cache
def catalog_with(own: Path) -> Catalog:
    """The installed dissectors with those of a folder, for whoever wants them only here."""
    return Catalog(folder(), own)
