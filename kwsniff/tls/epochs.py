"""Which keys may protect a record: from what was negotiated and the secrets at hand, candidates for an epoch.

An epoch is a negotiation and a stage: early data, handshake, application data, and one more for each
KeyUpdate (RFC 8446, section 5.2); up to TLS 1.2 only the one after the ChangeCipherSpec. Where hellos are
missing, or several secrets stand for one label, there is more than one candidate, and the tag of a record
tells which is right.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from kwsniff.tls import schedule
from kwsniff.tls.keylog import KeyLog
from kwsniff.tls.protection import Protection, protection_1_2, protection_1_3
from kwsniff.tls.suites import CCM, SUITES, SUITES_1_3, TLS_1_3, Suite

CLEAR, EARLY, HANDSHAKE, APPLICATION = range(4)
"""Stages; APPLICATION + n is that after n KeyUpdates."""
MAX_GUESSES = 64
"""Client randoms of the key log that are tried where the hello that has it was not captured."""
MAX_CANDIDATES = 256


@dataclass(slots=True)
class Negotiation:
    """What hellos agreed on, as far as they were seen. Without secrets, so it may be pickled."""

    version: int
    cipher: int = 0
    client_random: bytes = b""
    server_random: bytes = b""
    encrypt_then_mac: bool = False
    resumes: bytes = b""
    """Client random of the earlier connection whose session this one may go on with, before TLS 1.3."""
    rsa_id: bytes = b""
    """First bytes of the encrypted premaster secret."""
    joined: bool = False
    """No hello was seen: the capture met the connection in its middle."""
    session_hash: bytes = b""
    """For the extended master secret (RFC 7627), if that was negotiated."""

    @property
    def suite(self) -> Suite | None:
        return SUITES.get(self.cipher)


class Candidate(NamedTuple):
    """Keys that may be those of a record, and what would be known if they are."""

    protection: Protection
    client_random: bytes
    cipher: int
    client: bool
    """Whether the sender is the client."""


def candidates(
    negotiation: Negotiation, stage: int, client: bool | None, keys: KeyLog, chain: bytearray
) -> list[Candidate]:
    """Candidates for the records of one direction in an epoch, the likeliest first.

    `client` says whether it is the client's direction, None if that is not known; `chain` is the last block
    that was sent, which TLS 1.0 goes on from.
    """
    known = negotiation.client_random
    found: list[Candidate] = []
    for random in [known] if known else keys.recent(MAX_GUESSES):
        for is_client in (True, False) if client is None else (client,):
            if negotiation.version == TLS_1_3:
                found += _of_1_3(negotiation, stage, random, is_client, keys)
            elif stage == APPLICATION:
                found += _of_1_2(negotiation, random, is_client, keys, chain)
        if len(found) >= MAX_CANDIDATES:
            break
    return found


def _of_1_3(
    negotiation: Negotiation, stage: int, random: bytes, client: bool, keys: KeyLog
) -> Iterator[Candidate]:
    end = "CLIENT" if client else "SERVER"
    label = {EARLY: f"{end}_EARLY_TRAFFIC_SECRET", HANDSHAKE: f"{end}_HANDSHAKE_TRAFFIC_SECRET"}
    secrets = keys.find(random) or {}
    for secret in secrets.get(label.get(stage, f"{end}_TRAFFIC_SECRET_0"), ()):
        for suite in _suites(negotiation, stage, len(secret)):
            current = schedule.next_secret(suite.hash, secret, max(stage - APPLICATION, 0))
            yield Candidate(protection_1_3(suite, current), random, suite.code, client)


def _suites(negotiation: Negotiation, stage: int, secret_bytes: int) -> list[Suite]:
    """Suites of TLS 1.3 with secrets of that length: the one that was selected, if it is known.

    Early data is sent before one is selected, with that of the session that is resumed. Where the connection
    is guessed, too, AES-CCM, which is rare, is left out.
    """
    if negotiation.suite and stage != EARLY:
        return [negotiation.suite] if _secret_bytes(negotiation.suite) == secret_bytes else []
    found = [suite for suite in SUITES_1_3 if _secret_bytes(suite) == secret_bytes]
    return found if not negotiation.joined else [suite for suite in found if suite.mode != CCM]


def _secret_bytes(suite: Suite) -> int:
    return {"sha256": 32, "sha384": 48}[suite.hash]


def _of_1_2(
    negotiation: Negotiation, random: bytes, client: bool, keys: KeyLog, chain: bytearray
) -> Iterator[Candidate]:
    suite, version = negotiation.suite, negotiation.version
    if suite is None:
        return
    randoms = negotiation.server_random + random
    for master in _masters(negotiation, suite, random, keys):
        block = schedule.key_block(version, suite, master, randoms, client)
        protection = protection_1_2(version, suite, block, negotiation.encrypt_then_mac, chain)
        yield Candidate(protection, random, suite.code, client)


def _masters(negotiation: Negotiation, suite: Suite, random: bytes, keys: KeyLog) -> list[bytes]:
    """Master secrets: as logged, that of the session that is resumed, or of the logged premaster secret."""
    for name in filter(None, (random, negotiation.resumes)):
        logged = keys.find(name) or {}
        if "CLIENT_RANDOM" in logged:
            return list(logged["CLIENT_RANDOM"])
    premasters = (keys.find(negotiation.rsa_id) or {}).get("RSA", ()) if negotiation.rsa_id else ()
    extended = bool(negotiation.session_hash)
    seed = negotiation.session_hash or random + negotiation.server_random
    return [
        schedule.master_secret(negotiation.version, suite.hash, premaster, seed, extended)
        for premaster in premasters
    ]
