"""Two hosts: network namespaces of our own, each with one TUN device whose other end is the link.

A namespace belongs to a thread that left the network of its process, and ends with the last of its sockets
and devices. Sockets that are opened in that thread stay in its network wherever they are used.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

CLONE_NEWNET = 0x40000000
TUNSETIFF, TUNSETOFFLOAD = 0x400454CA, 0x400454D0
IFF_TUN, IFF_NO_PI, IFF_VNET_HDR = 0x0001, 0x1000, 0x4000
SIOCSIFFLAGS, SIOCSIFADDR, SIOCSIFNETMASK = 0x8914, 0x8916, 0x891C
SIOCSIFMTU, SIOCSIFTXQLEN, IFF_UP = 0x8922, 0x8943, 0x1
TUN_F_CSUM, TUN_F_TSO4 = 0x01, 0x02
DEVICE = "tun0"
QUEUE = 100_000
"""Packets that the device holds for the link: none is dropped there, behind the sniffer's back."""
CLIENT, BROKER = "10.9.0.1", "10.9.0.2"
SYSCTLS = {
    # Short timers, so that a minute sees thousands of timeouts; otherwise as the kernel has them.
    "tcp_rto_min_us": "20000",
    "tcp_rto_max_ms": "1000",
    # Data with the SYN without a cookie, for sockets that ask for it.
    "tcp_fastopen": "1543",
    "tcp_rmem": "4096 131072 16777216",
    "tcp_wmem": "4096 131072 16777216",
    "tcp_max_syn_backlog": "1024",
}
Made = TypeVar("Made")


class Host:
    """A namespace with a device `fd`, through which packets come and go behind a virtio_net_hdr."""

    def __init__(self, address: str, *, mtu: int, offload: bool, sysctls: dict[str, str]) -> None:
        self.address = address
        self._thread = ThreadPoolExecutor(1, initializer=_leave)
        self.fd = self.run(lambda: _device(offload))
        for name, value in (SYSCTLS | sysctls).items():
            self.run(Path(f"/proc/sys/net/ipv4/{name}").write_text, value)
        self.run(_up, address, mtu)

    def run(self, function: Callable[..., Made], *arguments: object, **named: object) -> Made:
        """Call a function in the host's network: sockets and processes that it makes stay there."""
        return self._thread.submit(function, *arguments, **named).result()

    def socket(self) -> socket.socket:
        return self.run(socket.socket, socket.AF_INET, socket.SOCK_STREAM)

    def close(self) -> None:
        os.close(self.fd)
        self._thread.shutdown()


def _leave() -> None:
    """The calling thread leaves the network of its process."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"a network of our own: {os.strerror(error)}")


def _up(address: str, mtu: int) -> None:
    """Give the device its address, in a network of 256."""
    name = DEVICE.encode()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for command, value in ((SIOCSIFADDR, address), (SIOCSIFNETMASK, "255.255.255.0")):
            place = struct.pack("H2x4s8x", socket.AF_INET, socket.inet_aton(value))
            fcntl.ioctl(control, command, struct.pack("16s16s", name, place))
        for command, number in ((SIOCSIFMTU, mtu), (SIOCSIFTXQLEN, QUEUE), (SIOCSIFFLAGS, IFF_UP)):
            fcntl.ioctl(control, command, struct.pack("16si12x", name, number))


def _device(offload: bool) -> int:
    """A TUN device; with `offload` the kernel hands over segments of up to 64 KiB and no checksums."""
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR
    fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH22x", DEVICE.encode(), flags))
    fcntl.ioctl(fd, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4 if offload else 0)
    return fd
