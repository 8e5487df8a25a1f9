"""What brokers of each release serve: against published ranges and against the brokers of the samples."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from kwsniff.spec.load import catalog
from kwsniff.spec.parse import DissectorError
from kwsniff.spec.releases import read, releases
from tests.samples import names, sample

DATA = Path(__file__).resolve().parent.parent / "data"
Ranges = dict[int, tuple[int, int]]


def published() -> dict[str, Ranges]:
    with (DATA / "broker_versions.csv").open(encoding="utf-8") as file:
        return {row["release"]: ranges(row["advertised"]) for row in csv.DictReader(file)}


def ranges(text: str) -> Ranges:
    found = {}
    for part in text.split():
        key, _, versions = part.partition(":")
        low, _, high = versions.partition("-")
        found[int(key)] = (int(low), int(high))
    return found


def advertised(release: str) -> Ranges:
    listed = {key: releases().advertises(release, key) for key in catalog().apis}
    return {key: (versions.first, versions.last) for key, versions in listed.items() if versions}


def answered(name: str) -> list[Ranges]:
    """What the broker of a sample named in its answers to ApiVersions, without the APIs of plugins."""
    return [
        {key["api_key"]: (key["min_version"], key["max_version"]) for key in body["api_keys"]}
        for row in sample(name).events(full=True)
        if row["api"] == "ApiVersions" and row["status"] == "ok"
        for body in [json.loads(row["response"])]
    ]


@pytest.mark.parametrize("release", published())
def test_a_release_advertises_what_was_published(release: str) -> None:
    assert advertised(release) == published()[release]


RECORDED = [name for name in names() if sample(name).note["broker"]["name"] == "Apache Kafka"]


@pytest.mark.one_of(3)
@pytest.mark.parametrize("name", sorted(set(RECORDED) - {"tls", "snaplen-128", "kafka-0.8", "midstream"}))
def test_a_recorded_broker_answered_as_its_release_advertises(name: str) -> None:
    answers = answered(name)
    release = releases().find(sample(name).note["broker"]["version"])
    plugins = {71, 72}
    assert answers
    for answer in answers:
        assert {key: it for key, it in answer.items() if key not in plugins} == advertised(release)


def test_what_is_served_lies_within_the_versions_of_the_dissectors() -> None:
    for release in releases().names:
        for key, api in catalog().apis.items():
            if served := releases().serves(release, key):
                assert served.first in api.versions, (release, key)
                assert served.last in api.versions, (release, key)


def test_names_are_those_of_the_dissectors() -> None:
    path = catalog().folder / "releases.kdef"
    lines = [line.removeprefix("advertises ").split() for line in path.read_text().splitlines()]
    named = {int(words[0]): words[1] for words in lines if words and words[0].isdecimal()}
    assert named == {key: catalog().api(key).name for key in named}
    assert len(named) > 80


def test_every_broker_of_4x_serves_produce_from_3_on_but_advertises_it_from_0_on() -> None:
    for release in ("4.0.0", "4.0.1", "4.1", "4.4"):
        assert releases().serves(release, 0).first == 3
        assert releases().advertises(release, 0).first == 0
    assert releases().serves("3.9", 0).first == 0


def test_old_joins_came_back_in_4_0_1() -> None:
    firsts = {name: releases().serves(name, 11).first for name in ("3.9", "4.0.0", "4.0.1", "4.1")}
    assert firsts == {"3.9": 0, "4.0.0": 2, "4.0.1": 0, "4.1": 0}


def test_an_api_that_went_is_served_no_more() -> None:
    assert str(releases().serves("3.9", 4)) == "0-7"
    assert not releases().serves("4.0.0", 4)


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("3.9", "3.9"),
        ("3.9.1", "3.9"),
        ("0.10.2.2", "0.10.2"),
        ("0.9.0.1", "0.9"),
        ("4.0", "4.0.1"),
        ("4.0.0", "4.0.0"),
        ("4.0.7", "4.0.1"),
        ("2.8.2", "2.8"),
    ],
)
def test_any_release_is_found_under_the_name_it_is_listed_by(asked: str, found: str) -> None:
    assert releases().find(asked) == found


@pytest.mark.parametrize("asked", ["99.0", "0.7", "0.7.2", "4", "", "latest", "4.x", "3.9-rc1", "1.1.1.1.1"])
def test_what_is_no_listed_release_is_refused(asked: str) -> None:
    with pytest.raises(ValueError, match=r"are known, not|is no Kafka release"):
        releases().find(asked)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", ":1: expected 'releases"),
        ("1 Fetch 3.9:0", ":1: expected 'releases"),
        ("releases 3.9 3.8", ":1: the releases do not ascend"),
        ("releases 3.9 3.9", ":1: the releases do not ascend"),
        ("releases 3.9 four", ":1: 'four' is no Kafka release"),
        ("releases 3.9\n1 Fetch", ":2: expected 'KEY NAME"),
        ("releases 3.9\nFetch 1 3.9:0", ":2: expected 'KEY NAME"),
        ("releases 3.9\n1 Fetch 4.0:0-3", ":2: '4.0:0-3' is no RELEASE:VERSIONS"),
        ("releases 3.9\n1 Fetch 3.9", ":2: '3.9' is no RELEASE:VERSIONS"),
        ("releases 3.8 3.9\n1 Fetch 3.9:0 3.8:0", ":2: '3.8:0' does not ascend"),
        ("releases 3.9\n1 Fetch 3.9:3+", ":2: '3.9:3\\+' must have an end"),
        ("releases 3.9\n1 Fetch 3.9:5-3", ":2: version range"),
        ("releases 3.9\n1 Fetch 3.9:0\n1 Fetch 3.9:0", ":3: second line of key 1"),
        ("releases 3.9\nadvertises 1 Fetch 3.9:0\nadvertises 1 Fetch 3.9:0", ":3: second line"),
    ],
)
def test_mistakes_are_refused_with_file_and_line(text: str, says: str) -> None:
    with pytest.raises(DissectorError, match="x.kdef" + says):
        read(text, "x.kdef")
