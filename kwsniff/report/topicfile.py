"""Names of topics by uuid that no packet tells: from a file of the user's, and from what earlier live
sessions saw.

A file has lines `uuid,name`, or is what `kafka-topics.sh --describe` prints (`Topic: orders  TopicId: …`).
Uuids are as Kafka writes them, 22 letters of base64 (RFC 4648, 5), or hexadecimal, with hyphens or without.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from kwsniff.events import MAX_TOPIC

MAX_BYTES = 64 << 20
MAX_NAMES = 100_000
DESCRIBED = re.compile(r"\bTopic:\s*(\S+)\s+TopicId:\s*(\S+)")
HEXADECIMAL = re.compile(r"[0-9a-fA-F]{32}")
HEADING = ("uuid", "topic_id", "id", "topicid")


class TopicFileError(ValueError):
    """A file that gives no names; the text is one line."""


def read_names(path: str) -> dict[str, str]:
    """Names by uuid (hyphenated hexadecimal).

    Raises:
        TopicFileError: it cannot be read, or a line of it is neither.
    """
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
        text = data.decode("utf-8-sig")
    except OSError as error:
        raise TopicFileError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise TopicFileError(f"{path}: no text in UTF-8") from None
    if len(data) > MAX_BYTES:
        raise TopicFileError(f"{path}: larger than {MAX_BYTES >> 20} MiB")
    names: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        pair = _pair(line.strip())
        if pair is None and not _is_no_entry(line, bool(names)):
            raise TopicFileError(f"{path}, line {number}: neither uuid,name nor a line of kafka-topics.sh")
        if pair is not None and len(names) < MAX_NAMES:
            names.setdefault(*pair)
    if not names:
        raise TopicFileError(f"{path}: names no topic")
    return names


def _pair(line: str) -> tuple[str, str] | None:
    """Uuid and name that a line gives."""
    found = DESCRIBED.search(line)
    name, said = (found[1], found[2]) if found else (line.partition(",")[2], line.partition(",")[0])
    name = name.strip().strip('"')
    said = said.strip().strip('"')
    known = _uuid(said)
    return (known, name) if known and 0 < len(name) <= MAX_TOPIC else None


def _is_no_entry(line: str, begun: bool) -> bool:
    """Whether a line may stand there without naming a topic: empty, a comment, a heading, or a partition in
    the output of kafka-topics.sh."""
    text = line.strip()
    heading = not begun and text.partition(",")[0].strip().lower() in HEADING
    return not text or text.startswith("#") or heading or "Partition:" in text


def _uuid(text: str) -> str | None:
    plain = text.replace("-", "") if len(text) == 36 else text
    if HEXADECIMAL.fullmatch(plain):
        return str(uuid.UUID(plain))
    if len(text) != 22:
        return None
    try:
        return str(uuid.UUID(bytes=base64.b64decode(text + "==", altchars=b"-_", validate=True)))
    except (binascii.Error, ValueError):
        return None


def cache_place() -> Path:
    """Where live sessions keep the names they saw (XDG Base Directory)."""
    root = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(root) / "kwsniff" / "topic-ids.csv"


def cached_names() -> dict[str, str]:
    """What earlier sessions saw; nothing if that cannot be read."""
    try:
        return read_names(str(cache_place()))
    except TopicFileError:
        return {}


def keep_names(names: Mapping[str, str]) -> None:
    """Add names to those of earlier sessions, the newest first if there are too many. A session that may not
    write goes without."""
    place = cache_place()
    every = dict(names) | {key: name for key, name in cached_names().items() if key not in names}
    lines = [f"{key},{name}\n" for key, name in list(every.items())[:MAX_NAMES] if name.isprintable()]
    part = place.with_name(f"{place.name}.{os.getpid()}")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        part.write_text("".join(lines), encoding="utf-8")
        part.replace(place)
    except OSError:
        with suppress(OSError):  # not even that, for whoever gave up the rights to the place
            part.unlink(missing_ok=True)
