"""One TLS connection: whole records of both directions in, application data and facts of the handshake out.

Records of a direction come in the order of its stream; those of the two directions may come in any order. A
record whose keys are known and before which nothing was lost takes the short way through `take`. Every other
one goes through `_take`, which follows the handshake (RFC 8446, section 2; RFC 5246, section 7.3) and
searches epoch and sequence number (`kwsniff.tls.direction`). Nothing in a record makes it raise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from kwsniff.tls import hellos, schedule
from kwsniff.tls.direction import GUESS_CREDIT, Direction, Epoch
from kwsniff.tls.epochs import APPLICATION, CLEAR, EARLY, HANDSHAKE, Negotiation
from kwsniff.tls.keylog import RSA_ID_BYTES, KeyLog
from kwsniff.tls.protection import APPLICATION_DATA, Opened, Record
from kwsniff.tls.suites import (
    ALERT_LEVELS,
    ALERTS,
    HEADER_BYTES,
    TLS_1_2,
    TLS_1_3,
    VERSIONS,
    group_name,
    suite_name,
)

CHANGE_CIPHER_SPEC, ALERT, HANDSHAKE_RECORD = 20, 21, 22
LETTERS = {
    hellos.HELLO_REQUEST: "h", hellos.CLIENT_HELLO: "c", hellos.SERVER_HELLO: "s",
    hellos.NEW_SESSION_TICKET: "t", hellos.END_OF_EARLY_DATA: "e", hellos.ENCRYPTED_EXTENSIONS: "o",
    hellos.CERTIFICATE: "x",
    hellos.SERVER_KEY_EXCHANGE: "k", hellos.CERTIFICATE_REQUEST: "r", hellos.SERVER_HELLO_DONE: "n",
    hellos.CERTIFICATE_VERIFY: "y", hellos.CLIENT_KEY_EXCHANGE: "g", hellos.FINISHED: "f",
    hellos.CERTIFICATE_STATUS: "u", hellos.KEY_UPDATE: "p",
}  # fmt: skip
RETRY_LETTER, CHANGE_LETTER, ALERT_LETTER, OTHER_LETTER = "jilq"
MAX_HISTORY = 64
"""Letters of it, so many at the most."""
SAMPLED = 63
"""One record in so many and one is looked at for the mean size."""
MAX_HANDSHAKE = 128 * 1024
"""Bytes of a handshake message, or of all that a session hash is made of; longer ones are not read."""
MAX_MESSAGES = 64
"""Handshake messages of one record that are read."""
MAX_HANDSHAKE_RECORDS = 64
"""Records of a TLS 1.3 handshake whose own secrets are missing that are taken for no application data."""


@dataclass(slots=True)
class Facts:
    """What the row of a connection says. Unknown texts are empty."""

    version: str = ""
    cipher: str = ""
    """IANA's name."""
    group: str = ""
    """Of the key exchange, IANA's name."""
    sni: str = ""
    alpn: str = ""
    """The protocol that was selected."""
    resumed: bool | None = None
    subject: str = ""
    """Of the server's certificate, RFC 4514; up to TLS 1.2 in the clear, later only if it was decrypted."""
    not_before: int | None = None
    """Beginning of the validity of that certificate, seconds since 1970, UTC."""
    not_after: int | None = None
    """End of it, the same."""
    client_certificate: bool | None = None
    """Whether the client showed one; None also for a resumed session, which may go on with an earlier one."""
    client_subject: str = ""
    sni_matches: bool | None = None
    """Whether the server's certificate is for the name that the client asked for (RFC 6125); None if not both
    are known."""
    ja4: str = ""
    """Of the first ClientHello, see `kwsniff.tls.hellos.ja4`."""
    history: str = ""
    """Messages in the order of their capture, a letter each as in the ssl.log of Zeek (LETTERS), those of the
    client as capitals."""
    decrypted: bool = False
    """At least one record of application data was decrypted."""
    alert: tuple[str, str, int] | None = None
    """Level, description and side of the first alert that could be read."""


@dataclass(slots=True)
class Handshake:
    """What has to be kept from one message of a handshake to the next."""

    retried: bool = False
    """There was a HelloRetryRequest."""
    full: bool = False
    """The server sent more than its hello before its ChangeCipherSpec: no session is resumed."""
    transcript: list[bytearray] = field(default_factory=lambda: [bytearray(), bytearray(), bytearray()])
    """Messages up to the ClientKeyExchange: the client's hello, those of the server, the other ones of the
    client; kept while a session hash may have to be made of them."""


class Session:
    """See the module. `client` is the side (0 or 1) that is the client, None while unknown; `hello` the last
    ClientHello, for `kwsniff.tls.hellos.ja4`.

    A session pickles without keys and secrets: afterwards its `keys` must be set to a key log again.
    """

    def __init__(self, keys: KeyLog | None) -> None:
        """With None for the key log nothing is decrypted."""
        self.keys = keys
        self.facts = Facts()
        self.client: int | None = None
        self.hello: hellos.ClientHello | None = None
        self._directions = (Direction(), Direction())
        self._negotiation: Negotiation | None = None
        self._assumed: Negotiation | None = None
        """TLS 1.3 without the server's hello."""
        self._handshake = Handshake()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "keys": None}

    def take(self, side: int, record: Record, lost: int = 0) -> bytes | None:
        """The application data in one whole record, with its header, of one side's stream.

        `lost`: bytes of the stream that are missing between the previous record of that side and this one.
        Returns nothing ("") for records without application data, None for one that cannot be decrypted: its
        secrets are not at hand (yet), or its tag does not fit.
        """
        direction = self._directions[side]
        if lost or direction.open is None:
            return self._take(side, record, lost)
        sequence = direction.sequence
        if direction.decrypt is None:
            opened = direction.open(record, sequence)
            if opened.__class__ is not bytes:
                return self._take(side, record, lost)
        else:
            # `Sealed.open` once more, without what calling it takes.
            try:
                nonce = (direction.iv ^ sequence).to_bytes(12, "big")
                inner = direction.decrypt(nonce, record[5:], record[:5])
            except Exception:
                return self._take(side, record, lost)
            if not inner or inner[-1] != APPLICATION_DATA:
                return self._take(side, record, lost)
            opened = inner[:-1]
        direction.sequence = sequence + 1
        if not sequence & SAMPLED:
            direction.sample(record)
        return opened

    def size_of(self, side: int, record_length: int) -> int:
        """Bytes of plaintext in a record whose body has so many bytes, at least 0.

        Exact for AEAD, if TLS 1.3 does not pad; for CBC the padding is taken for half a block.
        """
        direction = self._directions[side]
        return max(0, record_length - direction.overhead(direction.negotiation or self._negotiation))

    def lost_size(self, side: int, count: int) -> int:
        """About how many bytes of plaintext were in so many lost bytes of the stream, at least 1."""
        direction = self._directions[side]
        overhead = HEADER_BYTES + direction.overhead(direction.negotiation or self._negotiation)
        return max(1, count - max(1, round(count / direction.mean_record())) * overhead)

    def _take(self, side: int, record: Record, lost: int) -> bytes | None:
        direction = self._directions[side]
        if lost > 0:
            direction.lose(lost)
        if len(record) <= HEADER_BYTES:
            return b""
        kind = record[0]
        if kind == APPLICATION_DATA:
            return self._take_encrypted(side, record)
        if kind not in (CHANGE_CIPHER_SPEC, ALERT, HANDSHAKE_RECORD):
            return None
        if self._is_clear(direction, kind):
            return self._take_clear(side, record)
        return self._take_encrypted(side, record)

    def _is_clear(self, direction: Direction, kind: int) -> bool:
        """Whether a record that is no application data is not encrypted: TLS 1.3 has no others, up to TLS 1.2
        it is before the ChangeCipherSpec, which itself may have been lost."""
        negotiation = direction.negotiation or self._negotiation
        if negotiation is None or negotiation.version == TLS_1_3:
            retried = negotiation is None and self._handshake.retried  # hellos follow a ChangeCipherSpec
            return not direction.changed or negotiation is not None or retried or kind == CHANGE_CIPHER_SPEC
        if direction.stage != CLEAR:
            return False
        return not (direction.changed or direction.missed) or kind == CHANGE_CIPHER_SPEC

    def _take_clear(self, side: int, record: Record) -> bytes:
        direction, kind, content = self._directions[side], record[0], bytes(record[HEADER_BYTES:])
        if kind == CHANGE_CIPHER_SPEC:
            self._change(side)
            self._note(side, CHANGE_LETTER)
        elif kind == ALERT:
            self._alert(side, content)
        elif direction.stage <= HANDSHAKE:
            self._read(side, content)
        return b""

    def _take_encrypted(self, side: int, record: Record) -> bytes | None:
        direction = self._directions[side]
        opened = self._open(side, record)
        if opened is None:
            innocent = self._is_handshake(side)
            direction.fail(record)
            if record[0] == HANDSHAKE_RECORD and direction.stage == CLEAR and not direction.changed:
                self._take_clear(side, record)  # no ChangeCipherSpec was lost after all
                return b""
            return b"" if innocent else None
        if isinstance(opened, bytes):
            self.facts.decrypted = True
            direction.hurry()
            direction.sample(record)
            return opened
        kind, content = opened
        if kind == HANDSHAKE_RECORD:
            self._read(side, content)
        elif kind == ALERT:
            self._alert(side, content)
        elif kind == CHANGE_CIPHER_SPEC and self._negotiation:  # renegotiation
            direction.begin(self._negotiation, APPLICATION)
        return b""

    def _open(self, side: int, record: Record) -> Opened:
        direction = self._directions[side]
        epochs = self._epochs(side)
        if self.keys is None or not epochs:
            return None
        client = None if self.client is None else side == self.client
        opened, candidate = direction.search(record, epochs, self.keys, client)
        if candidate is not None:
            if self.client is None:
                self.client = side if candidate.client else 1 - side
            if direction.negotiation is self._assumed:
                self.facts.version = VERSIONS[TLS_1_3]
                self.facts.cipher = suite_name(candidate.cipher)
        return opened

    def _epochs(self, side: int) -> list[Epoch]:
        """Epochs in which the next record of a side may be, the likeliest first."""
        direction = self._directions[side]
        negotiation = direction.negotiation or self._negotiation
        if negotiation is None:
            if self._assumed is None:
                random = self.hello.random if self.hello else b""
                self._assumed = Negotiation(TLS_1_3, client_random=random, joined=not random)
                for each in self._directions if self._assumed.joined else ():
                    each.credit = GUESS_CREDIT
            negotiation = self._assumed
        if negotiation.joined and not negotiation.client_random:
            return [(negotiation, APPLICATION)]
        if negotiation.version == TLS_1_3:
            early = side == self.client and self.hello and self.hello.offers(hellos.EARLY_DATA)
            first = max(direction.stage, EARLY if early else HANDSHAKE)
            return [(negotiation, stage) for stage in range(first, first + 3)]
        renegotiated = self._negotiation if self._negotiation is not negotiation else None
        return [(each, APPLICATION) for each in (negotiation, renegotiated) if each]

    def _is_handshake(self, side: int) -> bool:
        """Whether a record that did not open is one of the handshake of TLS 1.3, whose secrets are missing:
        those of the application data are at hand, and it would be the first of it."""
        direction, keys = self._directions[side], self.keys
        negotiation = direction.negotiation
        if keys is None or negotiation is None or negotiation.version != TLS_1_3:
            return False
        if direction.stage >= APPLICATION or direction.missed or direction.failed >= MAX_HANDSHAKE_RECORDS:
            return False
        return direction.has_keys((negotiation, APPLICATION), keys, side == self.client)

    def _change(self, side: int) -> None:
        """A ChangeCipherSpec in the clear: nothing in TLS 1.3, before that the next record is encrypted."""
        direction, negotiation = self._directions[side], self._negotiation
        direction.changed = not self._handshake.retried  # a second ClientHello follows that of TLS 1.3
        if negotiation is None or negotiation.version == TLS_1_3 or direction.stage != CLEAR:
            return
        direction.begin(negotiation, APPLICATION)
        if side != self.client and self.facts.resumed is None:
            self.facts.resumed = not self._handshake.full

    def _note(self, side: int, letter: str) -> None:
        """Add a message to the history."""
        if len(self.facts.history) < MAX_HISTORY:
            self.facts.history += letter if side != self.client else letter.upper()

    def _alert(self, side: int, content: bytes) -> None:
        self._note(side, ALERT_LETTER)
        if len(content) == 2 and self.facts.alert is None:
            level, description = content
            self.facts.alert = (
                ALERT_LEVELS.get(level, str(level)),
                ALERTS.get(description, str(description)),
                side,
            )

    def _read(self, side: int, content: bytes) -> None:
        """Handshake messages in a record, of which the first and the last may go on in others."""
        direction = self._directions[side]
        skipped = min(direction.skip, len(content))
        direction.skip -= skipped
        messages = direction.messages
        messages += content[skipped:]
        for _ in range(MAX_MESSAGES):
            if len(messages) < 4:
                return
            size = 4 + int.from_bytes(messages[1:4], "big")
            if messages[0] not in hellos.MESSAGES:  # the middle of a message whose beginning was lost
                break
            if size > MAX_HANDSHAKE:
                direction.skip = max(0, size - len(messages))
                del messages[:size]
            elif len(messages) < size:
                return
            else:
                message = bytes(messages[:size])
                del messages[:size]
                self._message(side, message)
        messages.clear()

    def _message(self, side: int, message: bytes) -> None:
        kind, body = message[0], message[4:]
        if kind == hellos.CLIENT_HELLO and self.client in (None, side):
            self._keep(0, message, anew=True)
        elif kind != hellos.HELLO_REQUEST:
            self._keep(2 if side == self.client else 1, message)
        read = self._READERS.get(kind)
        try:
            if read is not None:
                read(self, side, body)
        except hellos.MalformedError:
            return
        finally:
            is_retry = kind == hellos.SERVER_HELLO and body[2:34] == hellos.RETRY_RANDOM
            self._note(side, RETRY_LETTER if is_retry else LETTERS.get(kind, OTHER_LETTER))

    def _keep(self, part: int, message: bytes, anew: bool = False) -> None:
        """Add a message to the transcript, as long as there is one."""
        transcript = self._handshake.transcript
        if anew:
            transcript[:] = bytearray(), bytearray(), bytearray()
        if transcript and sum(map(len, transcript)) + len(message) <= MAX_HANDSHAKE:
            transcript[part] += message
        else:
            transcript.clear()

    def _client_hello(self, side: int, body: bytes) -> None:
        if self.client not in (None, side):
            return
        hello = hellos.read_client_hello(body)
        self.client, self.hello = side, hello
        self.facts.sni = hello.sni or self.facts.sni
        self.facts.ja4 = self.facts.ja4 or hellos.ja4(hello)
        self._handshake.full = False
        negotiation = self._negotiation
        if negotiation and not negotiation.client_random:  # the server's hello was captured before
            negotiation.client_random = hello.random
            for direction in self._directions:
                direction.version = -1

    def _server_hello(self, side: int, body: bytes) -> None:
        if side == self.client:
            return
        hello, facts, handshake = hellos.read_server_hello(body), self.facts, self._handshake
        self.client = 1 - side
        facts.version = VERSIONS.get(hello.version, f"0x{hello.version:04X}")
        facts.cipher = suite_name(hello.cipher)
        facts.group = group_name(hello.group) if hello.group else facts.group
        facts.alpn = hello.alpn or facts.alpn
        if hello.is_retry:
            handshake.retried = True
            return
        negotiation = Negotiation(
            hello.version, hello.cipher, self.hello.random if self.hello else b"", hello.random
        )
        self._negotiation = negotiation
        if hello.version == TLS_1_3:
            handshake.transcript.clear()
            facts.resumed = hellos.PRE_SHARED_KEY in hello.extensions
            self._protect(negotiation)
        else:
            self._agree(negotiation, hello)

    def _protect(self, negotiation: Negotiation) -> None:
        """From the ServerHello of TLS 1.3 on everything is encrypted; a client may still send early data."""
        for side, direction in enumerate(self._directions):
            if direction.stage == CLEAR:
                early = side == self.client and self.hello and self.hello.offers(hellos.EARLY_DATA)
                failed = direction.failed
                direction.begin(negotiation, EARLY if early and not self._handshake.retried else HANDSHAKE)
                direction.sequence = direction.failed = failed

    def _agree(self, negotiation: Negotiation, hello: hellos.ServerHello) -> None:
        """What the ServerHello says up to TLS 1.2: how records are protected, which session goes on."""
        negotiation.encrypt_then_mac = hellos.ENCRYPT_THEN_MAC in hello.extensions
        suite = negotiation.suite
        if suite is None or not suite.rsa or hellos.EXTENDED_MASTER_SECRET not in hello.extensions:
            self._handshake.transcript.clear()
        client, session = self.hello, hello.session_id
        same = bool(client and session and client.session_id == session)
        self.facts.resumed = True if same else None
        if self.keys is None or client is None:
            return
        names = (client.ticket, hellos.session_key(session) if session else b"")
        earlier = [random for name in names if name and (random := self.keys.recall(name))]
        known = [random for random in earlier if self.keys.find(random)]
        negotiation.resumes = next(iter(known or earlier), b"")
        if session and not same and not earlier:
            self.keys.remember(names[1], client.random)

    def _certificate(self, side: int, body: bytes) -> None:
        version, facts = self._version(), self.facts
        der = hellos.read_certificate(body, version)
        if side == self.client:
            facts.client_certificate = der is not None
            facts.client_subject = hellos.owner(der).subject if der else ""
            return
        self._full()
        if der:
            owner = hellos.owner(der)
            facts.subject = owner.subject
            facts.not_before, facts.not_after = owner.not_before, owner.not_after
            if facts.sni and owner.names:
                facts.sni_matches = any(hellos.is_for(name, facts.sni) for name in owner.names)

    def _version(self) -> int:
        negotiation = self._negotiation or self._assumed
        return negotiation.version if negotiation else TLS_1_2

    def _full(self) -> None:
        self._handshake.full = True
        if self._version() < TLS_1_3:
            self.facts.resumed = False

    def _server_key_exchange(self, side: int, body: bytes) -> None:
        self._full()
        if "_ECDHE_" in self.facts.cipher or "_ECDH_" in self.facts.cipher:
            group = hellos.read_key_exchange_group(body)
            self.facts.group = group_name(group) if group else ""

    def _server_hello_done(self, side: int, body: bytes) -> None:
        self._full()

    def _client_key_exchange(self, side: int, body: bytes) -> None:
        negotiation, transcript = self._negotiation, self._handshake.transcript
        if side != self.client or negotiation is None:
            return
        if self.facts.client_certificate is None:
            self.facts.client_certificate = False
        suite = negotiation.suite
        if suite and suite.rsa:
            negotiation.rsa_id = body[2 : 2 + RSA_ID_BYTES]
            if transcript:
                messages = b"".join(transcript)
                negotiation.session_hash = schedule.transcript_hash(negotiation.version, suite.hash, messages)
        transcript.clear()

    def _new_session_ticket(self, side: int, body: bytes) -> None:
        negotiation = self._negotiation
        if negotiation is None or negotiation.version == TLS_1_3 or self.keys is None:
            return
        origin = negotiation.client_random if self._handshake.full else negotiation.resumes
        if origin and (ticket := hellos.read_ticket(body)):
            self.keys.remember(ticket, origin)

    def _encrypted_extensions(self, side: int, body: bytes) -> None:
        self.facts.alpn = hellos.read_encrypted_extensions(body) or self.facts.alpn

    def _end_of_early_data(self, side: int, body: bytes) -> None:
        self._advance(side, EARLY, HANDSHAKE)

    def _finished(self, side: int, body: bytes) -> None:
        self._advance(side, HANDSHAKE, APPLICATION)
        if side == self.client and self.facts.client_certificate is None and not self.facts.resumed:
            self.facts.client_certificate = False

    def _key_update(self, side: int, body: bytes) -> None:
        stage = self._directions[side].stage
        if stage >= APPLICATION and len(body) == 1:
            self._advance(side, stage, stage + 1)

    def _advance(self, side: int, stage: int, following: int) -> None:
        """To the next epoch of TLS 1.3, after a message that is the last one of its epoch."""
        direction = self._directions[side]
        negotiation = direction.negotiation
        if negotiation and negotiation.version == TLS_1_3 and direction.stage == stage:
            direction.begin(negotiation, following)

    _READERS: ClassVar[dict[int, Callable[[Session, int, bytes], None]]] = {
        hellos.CLIENT_HELLO: _client_hello,
        hellos.SERVER_HELLO: _server_hello,
        hellos.NEW_SESSION_TICKET: _new_session_ticket,
        hellos.END_OF_EARLY_DATA: _end_of_early_data,
        hellos.ENCRYPTED_EXTENSIONS: _encrypted_extensions,
        hellos.CERTIFICATE: _certificate,
        hellos.SERVER_KEY_EXCHANGE: _server_key_exchange,
        hellos.SERVER_HELLO_DONE: _server_hello_done,
        hellos.CLIENT_KEY_EXCHANGE: _client_key_exchange,
        hellos.FINISHED: _finished,
        hellos.KEY_UPDATE: _key_update,
    }
