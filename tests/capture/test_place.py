"""Captures that lie elsewhere are read as those of this machine."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from kwsniff.capture.error import CaptureError
from kwsniff.capture.place import find, is_remote, local
from kwsniff.capture.source import resolve
from kwsniff.config import Config
from kwsniff.run.offline import events
from tests.samples import CAPTURES, sample

NAMES = ["librdkafka-groups.pcapng", "midstream.pcap", "java-groups.pcapng.zst"]


@pytest.fixture
def bucket() -> Iterator[MemoryFileSystem]:
    """Captures in memory, and something else among them."""
    system = MemoryFileSystem()
    for name in NAMES:
        system.pipe(f"/bucket/day/{name}", (CAPTURES / name).read_bytes())
    system.pipe("/bucket/day/notes.txt", b"mine")
    system.pipe("/bucket/day/deeper/midstream.pcap", (CAPTURES / "midstream.pcap").read_bytes())
    yield system
    system.rm("/bucket", recursive=True)


def rows(*paths: str) -> list[dict[str, object]]:
    found = [row for batch in events(paths, Config()) for row in batch.to_pylist()]
    return [{**row, "capture": None} for row in found]


@pytest.mark.parametrize("name", NAMES)
def test_a_url_gives_the_events_of_the_file(bucket: MemoryFileSystem, name: str) -> None:
    assert rows(f"memory://bucket/day/{name}") == rows(str(CAPTURES / name))


def test_a_directory_stands_for_the_captures_in_it(bucket: MemoryFileSystem) -> None:
    found = [each.path for each in resolve(["memory://bucket/day"])]
    assert sorted(found) == sorted(f"memory://bucket/day/{name}" for name in NAMES)


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("day/*.pcapng*", ["day/java-groups.pcapng.zst", "day/librdkafka-groups.pcapng"]),
        ("*/midstream.pcap", ["day/midstream.pcap"]),
        ("**/midstream.pcap", ["day/deeper/midstream.pcap", "day/midstream.pcap"]),
        ("day/midstrea[m].pca?", ["day/midstream.pcap"]),
    ],
)
def test_patterns_match_as_in_a_shell(bucket: MemoryFileSystem, pattern: str, names: list[str]) -> None:
    assert [each.url for each in find(f"memory://bucket/{pattern}")] == [
        f"memory://bucket/{name}" for name in names
    ]


def test_a_file_url_is_a_path() -> None:
    path = str(CAPTURES / "midstream.pcap")
    for url in (f"file://{path}", f"file:{path}", f"file://localhost{path}"):
        assert local(url) == path
        assert not is_remote(url)
    assert rows(f"file://{path}") == rows(path)
    assert sample("midstream").calls


def test_what_is_missing_is_one_line(bucket: MemoryFileSystem) -> None:
    for url in ("memory://bucket/none.pcap", "memory://bucket/*.none", "nothing://bucket/a.pcap"):
        with pytest.raises(CaptureError) as error:
            resolve([url])
        assert str(error.value).startswith(f"{url}: ")
        assert "\n" not in str(error.value)


def test_a_file_that_a_url_does_not_lead_to_is_said_to_be_missing(bucket: MemoryFileSystem) -> None:
    # What fsspec says of it, over HTTP and here, is no more than the path.
    with pytest.raises(CaptureError, match=r"^memory://bucket/none\.pcap: no such file$"):
        resolve(["memory://bucket/none.pcap"])


def test_a_path_with_a_colon_is_a_path() -> None:
    assert not is_remote("12:30:00.pcap")
    assert not is_remote("dir/a:b.pcap")
    assert not is_remote("C:/captures/a.pcap")


def test_without_fsspec_one_line_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(CaptureError, match=r"needs fsspec: pip install 'kwsniff\[remote\]' aiohttp"):
        resolve(["http://127.0.0.1/a.pcap"])


def test_what_a_file_system_needs_besides_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    monkeypatch.delitem(sys.modules, "fsspec.implementations.http", raising=False)
    with pytest.raises(CaptureError) as error:
        resolve(["http://127.0.0.1:9/a.pcap"])
    assert str(error.value).startswith("http://127.0.0.1:9/a.pcap: needs ")
    assert "aiohttp: pip install 'kwsniff[remote]' " in str(error.value)
