import os

import pytest

from kwsniff.tls import keylog
from kwsniff.tls.keylog import GrowingKeyLog, KeyLog

RANDOM = bytes(range(32))
SECRET = bytes(range(100, 148))


def line(label="CLIENT_RANDOM", random=RANDOM, secret=SECRET):
    return f"{label} {random.hex()} {secret.hex()}\n".encode()


def test_lines_are_found_by_client_random_and_label():
    log = KeyLog()
    text = b"# made by a test\n\n" + line() + line("CLIENT_TRAFFIC_SECRET_0", secret=SECRET[:32])
    assert log.add(text) == 2
    assert log.find(RANDOM) == {"CLIENT_RANDOM": [SECRET], "CLIENT_TRAFFIC_SECRET_0": [SECRET[:32]]}
    assert log.find(bytes(32)) is None
    assert log.skipped == 0


def test_several_secrets_of_a_label_are_kept_in_their_order_and_each_once():
    log = KeyLog()
    log.add(line(secret=bytes(48)) + line() + line() + line(secret=bytes(48)))
    assert log.find(RANDOM) == {"CLIENT_RANDOM": [bytes(48), SECRET]}


def test_a_line_may_come_in_pieces_and_end_like_one_of_windows():
    log = KeyLog()
    text = line()[:-1] + b"\r\n" + line(random=bytes(32))
    assert sum(log.add(text[at : at + 1]) for at in range(len(text))) == 2
    assert log.find(RANDOM) == log.find(bytes(32)) == {"CLIENT_RANDOM": [SECRET]}


def test_a_last_line_without_an_end_is_taken_when_the_log_ends():
    log = KeyLog()
    assert log.add(line()[:-1]) == 0
    assert log.find(RANDOM) is None
    assert log.end() == 1
    assert log.find(RANDOM)


def test_labels_that_open_nothing_are_taken_and_not_kept():
    log = KeyLog()
    assert log.add(line("EXPORTER_SECRET") + line("SOME_LABEL_OF_2030", secret=b"any")) == 2
    assert log.find(RANDOM) is None


@pytest.mark.parametrize(
    "bad",
    [
        b"CLIENT_RANDOM\n",
        b"CLIENT_RANDOM 00 00\n",
        b"CLIENT_RANDOM " + RANDOM.hex().encode() + b" zz\n",
        line(secret=SECRET[:32]),
        line("CLIENT_TRAFFIC_SECRET_0", secret=SECRET[:20]),
        line("RSA"),
        line("no-label!"),
        line()[:-1] + b" more\n",
        b"\xff\xfe\x00" * 30 + b"\n",
        b"x" * 5000 + b"\n",
    ],
)
def test_lines_that_are_none_are_counted_and_change_nothing(bad):
    log = KeyLog()
    for cut in (len(bad), 10):
        taken = sum(log.add(bad[at : at + cut]) for at in range(0, len(bad), cut))
        assert taken == 0
    assert log.skipped == 2
    assert log.add(line()) == 1


def test_the_oldest_client_randoms_go_first(monkeypatch):
    monkeypatch.setattr(keylog, "MAX_CLIENT_RANDOMS", 3)
    log = KeyLog()
    randoms = [bytes((number,)) * 32 for number in range(5)]
    for random in randoms:
        log.add(line(random=random))
    assert [random in (log.recent(9)) for random in randoms] == [False, False, True, True, True]
    assert log.recent(2) == [randoms[4], randoms[3]]


def test_secrets_of_one_client_random_are_bounded():
    log = KeyLog()
    for number in range(1000):
        log.add(line(secret=number.to_bytes(48, "big")))
    assert len(log.find(RANDOM)["CLIENT_RANDOM"]) <= keylog.MAX_SECRETS


def test_a_file_that_grows_is_read_on(tmp_path):
    path = tmp_path / "keys"
    path.write_bytes(line()[:50])
    log = GrowingKeyLog(path)
    assert not log.refresh()
    assert log.find(RANDOM) is None
    with path.open("ab") as file:
        file.write(line()[50:])
    assert log.refresh()
    assert log.find(RANDOM)
    assert not log.refresh()


@pytest.mark.parametrize("replaced", [False, True])
def test_a_file_that_was_truncated_or_replaced_is_read_anew(tmp_path, replaced):
    path = tmp_path / "keys"
    path.write_bytes(line() + b"half a li")
    log = GrowingKeyLog(path)
    other = line(random=bytes(32)) + line(random=b"\1" * 32)
    if replaced:
        (tmp_path / "new").write_bytes(other)
        os.replace(tmp_path / "new", path)
    else:
        path.write_bytes(other)
    assert log.refresh()
    assert log.find(bytes(32))
    assert log.find(b"\1" * 32)
    assert log.find(RANDOM), "what was known stays known"
    assert log.skipped == 0


def test_a_file_that_is_missing_is_an_error_unless_it_may_come(tmp_path):
    path = tmp_path / "keys"
    with pytest.raises(FileNotFoundError):
        GrowingKeyLog(path)
    log = GrowingKeyLog(path, may_come=True)
    assert not log.refresh()
    path.write_bytes(line())
    assert log.refresh()
    path.unlink()
    assert not log.refresh()
    assert log.find(RANDOM)
