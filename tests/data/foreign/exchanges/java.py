"""What Java programs open: remote method invocation, management, the debugger's wire protocol."""

from __future__ import annotations

import struct

from exchanges.stage import HOST, daemon, dialogue, exchange, scratch, served, wait_for

SLEEPER = (
    "public class Sleeper { public static void main(String[] a) throws Exception { Thread.sleep(600000); } }"
)
HELLO = b"JRMI\0\x02\x4b"
STREAM = b"\xac\xed\0\x05"


def registry_call(operation: int, more: bytes = b"") -> bytes:
    """A call of the registry (object 0), with its old interface hash."""
    return (
        b"\x50" + STREAM + b"\x77\x22" + bytes(22) + struct.pack(">iq", operation, 0x44154DC9D4E63BDF) + more
    )


ENDPOINT, PING = b"\0\x09127.0.0.1\0\0\0\0", b"\x52"
served(
    "rmi",
    "rmiregistry {port}",
    [HELLO, ENDPOINT, registry_call(1), PING, registry_call(2, b"t\0\x08order-%N"), PING],
)


@exchange("jmx")
def jmx(port: int, count: int) -> None:
    key = "-Dcom.sun.management.jmxremote"
    options = [
        key,
        *(f"{key}.{what}" for what in (f"port={port}", "authenticate=false", "ssl=false", f"host={HOST}")),
    ]
    asleep(port, options, count, [HELLO, ENDPOINT, registry_call(2, b"t\0\x06jmxrmi"), PING])


@exchange("jdwp")
def jdwp(port: int, count: int) -> None:
    """A length of four bytes, an id that counts up, flags, and the number of a command."""

    def ask(id_: int, group: int, command: int, body: bytes = b"") -> bytes:
        return struct.pack(">IIBBB", len(body) + 11, id_, 0, group, command) + body

    asks = [(1, 1), (1, 7), (1, 4), (1, 12), (1, 17), (1, 5)]
    words = [b"JDWP-Handshake", *(ask(id_, *which) for id_, which in enumerate(asks, 1)), ask(9, 1, 6)]
    option = f"-agentlib:jdwp=transport=dt_socket,server=y,suspend=n,address={HOST}:{port}"
    asleep(port, [option], count, words, one_by_one=True)


def asleep(port: int, options: list[str], count: int, words: list[bytes], one_by_one: bool = False) -> None:
    """Say `words` to a virtual machine whose program sleeps."""
    with scratch() as folder:
        source = folder / "Sleeper.java"
        source.write_text(SLEEPER)
        with daemon(["java", "-Xmx64m", *options, source], port):
            for _ in range(count if one_by_one else 1):
                wait_for(port)
                dialogue(port, 1 if one_by_one else count, words)
