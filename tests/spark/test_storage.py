"""Files behave alike on this machine and on object storage."""

from __future__ import annotations

from pathlib import Path

import pytest

from kwsniff.capture.place import Place


def test_what_is_written_is_found_and_read(root: str) -> None:
    place = Place.of(root)
    assert place.names() == []
    with (place / "a" / "b.bin").create() as file:
        file.write(b"0123456789")
    (place / "c.txt").replace(b"first")
    (place / "c.txt").replace(b"second")
    assert place.names() == ["a", "c.txt"]
    assert {each.place.relative_to(place): each.bytes for each in place.files()} == {
        "a/b.bin": 10,
        "c.txt": 6,
    }
    assert (place / "c.txt").read() == b"second"
    with (place / "a/b.bin").open() as file:
        file.seek(4)
        assert file.read(3) == b"456"


def test_what_is_removed_is_gone_and_may_be_gone_already(root: str) -> None:
    place = Place.of(root)
    (place / "a/b").replace(b"1")
    (place / "c").replace(b"1")
    for _ in range(2):
        (place / "c").remove()
        (place / "a").remove_tree()
        assert list(place.files()) == []
    assert (place / "c").about() is None
    with pytest.raises(FileNotFoundError):
        (place / "c").read()


def test_the_same_place_is_named_in_several_ways(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    wanted = Place(f"{tmp_path}/out")
    for given in ("out", "out/", f"file://{tmp_path}/out", tmp_path / "out", wanted):
        assert Place.of(given) == wanted
    assert Place.of("s3://bucket/out/") == Place("s3://bucket/out")
    assert Place.of("s3://bucket/out").path is None


def test_a_file_system_of_fsspec_is_written_to() -> None:
    place = Place.of("memory://root/out")
    (place / "a" / "b").replace(b"12")
    assert [(each.place.url, each.bytes) for each in place.files()] == [("memory://root/out/a/b", 2)]
    assert (place / "a" / "b").read() == b"12"
