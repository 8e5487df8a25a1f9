"""Cipher suites whose records can be opened, groups and alerts, as in IANA's registry of TLS parameters."""

from __future__ import annotations

from dataclasses import dataclass

TLS_1_0, TLS_1_1, TLS_1_2, TLS_1_3 = 0x0301, 0x0302, 0x0303, 0x0304
VERSIONS = {0x0300: "SSL 3.0", TLS_1_0: "TLS 1.0", TLS_1_1: "TLS 1.1", TLS_1_2: "TLS 1.2", TLS_1_3: "TLS 1.3"}
HEADER_BYTES = 5
GCM, CCM, CHACHA, CBC = "GCM", "CCM", "CHACHA20", "CBC"
BLOCK_BYTES = 16
TAG_BYTES = 16
EXPLICIT_NONCE_BYTES = 8


@dataclass(frozen=True, slots=True)
class Suite:
    """What the record protection of a cipher suite consists of. Sizes are bytes."""

    code: int
    name: str
    mode: str
    key_bytes: int
    hash: str
    """Of the key schedule: HKDF of TLS 1.3, PRF of TLS 1.2, as hashlib calls it."""
    tag_bytes: int = TAG_BYTES
    mac: str = ""
    """Of the records, for CBC."""
    rsa: bool = False
    """Whether the premaster secret is encrypted with the server's RSA key."""

    @property
    def iv_bytes(self) -> int:
        """The part of the nonce that comes from the key block (RFC 5288, RFC 6655, RFC 7905)."""
        return {CHACHA: 12, CBC: BLOCK_BYTES}.get(self.mode, 4)

    @property
    def mac_bytes(self) -> int:
        return {"sha1": 20, "sha256": 32, "sha384": 48}.get(self.mac, 0)


_TLS_1_3 = """
1301 AES_128_GCM_SHA256
1302 AES_256_GCM_SHA384
1303 CHACHA20_POLY1305_SHA256
1304 AES_128_CCM_SHA256
1305 AES_128_CCM_8_SHA256
"""
_TLS_1_2 = """
AES_128_CBC_SHA RSA 002F DH_DSS 0030 DH_RSA 0031 DHE_DSS 0032 DHE_RSA 0033 DH_anon 0034 PSK 008C DHE_PSK 0090
AES_128_CBC_SHA RSA_PSK 0094 ECDH_ECDSA C004 ECDHE_ECDSA C009 ECDH_RSA C00E ECDHE_RSA C013 ECDH_anon C018
AES_128_CBC_SHA SRP_SHA C01D SRP_SHA_RSA C01E SRP_SHA_DSS C01F ECDHE_PSK C035
AES_256_CBC_SHA RSA 0035 DH_DSS 0036 DH_RSA 0037 DHE_DSS 0038 DHE_RSA 0039 DH_anon 003A PSK 008D DHE_PSK 0091
AES_256_CBC_SHA RSA_PSK 0095 ECDH_ECDSA C005 ECDHE_ECDSA C00A ECDH_RSA C00F ECDHE_RSA C014 ECDH_anon C019
AES_256_CBC_SHA SRP_SHA C020 SRP_SHA_RSA C021 SRP_SHA_DSS C022 ECDHE_PSK C036
AES_128_CBC_SHA256 RSA 003C DH_DSS 003E DH_RSA 003F DHE_DSS 0040 DHE_RSA 0067 DH_anon 006C PSK 00AE
AES_128_CBC_SHA256 DHE_PSK 00B2 RSA_PSK 00B6 ECDHE_ECDSA C023 ECDH_ECDSA C025 ECDHE_RSA C027 ECDH_RSA C029
AES_128_CBC_SHA256 ECDHE_PSK C037
AES_256_CBC_SHA256 RSA 003D DH_DSS 0068 DH_RSA 0069 DHE_DSS 006A DHE_RSA 006B DH_anon 006D
AES_256_CBC_SHA384 PSK 00AF DHE_PSK 00B3 RSA_PSK 00B7 ECDHE_ECDSA C024 ECDH_ECDSA C026 ECDHE_RSA C028
AES_256_CBC_SHA384 ECDH_RSA C02A ECDHE_PSK C038
AES_128_GCM_SHA256 RSA 009C DHE_RSA 009E DH_RSA 00A0 DHE_DSS 00A2 DH_DSS 00A4 DH_anon 00A6 PSK 00A8
AES_128_GCM_SHA256 DHE_PSK 00AA RSA_PSK 00AC ECDHE_ECDSA C02B ECDH_ECDSA C02D ECDHE_RSA C02F ECDH_RSA C031
AES_128_GCM_SHA256 ECDHE_PSK D001
AES_256_GCM_SHA384 RSA 009D DHE_RSA 009F DH_RSA 00A1 DHE_DSS 00A3 DH_DSS 00A5 DH_anon 00A7 PSK 00A9
AES_256_GCM_SHA384 DHE_PSK 00AB RSA_PSK 00AD ECDHE_ECDSA C02C ECDH_ECDSA C02E ECDHE_RSA C030 ECDH_RSA C032
AES_256_GCM_SHA384 ECDHE_PSK D002
AES_128_CCM RSA C09C DHE_RSA C09E PSK C0A4 DHE_PSK C0A6 ECDHE_ECDSA C0AC
AES_256_CCM RSA C09D DHE_RSA C09F PSK C0A5 DHE_PSK C0A7 ECDHE_ECDSA C0AD
AES_128_CCM_8 RSA C0A0 DHE_RSA C0A2 PSK C0A8 PSK_DHE C0AA ECDHE_ECDSA C0AE
AES_256_CCM_8 RSA C0A1 DHE_RSA C0A3 PSK C0A9 PSK_DHE C0AB ECDHE_ECDSA C0AF
AES_128_CCM_8_SHA256 ECDHE_PSK D003
AES_128_CCM_SHA256 ECDHE_PSK D005
CHACHA20_POLY1305_SHA256 ECDHE_RSA CCA8 ECDHE_ECDSA CCA9 DHE_RSA CCAA PSK CCAB ECDHE_PSK CCAC DHE_PSK CCAD
CHACHA20_POLY1305_SHA256 RSA_PSK CCAE
"""
"""Cipher, then key exchange and code in turns. How keys are exchanged does not matter to who has secrets."""

_GROUPS = """
0015 secp224r1  0016 secp256k1  0017 secp256r1  0018 secp384r1  0019 secp521r1
001A brainpoolP256r1  001B brainpoolP384r1  001C brainpoolP512r1  001D x25519  001E x448
001F brainpoolP256r1tls13  0020 brainpoolP384r1tls13  0021 brainpoolP512r1tls13
0100 ffdhe2048  0101 ffdhe3072  0102 ffdhe4096  0103 ffdhe6144  0104 ffdhe8192
0200 MLKEM512  0201 MLKEM768  0202 MLKEM1024
11EB SecP256r1MLKEM768  11EC X25519MLKEM768  11ED SecP384r1MLKEM1024  6399 X25519Kyber768Draft00
"""
_ALERTS = """
0 close_notify  10 unexpected_message  20 bad_record_mac  21 decryption_failed  22 record_overflow
30 decompression_failure  40 handshake_failure  41 no_certificate  42 bad_certificate
43 unsupported_certificate  44 certificate_revoked  45 certificate_expired  46 certificate_unknown
47 illegal_parameter  48 unknown_ca  49 access_denied  50 decode_error  51 decrypt_error
60 export_restriction  70 protocol_version  71 insufficient_security  80 internal_error
86 inappropriate_fallback  90 user_canceled  100 no_renegotiation  109 missing_extension
110 unsupported_extension  111 certificate_unobtainable  112 unrecognized_name
113 bad_certificate_status_response  114 bad_certificate_hash_value  115 unknown_psk_identity
116 certificate_required  120 no_application_protocol  121 ech_required
"""


def _suite(code: int, name: str, cipher: str, exchange: str = "") -> Suite:
    words = cipher.split("_")
    mode = CHACHA if words[0] == CHACHA else words[2]
    last = {"SHA384": "sha384", "SHA": "sha1"}.get(words[-1], "sha256")
    return Suite(
        code,
        name,
        mode,
        256 // 8 if mode == CHACHA else int(words[1]) // 8,
        "sha384" if last == "sha384" else "sha256",
        tag_bytes=8 if "8" in words else TAG_BYTES,
        mac=last if mode == CBC else "",
        rsa=exchange == "RSA",
    )


def _suites() -> dict[int, Suite]:
    found = []
    for line in _TLS_1_3.split("\n")[1:-1]:
        code, cipher = line.split()
        found.append(_suite(int(code, 16), f"TLS_{cipher}", cipher))
    for line in _TLS_1_2.split("\n")[1:-1]:
        cipher, *pairs = line.split()
        for exchange, code in zip(pairs[::2], pairs[1::2], strict=True):
            found.append(_suite(int(code, 16), f"TLS_{exchange}_WITH_{cipher}", cipher, exchange))
    return {suite.code: suite for suite in found}


SUITES = _suites()
SUITES_1_3 = tuple(suite for code, suite in SUITES.items() if code >> 8 == 0x13)
ALERT_LEVELS = {1: "warning", 2: "fatal"}
ALERTS = {int(code): name for code, name in zip(_ALERTS.split()[::2], _ALERTS.split()[1::2], strict=True)}
GROUPS = {int(code, 16): name for code, name in zip(_GROUPS.split()[::2], _GROUPS.split()[1::2], strict=True)}


def suite_name(code: int) -> str:
    """IANA's name of a suite in the table, the code in hex of any other."""
    return SUITES[code].name if code in SUITES else f"0x{code:04X}"


def group_name(code: int) -> str:
    """IANA's name of a group, the code in hex of one that is not in the table."""
    return GROUPS.get(code, f"0x{code:04X}")


def overhead(version: int, suite: Suite) -> int:
    """Bytes of a record's body that are not plaintext: exact for AEAD, for CBC with half of the padding."""
    if version == TLS_1_3:
        return suite.tag_bytes + 1
    if suite.mode == CBC:
        return suite.mac_bytes + BLOCK_BYTES // 2 + (BLOCK_BYTES if version >= TLS_1_1 else 0)
    return suite.tag_bytes + (0 if suite.mode == CHACHA else EXPLICIT_NONCE_BYTES)
