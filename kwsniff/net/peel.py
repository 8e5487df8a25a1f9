"""Rarer link layers, through scapy: from a frame to the IP packet in it, one frame at a time."""

from __future__ import annotations

from functools import cached_property
from typing import Any


class Peeler:
    """Loads scapy when the first frame comes that needs it: that takes a second."""

    @cached_property
    def _layers(self) -> dict[int, Any]:
        from scapy.config import conf
        from scapy.contrib import mpls  # noqa: F401
        from scapy.layers import dot11, inet6, l2, ppp  # noqa: F401

        conf.debug_dissector = False
        return dict(conf.l2types.num2layer)

    def __getstate__(self) -> dict[str, Any]:
        return {}

    def knows(self, linktype: int) -> bool:
        """Whether scapy has a dissector for this LINKTYPE_ value."""
        return linktype in self._layers

    def peel(self, linktype: int, frame: bytes, wire: int) -> tuple[bytes, int] | None:
        """The first IP packet inside `frame`, as captured, and its length on the wire; None if there is none.

        `wire` is the length of the frame on the wire. No bytes make this raise: scapy's dissectors may raise
        anything on malformed input, which then holds no IP packet.
        """
        from scapy.layers.inet import IP
        from scapy.layers.inet6 import IPv6

        try:
            packet = self._layers[linktype](frame)
            found = next((layer for layer in packet.iterpayloads() if isinstance(layer, IP | IPv6)), None)
        except Exception:  # scapy names no base class for its dissectors' errors
            return None
        if found is None or not found.original:
            return None
        original = bytes(found.original)
        return original, max(wire - (len(frame) - len(original)), len(original))
