"""A packet socket of Linux (packet(7)), read many packets at a time.

Theory of operation. scapy opens the socket and has libpcap compile the filter that the kernel runs; from then
on `recvmmsg(2)` fills a row of slots with one call, and the addresses, lengths and times that it reports are
read as NumPy columns. Python's own socket can take one packet a call only, and scapy would dissect each.

Invariant: between two calls of `take` the slots hold the packets of the last one; `take` copies them out.
"""

from __future__ import annotations

import ctypes
import errno
import logging
import os
import shlex
import socket
import sys
import time
from contextlib import suppress
from typing import Any

import numpy as np

from kwsniff.capture.error import LiveError
from kwsniff.net.packets import Integers

ANY = "any"
SLOTS = 256
"""Packets taken from the kernel at a time."""
SLOT_BYTES = 66_048
"""The longest frame a loopback interface carries (65,550 bytes), and some."""
ETHERNET, RAW_IP = 1, 101
"""LINKTYPE_ values (https://www.tcpdump.org/linktypes.html)."""

_LINKTYPES = {1: ETHERNET, 772: ETHERNET, 65534: RAW_IP, 768: RAW_IP, 776: RAW_IP, 778: RAW_IP, 519: RAW_IP}
"""By the kernel's ARPHRD_ (linux/if_arp.h): Ethernet, loopback, and tunnels without a link layer."""
_LOOPBACK, _OUTGOING = 772, 4
_DLT_RAW = 12
_SOL_PACKET, _STATISTICS, _IGNORE_OUTGOING = 263, 6, 23
_SO_RCVBUFFORCE, _SO_TIMESTAMPNS = 33, 35
_MSG_DONTWAIT, _MSG_TRUNC = 0x40, 0x20
_ETH_P_ALL = 3

_ADDRESS = np.dtype(
    [
        ("family", "<u2"), ("protocol", ">u2"), ("index", "<i4"), ("hardware", "<u2"), ("kind", "u1"),
        ("rest", "V9"),
    ]
)  # fmt: skip
"""struct sockaddr_ll, packet(7)."""
_CONTROL = np.dtype(
    [
        ("size", "<u8"), ("level", "<i4"), ("type", "<i4"), ("seconds", "<i8"), ("nanos", "<i8"),
        ("rest", "V96"),
    ]
)  # fmt: skip
"""struct cmsghdr with a timespec, which the kernel writes first, and room for those after it."""
_VECTOR = np.dtype([("base", "<u8"), ("size", "<u8")])
_MESSAGE = np.dtype(
    [
        ("name", "<u8"), ("name_size", "<u4"), ("pad", "<u4"), ("vectors", "<u8"), ("vector_count", "<u8"),
        ("control", "<u8"), ("control_size", "<u8"), ("flags", "<i4"), ("pad2", "<u4"), ("size", "<u4"),
        ("pad3", "<u4"),
    ]
)  # fmt: skip
"""struct mmsghdr of a 64-bit Linux, recvmmsg(2)."""


class ReadPackets:
    """Packets as they were taken together: bytes one after the other, and columns."""

    __slots__ = ("caplen", "data", "origlen", "time_ns")

    def __init__(self, data: bytes, caplen: Integers, origlen: Integers, time_ns: Integers) -> None:
        self.data, self.caplen, self.origlen, self.time_ns = data, caplen, origlen, time_ns

    def __len__(self) -> int:
        return len(self.caplen)


class GoneError(Exception):
    """The interface is no more."""


class Listener:
    """One open socket."""

    def __init__(self, interface: str, bpf: str, *, promiscuous: bool, buffer_bytes: int) -> None:
        """Open the socket.

        Args:
            interface: its name, or `any` for all of them.
            bpf: filter in libpcap's language (pcap-filter(7)); empty for none.
            promiscuous: whether to ask the interface for packets that are addressed to others.
            buffer_bytes: what the kernel may keep until it is taken.

        Raises:
            LiveError: there is no such interface, no right, no libpcap, or the filter is wrong.
        """
        if not sys.platform.startswith("linux") or ctypes.sizeof(ctypes.c_void_p) != 8:
            raise LiveError(
                "live capture needs a 64-bit Linux; elsewhere let tcpdump write files and read them with "
                "kwsniff decode --follow"
            )
        self.interface = interface
        if interface != ANY and interface not in (name for _, name in socket.if_nameindex()):
            known = ", ".join([name for _, name in socket.if_nameindex()] + [ANY])
            raise LiveError(f"no interface {interface!r}; there are {known}")
        self._holder, self._socket = _opened(interface, bpf, promiscuous)
        self.linktype = RAW_IP if interface == ANY else self._linktype()
        if interface != ANY:
            self._spare_copies()
        self.buffer_bytes = self._enlarge(buffer_bytes)
        self._seen = self._dropped = 0
        """By the kernel's count, which has loopback's packets twice."""
        self._taken = self._kept = 0
        """Packets taken, and those of them that are no copy."""
        self._told = 0
        self._slots = np.zeros(SLOTS * SLOT_BYTES, np.uint8)
        self._view = memoryview(self._slots)  # type: ignore[arg-type]
        self._addresses = np.zeros(SLOTS, _ADDRESS)
        self._control = np.zeros(SLOTS, _CONTROL)
        self._vectors = np.zeros(SLOTS, _VECTOR)
        self._messages = np.zeros(SLOTS, _MESSAGE)
        self._point()
        # It never waits. Without the interpreter's lock, which CDLL gives away, it would have to be had back
        # from a thread that computes, which may take 5 ms each time.
        self._recvmmsg = ctypes.PyDLL(None, use_errno=True).recvmmsg
        self._begin()

    def fileno(self) -> int:
        return self._socket.fileno()

    def take(self) -> ReadPackets | None:
        """What the kernel has ready, up to SLOTS packets; None if it has nothing.

        Raises:
            GoneError: the interface vanished.
        """
        messages = self._messages
        messages["name_size"], messages["control_size"] = _ADDRESS.itemsize, _CONTROL.itemsize
        flags = _MSG_DONTWAIT | _MSG_TRUNC
        count = self._recvmmsg(
            self._socket.fileno(), messages.ctypes.data_as(ctypes.c_void_p), SLOTS, flags, None
        )
        if count < 0:
            self._failed(ctypes.get_errno())
            return None
        origlen = messages["size"][:count].astype(np.int64)
        caplen = np.minimum(origlen, SLOT_BYTES)
        view = self._view
        wanted = self._wanted(count)
        self._taken += count
        self._kept += int(wanted.sum())
        data = b"".join(
            [view[i * SLOT_BYTES : i * SLOT_BYTES + caplen[i]] for i in np.flatnonzero(wanted).tolist()]
        )
        return ReadPackets(data, caplen[wanted], origlen[wanted], self._times(count)[wanted])

    def came(self) -> int:
        """Packets that passed the filter since the start, by what `dropped` last heard: taken, dropped, or
        still in the kernel's buffer."""
        return max(self._without_copies(self._seen), self._kept + self._told)

    def dropped(self) -> int:
        """Packets that found the kernel's buffer full, since the start (packet(7), PACKET_STATISTICS).

        Of loopback's packets there the kernel drops both copies; they count once, in proportion to the
        packets that were taken.
        """
        with suppress(OSError):
            counts = self._socket.getsockopt(_SOL_PACKET, _STATISTICS, 8)
            self._seen += int.from_bytes(counts[:4], sys.byteorder)
            self._dropped += int.from_bytes(counts[4:8], sys.byteorder)
        self._told = max(self._without_copies(self._dropped), self._told)
        return self._told

    def _without_copies(self, count: int) -> int:
        return round(count * self._kept / self._taken) if self._taken else count

    def close(self) -> None:
        self.dropped()
        with suppress(OSError):
            self._holder.close()

    def _begin(self) -> None:
        """Forget what came, and was dropped, while filter and buffer were being set."""
        for _ in range(SLOTS):  # a busy interface never has nothing
            if self.take() is None:
                break
        self.dropped()
        self._seen = self._dropped = self._taken = self._kept = self._told = 0

    def _point(self) -> None:
        """Make each message point at its slot, address and control."""
        index = np.arange(SLOTS, dtype=np.uint64)
        self._vectors["base"] = self._slots.ctypes.data + index * SLOT_BYTES
        self._vectors["size"] = SLOT_BYTES
        self._messages["vectors"] = self._vectors.ctypes.data + index * _VECTOR.itemsize
        self._messages["vector_count"] = 1
        self._messages["name"] = self._addresses.ctypes.data + index * _ADDRESS.itemsize
        self._messages["control"] = self._control.ctypes.data + index * _CONTROL.itemsize

    def _wanted(self, count: int) -> Any:
        """All but the outgoing copies of what loopback delivers again as incoming."""
        addresses = self._addresses[:count]
        return (addresses["hardware"] != _LOOPBACK) | (addresses["kind"] != _OUTGOING)

    def _times(self, count: int) -> Integers:
        control = self._control[:count]
        stamped = (
            (self._messages["control_size"][:count] >= 32)
            & (control["level"] == socket.SOL_SOCKET)
            & (control["type"] == _SO_TIMESTAMPNS)
        )
        times = control["seconds"] * 1_000_000_000 + control["nanos"]
        return times if stamped.all() else np.where(stamped, times, time.time_ns())

    def _failed(self, number: int) -> None:
        if number in (errno.EAGAIN, errno.EINTR, errno.ENOBUFS):
            return
        if number in (errno.ENETDOWN, errno.ENODEV, errno.ENXIO):
            # An interface that is only down for a while comes back; one that was taken away does not.
            if self.interface == ANY or self._exists():
                return
            raise GoneError(self.interface)
        raise OSError(number, os.strerror(number))

    def _exists(self) -> bool:
        try:
            socket.if_nametoindex(self.interface)
        except OSError:
            return False
        return True

    def _linktype(self) -> int:
        hardware = int(self._socket.getsockname()[3])
        if hardware not in _LINKTYPES:
            raise LiveError(
                f"{self.interface}: kwsniff knows no link layer of hardware type {hardware}; try -i {ANY}"
            )
        return _LINKTYPES[hardware]

    def _spare_copies(self) -> None:
        """Keep the outgoing copies of loopback's packets out of the kernel's buffer (Linux 4.20)."""
        if int(self._socket.getsockname()[3]) == _LOOPBACK:
            with suppress(OSError):
                self._socket.setsockopt(_SOL_PACKET, _IGNORE_OUTGOING, 1)

    def _enlarge(self, wanted: int) -> int:
        """Set the kernel's buffer, beyond the system's limit where that is allowed; return its size."""
        for option in (_SO_RCVBUFFORCE, socket.SO_RCVBUF):
            with suppress(OSError):
                self._socket.setsockopt(socket.SOL_SOCKET, option, wanted // 2)  # the kernel doubles it
                break
        return self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)


def _opened(interface: str, bpf: str, promiscuous: bool) -> tuple[Any, socket.socket]:
    """What to close at the end, and the socket to read."""
    logging.getLogger("scapy").setLevel(logging.ERROR)  # it warns of link types that it would not dissect
    from scapy.arch.linux import L2ListenSocket
    from scapy.config import conf
    from scapy.error import Scapy_Exception

    try:
        if interface == ANY:
            return _opened_everywhere(bpf)
        conf.bufsize = 1 << 20  # until it is enlarged
        holder = L2ListenSocket(iface=interface, filter=bpf or None, promisc=promiscuous)
        return holder, holder.ins
    except PermissionError:
        raise LiveError(_no_right()) from None
    except (Scapy_Exception, ImportError) as error:
        raise LiveError(_filter_problem(bpf, str(error))) from None
    except OSError as error:
        raise LiveError(f"{interface}: {error.strerror or error}") from None


def _no_right() -> str:
    """What is missing, and how to get it. The capability belongs to the program that runs: what stands first
    in PATH, or sys.executable, may be a script that starts it."""
    python = shlex.quote(os.path.realpath("/proc/self/exe"))
    return (
        "no right to listen: CAP_NET_RAW is missing; start as root, or give it to this Python with "
        f"`setcap cap_net_raw+eip {python}`"
    )


def _opened_everywhere(bpf: str) -> tuple[socket.socket, socket.socket]:
    """All interfaces at once, of whatever link layer: the kernel takes the link layer off (packet(7),
    SOCK_DGRAM), so that packets and filter begin with the IP header."""
    from scapy.arch.common import compile_filter, free_filter
    from scapy.data import SO_ATTACH_FILTER
    from scapy.libs.structures import sock_fprog

    program = compile_filter(bpf, linktype=_DLT_RAW) if bpf else None
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(_ETH_P_ALL))
    if program is not None:
        opened.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, sock_fprog(program.bf_len, program.bf_insns))
        free_filter(program)
    with suppress(BlockingIOError):
        while opened.recv(1, _MSG_DONTWAIT):  # what came before the filter
            pass
    opened.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    return opened, opened


def _filter_problem(bpf: str, said: str) -> str:
    if "libpcap is not available" in said:
        return (
            "libpcap, which compiles the kernel's filter, is missing; install libpcap0.8 (Debian) or libpcap"
        )
    said = " ".join(said.removeprefix("Cannot set filter: ").split())
    return f"--filter {bpf!r}: {said}"
