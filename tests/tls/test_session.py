"""Connections between peers that are not ours: what was sent is what is read."""

import contextlib
import pickle
import ssl
import time

import pytest

from kwsniff.tls.decrypter import Session
from kwsniff.tls.hellos import ja4
from kwsniff.tls.keylog import KeyLog
from tests.tls.peers import (
    CLIENT,
    SERVER,
    Peer,
    Relay,
    ask,
    certificate,
    conversation,
    echo,
    free_port,
    opened,
    openssl,
)  # fmt: skip

MESSAGES = [b"first", b"x" * 100_000, b"", b"last one"]
SOME_SUITES = (
    "TLS_AES_128_GCM_SHA256",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_AES_128_CCM_8_SHA256",
    "ECDHE-RSA-AES256-GCM-SHA384",
    "ECDHE-ECDSA-CHACHA20-POLY1305",
    "DHE-RSA-AES128-CCM8",
    "ECDHE-RSA-AES256-SHA384",
    "AES128-SHA",
)
SUITES_1_3 = (
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_AES_128_CCM_SHA256",
    "TLS_AES_128_CCM_8_SHA256",
)
UNSUPPORTED = ("ARIA", "CAMELLIA")
"""Ciphers that the package cryptography does not have."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("tls")


@pytest.fixture(scope="module")
def rsa(folder):
    return certificate(folder, "broker", "rsa")


def suites():
    """IANA's and openssl's names of the suites that both sides of a connection of openssl can have."""
    listed = openssl("ciphers", "-s", "-stdname", "-v", "-psk", "ALL:@SECLEVEL=0").splitlines()
    names = [(line.split()[0], line.split()[2]) for line in listed]
    return {ours: theirs for ours, theirs in names if not any(name in ours for name in UNSUPPORTED)}


@pytest.fixture(scope="module")
def reverser(folder):
    """Servers of openssl that know every suite and send lines back reversed, behind relays: with a key of
    elliptic curves, and with those of RSA and DSA."""
    with reversing(folder, "ec") as curves, reversing(folder, "rsa", "dsa") as others:
        yield {True: curves, False: others}


@contextlib.contextmanager
def reversing(folder, *kinds):
    port, words = free_port(), []
    for option, kind in zip(("", "d"), kinds, strict=False):
        paths = certificate(folder, kind, kind)
        words += [f"-{option}cert", str(paths[0]), f"-{option}key", str(paths[1])]
    ciphers = ["-cipher", "ALL:@SECLEVEL=0", "-ciphersuites", ":".join(SUITES_1_3)]
    server = Peer("s_server", "-port", str(port), *words, *ciphers, "-rev", "-psk", "1234")
    relay = None
    try:
        server.wait_for(b"ACCEPT")
        relay = Relay(port)
        yield relay
    finally:
        if relay:
            relay.close()
        server.close()


def reverse(reverser, folder, words):
    """What a connection of `openssl s_client` with these options carried that sends two lines."""
    relay = reverser["ECDSA" in " ".join(words)]
    keys = folder / f"keys{time.monotonic_ns()}"
    count = len(relay.recordings)
    client = Peer("s_client", "-connect", f"127.0.0.1:{relay.port}", "-keylogfile", str(keys), *words)
    try:
        client.wait_for(b"SSL handshake has read")
        client.say(b"what the client sent\n")
        client.wait_for(b"tnes tneilc eht tahw")
        client.say(b"and another line\n")
        client.wait_for(b"enil rehtona dna")
    finally:
        client.close()
    recording = relay.recordings[count]
    recording.keys = keys.read_bytes()
    return recording


SENT = b"what the client sent\nand another line\n"
ANSWERED = b"tnes tneilc eht tahw\nenil rehtona dna\n"


def options(suite):
    if suite.startswith("TLS_"):
        return ["-tls1_3", "-ciphersuites", suite]
    return ["-tls1_2", "-cipher", f"{suite}:@SECLEVEL=0", "-psk", "1234"]


@pytest.mark.parametrize("suite", SOME_SUITES)
def test_what_openssl_sent_is_read(reverser, folder, suite):
    check_suite(reverser, folder, suite, options(suite))


@pytest.mark.costly
def test_what_openssl_sent_is_read_with_every_suite(reverser, folder):
    known = suites()
    assert len(known) >= 90
    for suite in (*SUITES_1_3, *known.values()):
        check_suite(reverser, folder, suite, options(suite))


def check_suite(reverser, folder, suite, words):
    recording = reverse(reverser, folder, words)
    session, read = opened(recording.records(), recording.key_log())
    assert read == (SENT, ANSWERED), suite
    assert session.client == CLIENT
    assert session.facts.cipher == {theirs: ours for ours, theirs in suites().items()}.get(suite, suite)
    assert session.facts.decrypted


@pytest.mark.parametrize(
    ("version", "shown"), [("-tls1", "TLS 1.0"), ("-tls1_1", "TLS 1.1"), ("-tls1_2", "TLS 1.2")]
)
@pytest.mark.parametrize("etm", [[], ["-no_etm"]])
def test_cbc_is_read_in_every_version_with_the_mac_before_or_after(reverser, folder, version, shown, etm):
    words = [version, *etm, "-cipher", "ECDHE-RSA-AES128-SHA:@SECLEVEL=0"]
    recording = reverse(reverser, folder, words)
    session, read = opened(recording.records(), recording.key_log())
    assert read == (SENT, ANSWERED)
    assert session.facts.version == shown


def contexts(rsa, version, client_keys, **options):
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(*rsa)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    client.minimum_version = client.maximum_version = version
    client.keylog_filename = str(client_keys)
    return server, client


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_facts_and_data_of_pythons_ssl(rsa, tmp_path, version):
    server, client = contexts(rsa, version, tmp_path / "keys")
    server.set_alpn_protocols(["kafka", "h2"])
    client.set_alpn_protocols(["h2", "kafka"])
    with echo(server, b"welcome") as relay:
        ask(relay, client, MESSAGES, greeting=b"welcome")
        recording = relay.recordings[0]
    recording.keys = (tmp_path / "keys").read_bytes()
    session, read = opened(recording.records(), recording.key_log())
    facts = session.facts
    assert read == (b"".join(MESSAGES), b"welcome" + b"".join(MESSAGES))
    assert (facts.sni, facts.alpn, facts.group) == ("broker.example", "kafka", "x25519")
    assert facts.version == ("TLS 1.3" if version == ssl.TLSVersion.TLSv1_3 else "TLS 1.2")
    assert (facts.resumed, facts.client_certificate) == (False, False)
    check_certificate(rsa[0], facts)
    assert facts.alert == ("warning", "close_notify", CLIENT)
    assert ja4(session.hello).startswith("t13d" if facts.version == "TLS 1.3" else "t12d")


def check_certificate(path, facts):
    said = openssl("x509", "-in", str(path), "-noout", "-subject", "-nameopt", "RFC2253", "-enddate")
    subject, end = said.splitlines()
    assert facts.subject == subject.removeprefix("subject=")
    assert facts.not_after == ssl.cert_time_to_seconds(end.removeprefix("notAfter="))


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_without_keys_there_are_the_facts_in_the_clear(rsa, tmp_path, version):
    server, client = contexts(rsa, version, tmp_path / "keys")
    with echo(server) as relay:
        ask(relay, client, [b"secret"])
        records = relay.recordings[0].records()
    for keys in (None, KeyLog()):
        session, read = opened(records, keys)
        facts = session.facts
        assert read == (b"", b"")
        assert facts.sni == "broker.example"
        assert facts.cipher.startswith("TLS_")
        assert not facts.decrypted
        assert facts.subject == ("CN=broker,O=Tests" if facts.version == "TLS 1.2" else "")


@pytest.mark.parametrize("tickets", [False, True])
@pytest.mark.parametrize("logged", [False, True])
def test_a_session_of_tls_1_2_is_resumed(rsa, tmp_path, tickets, logged):
    """Also when the key log has the first connection's master secret only."""
    server, client = contexts(rsa, ssl.TLSVersion.TLSv1_2, tmp_path / "keys")
    if not tickets:
        client.options |= ssl.OP_NO_TICKET
    with echo(server) as relay:
        first = ask(relay, client, [b"first"])
        keys = (tmp_path / "keys").read_bytes()
        second = ask(relay, client, [b"second"], session=first)
        ask(relay, client, [b"third"], session=second)
        recordings = relay.recordings
    log = KeyLog()
    log.add((tmp_path / "keys").read_bytes() if logged else keys)
    for recording, message, resumed in zip(
        recordings, (b"first", b"second", b"third"), (False, True, True), strict=True
    ):
        session, read = opened(recording.records(), log)
        assert read == (message, message)
        assert session.facts.resumed is resumed


def test_a_session_of_tls_1_3_is_resumed(rsa, tmp_path):
    server, client = contexts(rsa, ssl.TLSVersion.TLSv1_3, tmp_path / "keys")
    with echo(server, b"so that tickets come first") as relay:
        first = ask(relay, client, [b"first" * 10], greeting=b"so that tickets come first")
        ask(relay, client, [b"second" * 10], session=first, greeting=b"so that tickets come first")
        recordings = relay.recordings
    log = KeyLog()
    log.add((tmp_path / "keys").read_bytes())
    facts = []
    for recording, message in zip(recordings, (b"first" * 10, b"second" * 10), strict=True):
        session, read = opened(recording.records(), log)
        assert read == (message, b"so that tickets come first" + message)
        facts.append(session.facts)
    assert [each.resumed for each in facts] == [False, True]
    assert [each.subject for each in facts] == ["CN=broker,O=Tests", ""]


@pytest.mark.parametrize("version", ["-tls1_2", "-tls1_3"])
def test_a_client_shows_a_certificate(rsa, folder, tmp_path, version):
    mine = certificate(folder, "reader", "ec")
    server = ["-cert", str(rsa[0]), "-key", str(rsa[1]), "-verify", "2"]
    for words, shown, subject in (
        (["-cert", str(mine[0]), "-key", str(mine[1])], True, "CN=reader,O=Tests"),
        ([], False, ""),
    ):
        with conversation(server, [version, *words], tmp_path / f"keys{shown}") as (
            serving,
            client,
            recording,
        ):
            client.say(b"a line\n")
            serving.wait_for(b"a line")
        session, read = opened(recording.records(), recording.key_log())
        assert read[CLIENT] == b"a line\n"
        assert (session.facts.client_certificate, session.facts.client_subject) == (shown, subject)


def test_keys_are_updated_in_both_directions(rsa, tmp_path):
    server = ["-cert", str(rsa[0]), "-key", str(rsa[1])]
    with conversation(server, ["-tls1_3"], tmp_path / "keys") as (serving, client, recording):
        for number, (command, peer) in enumerate(
            ((b"k\n", client), (b"K\n", client), (b"k\n", serving), (b"K\n", serving), (b"k\n", client)), 1
        ):
            peer.say(command)
            peer.wait_for(
                b"KEYUPDATE",
                serving.output.count(b"KEYUPDATE") if peer is serving else number if number < 3 else 3,
            )
            client.say(b"line %d\n" % number)
            serving.wait_for(b"line %d" % number)
            serving.say(b"answer %d\n" % number)
            client.wait_for(b"answer %d" % number)
    _, read = opened(recording.records(), recording.key_log())
    assert read[CLIENT] == b"".join(b"line %d\n" % number for number in range(1, 6))
    assert read[SERVER] == b"".join(b"answer %d\n" % number for number in range(1, 6))


def test_the_server_asks_for_another_hello(rsa, tmp_path):
    server = ["-cert", str(rsa[0]), "-key", str(rsa[1]), "-groups", "P-384"]
    with conversation(server, ["-tls1_3"], tmp_path / "keys") as (serving, client, recording):
        client.say(b"a line\n")
        serving.wait_for(b"a line")
    session, read = opened(recording.records(), recording.key_log())
    assert sum(record[0] == 22 and record[5] == 1 for _, record in recording.records()) == 2
    assert read[CLIENT] == b"a line\n"
    assert session.facts.group == "secp384r1"


@pytest.mark.parametrize("by_server", [False, True])
@pytest.mark.parametrize("suite", ["ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-SHA"])
def test_a_connection_is_renegotiated(rsa, tmp_path, by_server, suite):
    server = ["-cert", str(rsa[0]), "-key", str(rsa[1]), "-client_renegotiation"]
    words = ["-tls1_2", "-cipher", suite]
    with conversation(server, words, tmp_path / "keys") as (serving, client, recording):
        for number in range(3):
            client.say(b"line %d\n" % number)
            serving.wait_for(b"line %d" % number)
            serving.say(b"answer %d\n" % number)
            client.wait_for(b"answer %d" % number)
            before = (tmp_path / "keys").read_bytes().count(b"CLIENT_RANDOM")
            (serving if by_server else client).say(b"r\n" if by_server else b"R\n")
            end = time.monotonic() + 10
            while (tmp_path / "keys").read_bytes().count(
                b"CLIENT_RANDOM"
            ) == before and time.monotonic() < end:
                time.sleep(0.01)
    assert recording.keys.count(b"CLIENT_RANDOM") == 4
    _, read = opened(recording.records(), recording.key_log())
    assert read == (b"line 0\nline 1\nline 2\n", b"answer 0\nanswer 1\nanswer 2\n")


def test_padding_is_no_data(rsa, tmp_path):
    server = ["-cert", str(rsa[0]), "-key", str(rsa[1]), "-record_padding", "512"]
    with conversation(server, ["-tls1_3", "-record_padding", "256"], tmp_path / "keys") as (
        serving,
        client,
        recording,
    ):
        client.say(b"a line\n")
        serving.wait_for(b"a line")
        serving.say(b"an answer\n")
        client.wait_for(b"an answer")
    assert opened(recording.records(), recording.key_log())[1] == (b"a line\n", b"an answer\n")


@pytest.mark.parametrize("logged", [True, False])
@pytest.mark.parametrize("accepted", [True, False])
def test_early_data(rsa, tmp_path, logged, accepted):
    """Opened if it can be; otherwise what follows it is, also if the server refused it."""
    ticket, early = tmp_path / "ticket", tmp_path / "early"
    early.write_bytes(b"sent early\n")
    server = ["-cert", str(rsa[0]), "-key", str(rsa[1]), "-no_anti_replay"]
    port = free_port()
    serving, peers = Peer("s_server", "-port", str(port), *server, "-early_data"), []
    relay = None
    try:
        serving.wait_for(b"ACCEPT")
        relay = Relay(port)
        first = ["-connect", f"127.0.0.1:{relay.port}", "-sess_out", str(ticket)]
        peers.append(Peer("s_client", *first))
        peers[0].wait_for(b"SSL handshake has read")
        serving.say(b"hello\n")
        peers[0].wait_for(b"hello")
        peers[0].say(b"Q\n")
        peers[0].ended()
        if not accepted:
            serving.close()
            serving = Peer("s_server", "-port", str(port), *server)
            serving.wait_for(b"ACCEPT")
        words = ["-sess_in", str(ticket), "-early_data", str(early), "-keylogfile", str(tmp_path / "keys")]
        peers.append(Peer("s_client", *first[:2], *words))
        peers[1].wait_for(b"SSL handshake has read")
        peers[1].say(b"sent later\n")
        serving.wait_for(b"sent later")
        recording = relay.recordings[1]
    finally:
        for peer in (*peers, serving):
            peer.close()
        if relay:
            relay.close()
    keys = (tmp_path / "keys").read_bytes()
    log = KeyLog()
    log.add(b"".join(line for line in keys.splitlines(True) if logged or b"EARLY" not in line))
    session, read = opened(recording.records(), log)
    assert read[CLIENT] == (b"sent early\n" if logged else b"") + b"sent later\n"
    assert session.facts.resumed is accepted
    assert session.client == CLIENT


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1"])
def test_the_premaster_secret_of_rsa_key_exchange_opens_a_connection(rsa, reverser, folder, version):
    """With the line that NSS wrote for it; the premaster secret comes from the server's private key."""
    from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    words = ["-tls1_2" if version == "TLSv1.2" else "-tls1", "-cipher", "AES128-SHA:@SECLEVEL=0"]
    recording = reverse(reverser, folder, words)
    exchange = next(record for side, record in recording.records() if (side, record[5]) == (CLIENT, 16))
    encrypted = exchange[11:]
    key = load_pem_private_key(certificate(folder, "rsa", "rsa")[1].read_bytes(), None)
    premaster = key.decrypt(encrypted, PKCS1v15())
    log = KeyLog()
    log.add(f"RSA {encrypted[:8].hex()} {premaster.hex()}\n".encode())
    assert opened(recording.records(), log)[1] == (SENT, ANSWERED)


@pytest.fixture(scope="module")
def talks(rsa, tmp_path_factory):
    """A connection of each of some kinds with many messages in both directions: name, recording."""
    found = {}
    folder = tmp_path_factory.mktemp("talks")
    for name, version, suite in (
        ("1.3", ssl.TLSVersion.TLSv1_3, None),
        ("gcm", ssl.TLSVersion.TLSv1_2, "ECDHE-RSA-AES128-GCM-SHA256"),
        ("chacha", ssl.TLSVersion.TLSv1_2, "ECDHE-RSA-CHACHA20-POLY1305"),
        ("cbc", ssl.TLSVersion.TLSv1_2, "ECDHE-RSA-AES128-SHA256"),
    ):
        server, client = contexts(rsa, version, folder / name)
        if suite:
            client.set_ciphers(suite)
        with echo(server) as relay:
            ask(relay, client, [b"%06d " % number * (1 + number % 50) for number in range(200)])
        recording = relay.recordings[0]
        recording.keys = (folder / name).read_bytes()
        found[name] = recording
    return found


KINDS = ("1.3", "gcm", "chacha", "cbc")


@pytest.mark.parametrize("kind", KINDS)
def test_a_session_pickles_without_secrets_and_goes_on(talks, kind):
    log, records = talks[kind].key_log(), talks[kind].records()
    _, whole = opened(records, log)
    secrets = [secret for of in log.find(opened(records, log)[0].hello.random).values() for secret in of]
    for cut in (1, 3, 6, 9, 12, 200):
        session, read = Session(log), (bytearray(), bytearray())
        for number, (side, record) in enumerate(records):
            if number == cut:
                pickled = pickle.dumps(session)
                assert not any(secret in pickled for secret in secrets)
                assert len(pickled) < 6000
                session = pickle.loads(pickled)
                session.keys = log
            read[side].extend(session.take(side, record) or b"")
        assert tuple(map(bytes, read)) == whole


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("late", [2, 8, 20, 150])
def test_keys_may_come_later(talks, kind, late):
    recording = talks[kind]
    log, records = KeyLog(), recording.records()
    session, reference = Session(log), Session(recording.key_log())
    each = [reference.take(side, record) for side, record in records]
    for number, (side, record) in enumerate(records):
        if number == late:
            log.add(recording.keys)
        data = session.take(side, record)
        if number < late:
            assert not data
        elif each[number]:
            assert data == each[number]


@pytest.mark.parametrize("kind", KINDS)
def test_handshake_messages_may_be_cut_into_records_anywhere(talks, kind):
    recording, cut = talks[kind], []
    for number, (side, record) in enumerate(recording.records()):
        if record[0] == 22 and number < 5:
            body, size = record[5:], (1, 7, 100)[number % 3]
            for at in range(0, len(body), size):
                piece = body[at : at + size]
                cut.append((side, record[:3] + len(piece).to_bytes(2, "big") + piece))
        else:
            cut.append((side, record))
    session, read = opened(cut, recording.key_log())
    reference, whole = opened(recording.records(), recording.key_log())
    assert read == whole
    assert session.facts == reference.facts


@pytest.mark.parametrize("kind", KINDS)
def test_handshake_messages_may_share_a_record(talks, kind):
    recording, joined = talks[kind], []
    for side, record in recording.records():
        if (
            joined
            and record[0] == 22 == joined[-1][1][0]
            and joined[-1][0] == side
            and record[5] in (2, 11, 12, 14)
        ):
            body = joined[-1][1][5:] + record[5:]
            joined[-1] = (side, record[:3] + len(body).to_bytes(2, "big") + body)
        else:
            joined.append((side, record))
    session, read = opened(joined, recording.key_log())
    reference, whole = opened(recording.records(), recording.key_log())
    assert read == whole
    assert session.facts == reference.facts


@pytest.mark.parametrize("kind", KINDS)
def test_sides_may_be_the_other_way_round_and_one_may_come_first(talks, kind):
    recording = talks[kind]
    records = recording.records()
    swapped, read = opened([(1 - side, record) for side, record in records], recording.key_log())
    assert swapped.client == 1
    _, whole = opened(records, recording.key_log())
    assert read == whole[::-1]
    for side in (CLIENT, SERVER):
        session = Session(recording.key_log())
        for number in range(300):  # so many other connections that this one cannot be guessed
            session.keys.add(f"CLIENT_RANDOM {number:064x} {number:096x}\n".encode())
        ordered = sorted(records, key=lambda each: (each[0] != side, each[0]))
        hellos = [next(each for each in ordered if each[0] == of) for of in (SERVER, CLIENT)]
        for of, record in hellos:
            assert session.take(of, record) == b""
        left = [each for each in records if each not in hellos]
        assert b"".join(session.take(of, record) or b"" for of, record in left if of == side) == whole[side]


@pytest.mark.parametrize("kind", KINDS)
def test_sizes_of_plaintext_are_known_without_opening(talks, kind):
    recording = talks[kind]
    session = Session(recording.key_log())
    for side, record in recording.records():
        data = session.take(side, record)
        if data:
            estimate = session.size_of(side, len(record) - 5)
            assert estimate == len(data) if kind != "cbc" else abs(estimate - len(data)) <= 8
            assert 1 <= session.lost_size(side, len(record)) <= len(record)
    assert session.size_of(0, 3) == 0
    assert session.lost_size(0, 1) == 1
