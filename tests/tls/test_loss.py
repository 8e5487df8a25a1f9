"""Records that are lost, damaged, doubled, in another order, or of a connection met in its middle."""

import pickle
import random
import ssl
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kwsniff.tls.decrypter import MAX_HANDSHAKE, Session
from kwsniff.tls.keylog import KeyLog
from tests.strength import examples
from tests.tls.peers import CLIENT, SERVER, Recording, ask, certificate, conversation, echo, opened

KINDS = {
    "1.3": (ssl.TLSVersion.TLSv1_3, None),
    "gcm": (ssl.TLSVersion.TLSv1_2, "ECDHE-RSA-AES128-GCM-SHA256"),
    "chacha": (ssl.TLSVersion.TLSv1_2, "ECDHE-RSA-CHACHA20-POLY1305"),
    "cbc": (ssl.TLSVersion.TLSv1_2, "ECDHE-RSA-AES128-SHA256"),
}
ROUNDS = 300

# RFC 8448, section 3: secrets of the application data and the client's record of 50 bytes.
TRACED = (
    (
        "9e40646ce79a7f9dc05af8889bce6552875afa0b06df0087f792ebb7c17504a5",
        "a11af9f05531f856ad47116b45a950328204b4f44bfb6b3a4b4f1f3fcb631643",
    ),
    "1703030043a23f7054b62c94d0affafe8228ba55cbefacea42f914aa66bcab3f2b9819a8a5b46b395bd54a9a20441e2b62974e1f5a"
    "6292a2977014bd1e3deae63aeebb21694915e4",
)


def talk(folder, kind):
    """A connection with many messages in both directions."""
    version, suite = KINDS[kind]
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(*certificate(folder, "broker", "rsa"))
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    client.minimum_version = client.maximum_version = version
    client.keylog_filename = str(folder / kind)
    if suite:
        client.set_ciphers(suite)
    with echo(server) as relay:
        ask(relay, client, [b"%06d " % number * (1 + number * number % 150) for number in range(ROUNDS)])
    recording = relay.recordings[0]
    recording.keys = (folder / kind).read_bytes()
    return recording


@pytest.fixture(scope="module")
def talks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("talks")
    return {kind: talk(folder, kind) for kind in KINDS}


def one_by_one(recording: Recording):
    """Records with what each holds, None before the handshake of its side was over."""
    session = Session(recording.key_log())
    return [(side, record, session.take(side, record)) for side, record in recording.records()]


def handshake_ends(known):
    """How many records it takes until both sides sent application data."""
    return 1 + max(min(n for n, (of, _, data) in enumerate(known) if of == side and data) for side in (0, 1))


def take_with_loss(recording, dropped, keys=None):
    """What is read of each record that is not dropped, with how much was lost before it."""
    session, lost, read = Session(keys or recording.key_log()), [0, 0], {}
    for number, (side, record) in enumerate(recording.records()):
        if number in dropped:
            lost[side] += len(record)
        else:
            read[number] = session.take(side, record, lost[side])
            lost[side] = 0
    return read


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("share", [0.02, 0.3, 0.9])
def test_everything_but_what_was_lost_is_read(talks, kind, share):
    known = one_by_one(talks[kind])
    chance = random.Random(f"{kind} {share}")
    after = handshake_ends(known)
    dropped = {number for number in range(after, len(known)) if chance.random() < share}
    read = take_with_loss(talks[kind], dropped)
    assert read == {number: data for number, (_, _, data) in enumerate(known) if number not in dropped}


@pytest.mark.parametrize("kind", KINDS)
def test_a_long_stretch_may_be_lost(talks, kind):
    known = one_by_one(talks[kind])
    dropped = {*range(handshake_ends(known), len(known) - 20)}
    read = take_with_loss(talks[kind], dropped)
    assert read == {number: data for number, (_, _, data) in enumerate(known) if number not in dropped}


@pytest.mark.parametrize("kind", KINDS)
def test_any_record_of_the_handshake_but_the_hellos_may_be_lost(talks, kind):
    known = one_by_one(talks[kind])
    after = handshake_ends(known)
    for number in range(2, after):
        read = take_with_loss(talks[kind], {number})
        for other in range(after, len(known)):
            assert read[other] == known[other][2], (number, other)


@pytest.mark.parametrize("hello", [CLIENT, SERVER])
def test_a_hello_of_tls_1_3_may_be_lost(talks, hello):
    known = one_by_one(talks["1.3"])
    read = take_with_loss(talks["1.3"], {hello})
    for number in range(handshake_ends(known), len(known)):
        assert read[number] == known[number][2]


def test_a_connection_of_tls_1_3_may_be_met_in_its_middle(talks):
    recording = talks["1.3"]
    records, known = recording.records(), one_by_one(recording)
    first = handshake_ends(known) + 20
    keys = recording.key_log()
    for number in range(3):
        keys.add(f"SERVER_TRAFFIC_SECRET_0 {bytes((number,)).hex() * 32} {bytes(32).hex()}\n".encode())
    session = Session(keys)
    read = [session.take(side, record) for side, record in records[first:]]
    assert read == [data for _, _, data in known[first:]]
    assert (session.client, session.facts.version) == (CLIENT, "TLS 1.3")
    assert session.facts.cipher.startswith("TLS_")


def test_a_connection_of_tls_1_2_met_in_its_middle_is_not_read(talks):
    records = talks["gcm"].records()[20:]
    session = Session(talks["gcm"].key_log())
    assert all(session.take(side, record) is None for side, record in records if record[0] == 23)


def test_the_trace_of_rfc_8448_is_read():
    (client, server), record = TRACED
    keys = KeyLog()
    for label, secret in (("CLIENT", client), ("SERVER", server)):
        keys.add(f"{label}_TRAFFIC_SECRET_0 {'ab' * 32} {secret}\n".encode())
    session = Session(keys)
    assert session.take(1, bytes.fromhex(record)) == bytes(range(50))
    assert session.client == 1


def test_without_handshake_secrets_application_data_is_read(talks):
    recording = talks["1.3"]
    keys = KeyLog()
    keys.add(b"".join(line for line in recording.keys.splitlines(True) if b"HANDSHAKE" not in line))
    session = Session(keys)
    read = [session.take(side, record) for side, record in recording.records()]
    assert read == [data for _, _, data in one_by_one(recording)], "records of the handshake hold no data"


def test_key_updates_may_be_lost(tmp_path):
    cert, key = certificate(tmp_path, "broker", "rsa")
    words = ["-cert", str(cert), "-key", str(key)]
    with conversation(words, ["-tls1_3"], tmp_path / "keys") as (
        server,
        client,
        talk,
    ):
        client.say(b"first\n")
        server.wait_for(b"first")
        client.say(b"k\n")
        client.wait_for(b"KEYUPDATE")
        client.say(b"second\n")
        server.wait_for(b"second")
    known = one_by_one(talk)
    second = next(number for number, (_, _, data) in enumerate(known) if data == b"second\n")
    update = max(number for number in range(second) if known[number][0] == CLIENT)
    assert take_with_loss(talk, {update})[second] == b"second\n"


def mutated(records, chance):
    """Records of which some are flipped, cut, doubled, dropped, swapped or of no kind."""
    found = []
    for side, record in records:
        kind = chance.randrange(14)
        changed = bytearray(record)
        if kind == 0:
            changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
        elif kind == 1:
            del changed[chance.randrange(len(changed)) :]
        elif kind == 2:
            found.append((side, bytes(changed)))
        elif kind == 3 and found:
            found.insert(-1, (side, bytes(changed)))
            continue
        elif kind == 4:
            changed[5:] = chance.randbytes(chance.randrange(300))
        elif kind == 5:
            side = 1 - side
        elif kind == 6:
            continue
        found.append((side, bytes(changed)))
    return found


@settings(max_examples=examples(240))
@given(seed=st.integers(0, 2**32), kind=st.sampled_from([*KINDS]), early=st.booleans(), views=st.booleans())
def test_damage_never_raises_and_never_yields_what_was_not_sent(talks, seed, kind, early, views):
    chance = random.Random(seed)
    known = one_by_one(talks[kind])
    sent = {data for _, _, data in known}
    records = talks[kind].records()[:60]
    keep = 0 if early else handshake_ends(known)
    session, read = Session(talks[kind].key_log()), []
    for side, record in records[:keep] + mutated(records[keep:], chance):
        data = session.take(
            side, memoryview(record) if views else record, chance.choice((0, 0, 0, 50, 10_000))
        )
        assert data in sent or not data
        read += [data] if data else []
        assert session.size_of(side, len(record)) >= 0
        assert session.lost_size(side, len(record)) >= 1
    repeated = {data for data in sent if data and [each for *_, each in known].count(data) > 2}
    assert all(read.count(data) <= 2 for data in {*read} - repeated), "each direction has it once"


@settings(max_examples=examples(200))
@given(seed=st.integers(0, 2**32), kind=st.sampled_from([*KINDS]))
def test_wrong_keys_open_nothing(talks, seed, kind):
    chance = random.Random(seed)
    keys = KeyLog()
    for line in talks[kind].keys.splitlines():
        label, random_, secret = line.split()[:3]
        wrong = chance.randbytes(len(secret) // 2).hex().encode()
        keys.add(b" ".join((label, random_, wrong)) + b"\n")
    assert keys.find(talks[kind].records()[0][1][11:43])
    session = Session(keys)
    for side, record in talks[kind].records()[:60]:
        assert not session.take(side, record)
    assert not session.facts.decrypted


@settings(max_examples=examples(400))
@given(st.lists(st.tuples(st.integers(0, 1), st.sampled_from([20, 21, 22, 23, 24]), st.binary(max_size=300))))
def test_arbitrary_records_never_raise(records):
    session = Session(KeyLog())
    for side, kind, body in records:
        assert not session.take(side, bytes((kind, 3, 3)) + len(body).to_bytes(2, "big") + body)


def test_a_giant_handshake_message_is_not_kept(talks):
    session = Session(None)
    body = b"\1\xff\xff\xff" + bytes(16380)
    for _ in range(2000):
        session.take(0, b"\x16\x03\x01" + len(body).to_bytes(2, "big") + body)
        body = bytes(16384)
    assert len(pickle.dumps(session)) < 2 * MAX_HANDSHAKE


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lost", [0, 200, 1 << 20])
def test_garbage_costs_no_more_than_in_proportion(talks, kind, lost):
    """Records that no key opens, with losses between them."""
    recording = talks[kind]
    known = one_by_one(recording)
    start = handshake_ends(known)
    garbage = b"\x17\x03\x03\0\x60" + bytes(96)
    times = []
    for count in (300, 1200):
        session = Session(recording.key_log())
        for side, record in recording.records()[:start]:
            session.take(side, record)
        began = time.process_time()
        for _ in range(count):
            session.take(SERVER, garbage, lost)
        times.append(time.process_time() - began)
    assert times[1] < 8 * times[0] + 0.1
    assert times[1] < 4


def test_after_garbage_the_next_good_record_is_read(talks):
    recording = talks["1.3"]
    known, records = one_by_one(recording), recording.records()
    start = handshake_ends(known)
    session = Session(recording.key_log())
    for side, record in records[:start]:
        session.take(side, record)
    for _ in range(30):
        assert session.take(SERVER, b"\x17\x03\x03\0\x60" + bytes(96)) is None
    assert [session.take(side, record) for side, record in records[start:]] == [
        data for *_, data in known[start:]
    ]


def test_both_streams_are_whole_with_loss_in_one(talks):
    _, whole = opened(talks["1.3"].records(), talks["1.3"].key_log())
    read = take_with_loss(
        talks["1.3"],
        {number for number, (side, _) in enumerate(talks["1.3"].records()) if side == SERVER and number > 30},
    )
    got = b"".join(
        data or b"" for number, data in read.items() if talks["1.3"].records()[number][0] == CLIENT
    )
    assert got == whole[CLIENT]
