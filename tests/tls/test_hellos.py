import socket
import subprocess

import pytest

from kwsniff.tls.hellos import ClientHello, is_grease, ja4, read_client_hello
from kwsniff.tls.suites import ALERTS, GROUPS, SUITES
from tests.tls.peers import Peer, openssl

# The example of FoxIO's description of JA4, a Chrome.
CIPHERS = "1301 1302 1303 c02b c02f c02c c030 cca9 cca8 c013 c014 009c 009d 002f 0035"
EXTENSIONS = "001b 0000 0033 0010 4469 0017 002d 000d 0005 0023 0012 002b ff01 000b 000a 0015"
ALGORITHMS = "0403 0804 0401 0503 0805 0501 0806 0601"


def codes(text):
    return tuple(int(code, 16) for code in text.split())


def hello(**fields):
    usual = {
        "legacy_version": 0x0303,
        "random": bytes(32),
        "session_id": b"",
        "ciphers": codes(CIPHERS),
        "extensions": codes(EXTENSIONS),
        "alpn": (b"h2", b"http/1.1"),
        "signature_algorithms": codes(ALGORITHMS),
        "versions": (0x0304, 0x0303),
    }
    return ClientHello(**{**usual, **fields})


def test_ja4_of_the_published_example():
    assert ja4(hello()) == "t13d1516h2_8daaf6152771_e5627efa2ab1"


def test_ja4_does_not_see_grease_or_the_order_of_ciphers_and_extensions():
    greased = hello(
        ciphers=(0x0A0A, *reversed(codes(CIPHERS))),
        extensions=(0x1A1A, *sorted(codes(EXTENSIONS)), 0xFAFA),
        versions=(0x2A2A, 0x0303, 0x0304),
        signature_algorithms=(0x3A3A, *codes(ALGORITHMS)),
    )
    assert ja4(greased) == ja4(hello())
    assert ja4(hello(signature_algorithms=codes(ALGORITHMS)[::-1])) != ja4(hello())


@pytest.mark.parametrize(
    ("alpn", "shown"),
    [((), "00"), ((b"",), "00"), ((b"h2",), "h2"), ((b"x",), "xx"), ((b"http/1.1",), "h1"),
     ((b"\xab\xcd",), "ad"), ((b"0\xab",), "3b"), ((b"a-",), "6d")],
)  # fmt: skip
def test_ja4_has_the_ends_of_the_first_protocol(alpn, shown):
    """Cases of FoxIO's description, "ALPN Extension Value"."""
    assert ja4(hello(alpn=alpn)).split("_")[0] == f"t13d1516{shown}"


def test_ja4_of_a_hello_without_extensions_or_ciphers():
    bare = hello(ciphers=(), extensions=(), alpn=(), signature_algorithms=(), versions=())
    assert ja4(bare) == "t12i000000_000000000000_000000000000"
    assert ja4(hello(extensions=(0, 16))).endswith("_000000000000")
    assert ja4(hello(), quic=True)[0] == "q"


def test_grease_is_that_of_rfc_8701():
    listed = [*range(0x0A0A, 0xFAFB, 0x1010)]
    assert [code for code in range(0x10000) if is_grease(code)] == listed


def test_suites_are_those_that_openssl_knows_by_the_same_name():
    known = {}
    for line in openssl("ciphers", "-stdname", "-V", "ALL:@SECLEVEL=0").splitlines():
        code, _, name, *_ = line.split()
        known[int(code.replace("0x", "").replace(",", ""), 16)] = name
    both = known.keys() & SUITES.keys()
    assert len(both) > 90
    assert {code: SUITES[code].name for code in both} == {code: known[code] for code in both}
    lacking = {known[code] for code in known.keys() - SUITES.keys()}
    assert all("ARIA" in name or "CAMELLIA" in name for name in lacking), lacking


@pytest.mark.tshark
@pytest.mark.parametrize(
    ("field", "ours"),
    [
        ("tls.handshake.ciphersuite", {code: suite.name for code, suite in SUITES.items()}),
        ("tls.handshake.extensions_supported_group", GROUPS),
        ("tls.alert_message.desc", ALERTS),
    ],
)
def test_codes_mean_what_they_mean_to_tshark(field, ours):
    """Where tshark's list, which is older than some codes, has them."""
    listed = subprocess.run(["tshark", "-G", "values"], capture_output=True, text=True, timeout=120).stdout
    rows = (line.split("\t") for line in listed.splitlines() if f"\t{field}\t" in line)
    theirs = {int(code, 0): plain(name) for _, _, code, name, *_ in rows}
    both = (theirs.keys() & ours.keys()) - {0x200, 0x201, 0x202}  # ML-KEM, experiments of others before
    assert len(both) > len(ours) * 0.5
    assert {code: plain(ours[code]) for code in both} == {code: theirs[code] for code in both}


def plain(name):
    return name.lower().replace(" ", "").replace("_", "")


@pytest.mark.tshark
def test_ja4_is_that_of_tshark(tmp_path):
    """On hellos of openssl with different options, in packets made for it."""
    fields = subprocess.run(["tshark", "-G", "fields"], capture_output=True, text=True, timeout=120).stdout
    if "tls.handshake.ja4\t" not in fields:
        pytest.skip("JA4 came with tshark 4.2")
    from scapy.all import IP, TCP, Ether, wrpcap

    ours, packets = [], []
    for number, words in enumerate((["-tls1_3", "-servername", "a.example"], ["-tls1_2", "-alpn", "h2"], [])):
        record = first_record(words)
        ours.append(ja4(read_client_hello(record[9:])))
        packets.append(Ether() / IP() / TCP(sport=40_000 + number, dport=443) / record)
    wrpcap(str(tmp_path / "hellos.pcap"), packets)
    words = ["-r", str(tmp_path / "hellos.pcap"), "-Tfields", "-e", "tls.handshake.ja4"]
    theirs = subprocess.run(["tshark", *words], capture_output=True, text=True, timeout=120).stdout
    assert theirs.split() == ours


def first_record(words):
    """The ClientHello of `openssl s_client` with these options."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = Peer("s_client", "-connect", f"127.0.0.1:{listener.getsockname()[1]}", *words)
        try:
            end, _ = listener.accept()
            with end:
                return end.recv(65536)
        finally:
            client.close()
