"""The applications: clients and a broker over real sockets, and what each of them sent and read.

A talk is one connection: its messages in the order in which they are sent, and how its ends behave. Both
ends know the messages, so that whoever reads checks each byte; how many were sent and read whole is noted
and is the truth that captures are held against.
"""

from __future__ import annotations

import asyncio
import errno
import random
import socket
import struct
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from tests.netem.kafka import Message
from tests.netem.network import BROKER, Host

BROKER_PORT = 9092
RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: closing sends an RST."""
READ = 1 << 16
PATIENCE = 30.0
"""Seconds that a talk may take; one that takes longer is cut off, and so is the truth about it."""


@dataclass
class Nap:
    """A reader stops reading for so long after so many bytes: its window closes."""

    after: int
    seconds: float


@dataclass
class Talk:
    """One connection."""

    kind: str
    port: int
    messages: list[Message]
    seed: int
    depth: int = 1
    """Requests in flight at the most."""
    chunks: tuple[int, int] | None = None
    """Bytes of each call of send(), from and to; None: what there is, at once."""
    nodelay: bool = True
    receive: tuple[int, int] = (0, 0)
    """SO_RCVBUF of client and broker; 0: the system's."""
    nap: tuple[Nap | None, Nap | None] = (None, None)
    silence: tuple[int, float] | None = None
    """Before this message nobody says anything for so many seconds."""
    keepalive: bool = False
    fast_open: bool = False
    ending: str = "client"
    """Who closes first: client or broker; half: the client ends its direction when all is asked, and is
    answered then; client-reset, broker-reset: inside a message; unread: the client closes before it has read
    all, which its kernel tells with an RST."""
    stop: int = 0
    """With a reset: so many messages come before it."""

    asked: int = 0
    """Requests of which the client gave a byte to send()."""
    understood: int = 0
    """Requests that the broker read whole."""
    answered: int = 0
    """Responses of which the broker gave a byte to send()."""
    read: int = 0
    """Responses that the client read whole."""
    silent: float = 0.0
    """A moment in the silence, in seconds since 1970."""
    problem: str = ""

    @property
    def is_cut(self) -> bool:
        """Whether it ends inside a message."""
        return self.ending in ("client-reset", "broker-reset", "unread") or bool(self.problem)


class Reader:
    """One end's reading of a stream whose bytes it knows."""

    def __init__(self, sock: socket.socket, messages: Sequence[bytes], nap: Nap | None) -> None:
        self.sock, self.messages, self.nap = sock, messages, nap
        self.whole = 0
        """Messages read whole."""
        self.total = 0
        self._waiting = bytearray()

    async def next(self) -> bool:
        """Wait for the next message; False: the stream has ended."""
        wanted = self.messages[self.whole] if self.whole < len(self.messages) else b""
        while len(self._waiting) < len(wanted) or not wanted:
            if self.nap and self.total >= self.nap.after:
                seconds, self.nap = self.nap.seconds, None
                await asyncio.sleep(seconds)
            got = await asyncio.get_running_loop().sock_recv(self.sock, READ)
            if not got:
                return False
            self._waiting += got
            self.total += len(got)
        if self._waiting[: len(wanted)] != wanted:
            raise AssertionError("the kernel handed over other bytes than were sent")
        del self._waiting[: len(wanted)]
        self.whole += 1
        return True


async def send(sock: socket.socket, data: bytes, chunks: tuple[int, int] | None, rng: random.Random) -> None:
    loop = asyncio.get_running_loop()
    at = 0
    while at < len(data):
        size = rng.randint(*chunks) if chunks else len(data)
        await loop.sock_sendall(sock, data[at : at + size])
        at += size
        if chunks:
            await asyncio.sleep(0)


class Client:
    """The client's end of a talk."""

    def __init__(self, host: Host, talk: Talk) -> None:
        self.host, self.talk = host, talk
        self.rng = random.Random(f"client-{talk.seed}")
        self.room = asyncio.Event()
        self.opened = 0
        """Bytes of the first request that went with the SYN."""

    async def run(self) -> None:
        try:
            sock = await self._connected()
        except OSError as error:
            self.talk.problem = f"not connected: {error}"
            return
        if self.talk.fast_open:
            self.opened = self._fast_open(sock)
        tasks = [asyncio.create_task(each) for each in (self._read(sock), self._write(sock))]
        hasty = self.talk.ending in ("client-reset", "unread")
        try:
            # A reader that fails ends the talk; a writer that is done does only where nothing is awaited.
            waiting = set(tasks)
            while waiting and not (hasty and tasks[1].done()):
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
        except OSError as error:
            if not self.talk.is_cut:
                self.talk.problem = f"client: {error!r}"
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            sock.close()

    async def _connected(self) -> socket.socket:
        """From its port, as soon as the connection before has left it."""
        loop = asyncio.get_running_loop()
        deadline = time.monotonic() + 5
        while True:
            sock = self.host.socket()
            try:
                self._prepare(sock)
                if not self.talk.fast_open:
                    await loop.sock_connect(sock, (BROKER, BROKER_PORT))
                return sock
            except OSError as error:
                sock.close()
                known = error.errno in (errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.ECONNRESET)
                if not known or time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.02)

    def _prepare(self, sock: socket.socket) -> None:
        talk = self.talk
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        prepare(sock, talk, talk.receive[0])
        sock.bind((self.host.address, talk.port))

    async def _write(self, sock: socket.socket) -> None:
        talk = self.talk
        for number, message in enumerate(talk.messages):
            if talk.silence and number == talk.silence[0]:
                await self._until(0)
                await asyncio.sleep(talk.silence[1] / 2)
                talk.silent = time.time()
                await asyncio.sleep(talk.silence[1] / 2)
            await self._until(talk.depth - 1)
            if talk.ending == "client-reset" and number == talk.stop:
                talk.asked += 1
                await send(sock, message.request[: self.rng.randrange(len(message.request))], None, self.rng)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                return
            if talk.ending == "unread" and number == talk.stop:
                return
            talk.asked += 1
            await send(sock, message.request[0 if number else self.opened :], talk.chunks, self.rng)
        if talk.ending == "half":
            sock.shutdown(socket.SHUT_WR)

    def _fast_open(self, sock: socket.socket) -> int:
        """The first bytes go with the SYN (RFC 7413); so many did."""
        with suppress(BlockingIOError):
            return sock.sendto(
                self.talk.messages[0].request[:1000], socket.MSG_FASTOPEN, (BROKER, BROKER_PORT)
            )
        return 0

    async def _until(self, in_flight: int) -> None:
        """Until no more requests than these wait for a response."""
        while self._in_flight() > in_flight:
            self.room.clear()
            await self.room.wait()

    def _in_flight(self) -> int:
        talk = self.talk
        wanted = sum(message.response is not None for message in talk.messages[: talk.asked])
        return wanted - talk.read

    async def _read(self, sock: socket.socket) -> None:
        talk = self.talk
        reader = Reader(sock, [m.response for m in talk.messages if m.response is not None], talk.nap[0])
        while reader.whole < len(reader.messages):
            if not await reader.next():
                raise ConnectionError("the broker closed early")
            talk.read = reader.whole
            self.room.set()
        if talk.ending in ("broker", "half") and await reader.next():
            raise AssertionError("more bytes than responses")


class Broker:
    """All brokers' ends: told apart by the client's port, in the order in which it connects."""

    def __init__(self, host: Host, chains: Sequence[Sequence[Talk]]) -> None:
        self.expected = {chain[0].port: deque(chain) for chain in chains}
        self.listener = host.socket()
        self.listener.setblocking(False)
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind((BROKER, BROKER_PORT))
        self.listener.listen(256)
        self.tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while True:
                sock, (_, port) = await loop.sock_accept(self.listener)
                sock.setblocking(False)
                task = asyncio.create_task(self._serve(sock, self.expected[port].popleft()))
                self.tasks.add(task)
        finally:
            for task in self.tasks:
                task.cancel()
            await asyncio.gather(*self.tasks, return_exceptions=True)
            self.listener.close()

    async def _serve(self, sock: socket.socket, talk: Talk) -> None:
        rng = random.Random(f"broker-{talk.seed}")
        prepare(sock, talk, talk.receive[1])
        ready: asyncio.Queue[int | None] = asyncio.Queue()
        reading = asyncio.create_task(self._read(sock, talk, ready))
        try:
            await self._answer(sock, talk, ready, rng)
            if talk.ending == "client":
                await asyncio.wait_for(asyncio.get_running_loop().sock_recv(sock, 1), PATIENCE)
        except OSError as error:
            if not talk.is_cut:
                talk.problem = f"broker: {error!r}"
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            sock.close()

    async def _read(self, sock: socket.socket, talk: Talk, ready: asyncio.Queue[int | None]) -> None:
        reader = Reader(sock, [message.request for message in talk.messages], talk.nap[1])
        try:
            while reader.whole < len(talk.messages) and await reader.next():
                talk.understood = reader.whole
                ready.put_nowait(reader.whole - 1)
        except OSError:
            pass
        finally:
            ready.put_nowait(None)

    async def _answer(
        self, sock: socket.socket, talk: Talk, ready: asyncio.Queue[int | None], rng: random.Random
    ) -> None:
        """What waits is sent at once, in order; the end comes when there are no more requests."""
        while (number := await ready.get()) is not None:
            data = bytearray()
            while number is not None:
                response = talk.messages[number].response
                talk.answered = number + 1
                if talk.ending == "broker-reset" and number == talk.stop:
                    data += (response or b"")[: rng.randrange(len(response or b"x"))]
                    await send(sock, bytes(data), talk.chunks, rng)
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                    return
                data += response or b""
                if ready.empty() or len(data) > 1 << 18:
                    break
                number = ready.get_nowait()
            await send(sock, bytes(data), talk.chunks, rng)
            if number is None:
                return
            if rng.random() < 0.3:
                await asyncio.sleep(rng.random() * 0.004)


def prepare(sock: socket.socket, talk: Talk, receive: int) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, talk.nodelay)
    if receive:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive)
    if talk.keepalive:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)


@dataclass
class Run:
    """All talks of one network, at once; those of a chain use the same port one after the other."""

    client: Host
    broker: Host
    chains: list[list[Talk]] = field(default_factory=list)

    def go(self) -> None:
        asyncio.run(self._all())

    async def _all(self) -> None:
        serving = asyncio.create_task(Broker(self.broker, self.chains).run())
        await asyncio.gather(*(self._chain(chain) for chain in self.chains))
        await asyncio.sleep(0.3)
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)

    async def _chain(self, chain: list[Talk]) -> None:
        for talk in chain:
            try:
                await asyncio.wait_for(Client(self.client, talk).run(), PATIENCE)
            except TimeoutError:
                talk.problem = "took too long"
