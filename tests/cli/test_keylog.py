"""Key logs that the user names, and secrets in what is written: only where they were asked for."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import kwsniff
from kwsniff.capture.error import CaptureError
from kwsniff.cli.commands import COMMANDS
from kwsniff.cli.problem import CommandError
from kwsniff.cli.request import Request
from kwsniff.config import Config, key_log
from tests.cli.conftest import ROOT, Said, process

SAMPLE = ROOT / "captures/librdkafka-errors.pcap"
READING = sorted({*COMMANDS} - {"schema", "protocol", "completion"})
"""Commands that read captures."""


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    path = tmp_path / "keys"
    path.write_text(f"CLIENT_RANDOM {'ab' * 32} {'cd' * 48}\n")
    return path


@pytest.fixture(autouse=True)
def nothing_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSLKEYLOGFILE", raising=False)


def test_every_command_that_reads_captures_takes_a_key_log() -> None:
    assert [name for name in COMMANDS if any(each.name == "keylog" for each in COMMANDS[name].params)] == [
        name for name in COMMANDS if name in READING
    ]


@pytest.mark.parametrize("name", READING)
def test_a_key_log_that_is_not_there_is_one_line_and_exit_code_2(name: str, said: Said) -> None:
    more = {"show": ["1"], "follow": ["x"], "live": [], "upgrade-check": ["--target", "4.0"]}
    more |= {"pipeline": ["--out", "none"], "extract": ["-o", "none"]}
    paths = [] if name == "live" else [str(SAMPLE)]
    ended = said(name, *paths, *more.get(name, []), "--keylog", "not/there")
    assert (ended.returncode, ended.stdout) == (2, b"")
    assert ended.stderr == b"kwsniff: --keylog: not/there: No such file or directory\n"


def test_a_key_log_has_to_be_a_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in ("", "pipe"):
        with pytest.raises(CommandError, match=r"--keylog: .*: is no regular file"):
            Request.of({"keylog": str(tmp_path / name)})


def test_the_environment_names_one_where_the_option_does_not(
    keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def config(**values: Any) -> str | None:
        return Request.of(values)[0].config.keylog

    assert config(keylog=None) is None
    monkeypatch.setenv("SSLKEYLOGFILE", str(keys))
    assert config(keylog=None) == str(keys)
    assert config(keylog="") is None
    assert config() is None  # a command that reads no captures
    for value in ("", str(tmp_path / "not there"), str(tmp_path)):
        monkeypatch.setenv("SSLKEYLOGFILE", value)
        assert config(keylog=None) is None


def test_other_processes_find_it_whatever_directory_they_work_in(
    keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(keys.parent)
    assert key_log("keys") == str(keys)
    monkeypatch.setenv("SSLKEYLOGFILE", "keys")
    assert key_log(None) == str(keys)


def test_a_command_that_is_suggested_names_the_key_log_that_was_given(
    keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Request.of({"keylog": str(keys)})[0].again == ["--keylog", str(keys)]
    monkeypatch.setenv("SSLKEYLOGFILE", str(keys))
    assert Request.of({"keylog": None})[0].again == []


def test_python_programs_name_one_as_any_other_option(keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Config] = []
    from kwsniff.run import offline

    analyze = offline.analyze
    monkeypatch.setattr(
        offline,
        "analyze",
        lambda source, config, **more: seen.append(config) or analyze(source, config, **more),
    )
    kwsniff.calls(str(SAMPLE), keylog=keys)
    monkeypatch.setenv("SSLKEYLOGFILE", str(keys))
    kwsniff.calls(str(SAMPLE))
    kwsniff.calls(str(SAMPLE), keylog="")
    assert [each.keylog for each in seen] == [str(keys), str(keys), None]
    with pytest.raises(CaptureError, match="not there: No such file"):
        kwsniff.calls(str(SAMPLE), keylog="not there")


def test_rows_are_the_same_with_a_key_log_that_nothing_needs(keys: Path) -> None:
    given = ("decode", str(SAMPLE), "-f", "jsonl")
    plain = process(*given, module="kwsniff")
    assert plain.stdout
    for more, env in ((("--keylog", str(keys)), {}), ((), {"SSLKEYLOGFILE": str(keys)})):
        ended = process(*given, *more, module="kwsniff", env=env)
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, plain.stdout, plain.stderr)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["--write-secrets"], b"--rotate, --all-packets and --write-secrets go with -w"),
        (["-w", "none.pcapng", "--write-secrets"], b"--write-secrets goes with --keylog"),
    ],
)
def test_live_writes_secrets_only_where_there_are_some_to_write(
    given: list[str], says: bytes, said: Said
) -> None:
    ended = said("live", *given)
    assert (ended.returncode, ended.stderr) == (2, b"kwsniff: " + says + b"\n")
