"""Which versions of each API the brokers of each release serve, and which they advertise.

The facts are in `dissectors/releases.kdef`. They were published with the releases, and hold for the
listeners that clients use; see `docs/dissectors.md` for the notation.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from functools import cache

from kwsniff.spec import parse
from kwsniff.spec.load import RELEASES, SUFFIX, folder
from kwsniff.spec.model import NO_VERSIONS, Versions
from kwsniff.spec.parse import MAX_VERSION, DissectorError, SourceLine

_ANY = Versions(((0, MAX_VERSION),))
_NUMBERS = re.compile(r"[0-9]{1,4}(\.[0-9]{1,4}){1,3}\Z")

Numbers = tuple[int, ...]
Steps = dict[int, list[tuple[int, Versions]]]
"""By API key: from which release on (its index), which versions."""


def numbers(release: str) -> Numbers:
    """The numbers of a release, for instance (3, 9, 1); ValueError if it is written in another way."""
    if not _NUMBERS.match(release):
        raise ValueError(f"{release!r} is no Kafka release such as 3.9 or 4.0.1")
    return tuple(int(part) for part in release.split("."))


@dataclass(frozen=True)
class Releases:
    """All releases that are told apart. `names` are in their order, oldest first."""

    names: tuple[str, ...]
    _served: Steps
    _advertised: Steps

    def find(self, text: str) -> str:
        """The name under which a broker's release is listed: 3.9 for 3.9.1, 4.0.1 for 4.0.2 and for 4.0.

        Raises:
            ValueError: it is no release, or older or newer than those that are listed.
        """
        asked = numbers(text)
        series = [name for name in self.names if numbers(name)[:2] == asked[:2]]
        if len(asked) > 2:
            series = [name for name in series if numbers(name) <= asked]
        if not series:
            raise ValueError(f"brokers of {self.names[0]} to {self.names[-1]} are known, not {text}")
        return series[-1]

    def serves(self, release: str, api_key: int) -> Versions:
        """Versions a broker of this release answers; none if it does not know the API."""
        return self._at(self._served, release, api_key)

    def advertises(self, release: str, api_key: int) -> Versions:
        """Versions that its ApiVersions response names, which may be more than it serves."""
        return self._at(self._advertised, release, api_key) or self.serves(release, api_key)

    def _at(self, steps: Steps, release: str, api_key: int) -> Versions:
        position = self.names.index(self.find(release))
        found = steps.get(api_key, [])
        last = bisect_right(found, position, key=lambda step: step[0])
        return found[last - 1][1] if last else NO_VERSIONS


@cache
def releases() -> Releases:
    """The releases as installed, read once."""
    path = folder() / f"{RELEASES}{SUFFIX}"
    return read(path.read_text(encoding="utf-8"), path.name)


def read(text: str, file: str) -> Releases:
    """Parses the notation of `releases.kdef`; raises DissectorError with file and line."""
    found = list(parse.sections(list(parse.lines(text, file))))
    if not found or found[0][0].words[0] != "releases":
        raise DissectorError(f"{file}:1: expected 'releases NAME ...' before anything else")
    names = _names(*found[0])
    served: Steps = {}
    advertised: Steps = {}
    for line, more in found[1:]:
        words = [word for each in (line, *more) for word in each.words]
        steps = served
        if words[0] == "advertises":
            words, steps = words[1:], advertised
        if len(words) < 3 or not words[0].isdecimal():
            raise line.error("expected 'KEY NAME RELEASE:VERSIONS ...'")
        if int(words[0]) in steps:
            raise line.error(f"second line of key {words[0]}")
        steps[int(words[0])] = _steps(words[2:], names, line)
    return Releases(names, served, advertised)


def _names(line: SourceLine, more: list[SourceLine]) -> tuple[str, ...]:
    names = tuple(word for each in (line, *more) for word in each.words)[1:]
    try:
        ascending = sorted(set(names), key=numbers)
    except ValueError as error:
        raise line.error(str(error)) from None
    if list(names) != ascending:
        raise line.error("the releases do not ascend")
    return names


def _steps(words: list[str], names: tuple[str, ...], line: SourceLine) -> list[tuple[int, Versions]]:
    steps: list[tuple[int, Versions]] = []
    for word in words:
        release, colon, text = word.partition(":")
        if not colon or release not in names:
            raise line.error(f"{word!r} is no RELEASE:VERSIONS of a release above")
        if text.endswith("+"):
            raise line.error(f"{word!r} must have an end")
        versions = NO_VERSIONS if text == "none" else parse.versions(text, _ANY, line)
        if steps and steps[-1][0] >= names.index(release):
            raise line.error(f"{word!r} does not ascend")
        steps.append((names.index(release), versions))
    return steps
