"""A network of our own: a namespace with a loopback that carries packets of Ethernet's size.

Loopback's MTU is 65536 and it hands over whole offloaded buffers, so a capture of it holds packets no wire
would carry. In a fresh network namespace the MTU can be 1500 and segmentation offload off without touching
the machine's own loopback. The namespace has no name and ends with the last process in it.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct

CLONE_NEWNET = 0x40000000
SIOCGIFFLAGS = 0x8913
SIOCSIFFLAGS = 0x8914
SIOCSIFMTU = 0x8922
SIOCETHTOOL = 0x8946
IFF_UP = 0x1
OFFLOADS = {"tso": 0x1F, "gso": 0x24, "gro": 0x2C}  # ETHTOOL_STSO, ETHTOOL_SGSO, ETHTOOL_SGRO
MTU = 1500


def enter(mtu: int = MTU) -> str:
    """Put this process (and those it starts) into a network of its own; says in words what came of it.

    With an MTU other than Ethernet's, loopback hands over offloaded segments whole, as it usually does.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET) != 0:
        return f"plain loopback ({os.strerror(ctypes.get_errno())})"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        _up(control)
        fcntl.ioctl(control, SIOCSIFMTU, struct.pack("16si12x", b"lo", mtu))
        if mtu != MTU:
            return f"loopback of its own, MTU {mtu}"
        refused = [name for name, command in OFFLOADS.items() if not _off(control, command)]
    return f"loopback of its own, MTU {MTU}, offload off" + (f" but {', '.join(refused)}" if refused else "")


def _up(control: socket.socket) -> None:
    request = struct.pack("16sh14x", b"lo", 0)
    flags = struct.unpack("16sh14x", fcntl.ioctl(control, SIOCGIFFLAGS, request))[1]
    fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | IFF_UP))


def _off(control: socket.socket, command: int) -> bool:
    """Switch one offload off, as `ethtool -K lo ... off` does."""
    value = ctypes.create_string_buffer(struct.pack("II", command, 0))
    try:
        fcntl.ioctl(control, SIOCETHTOOL, struct.pack("16sP8x", b"lo", ctypes.addressof(value)))
    except OSError:
        return False
    return True
