"""Addresses: `client_ip in 10.0.0.0/8`, `broker == 10.0.0.9:9092`."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

import pyarrow as pa
import pyarrow.compute as pc

from kwsniff.where import wrong
from kwsniff.where.name import endpoint
from kwsniff.where.term import NETWORK, TEXT, Term, Values, shown, tested

ENDS = {"client_ip": "client", "broker_ip": "broker", "client": "client", "broker": "broker"}
"""Names that can be compared with an address, and the end they are about."""
Network = IPv4Network | IPv6Network


def as_network(term: Term) -> Network | None:
    """The network that a constant names: one address, or a CIDR range; None if it names none."""
    if not term.constant or term.kind not in (TEXT, NETWORK):
        return None
    try:
        return ip_network(str(term.value), strict=False)
    except ValueError:
        return None


def is_address(term: Term) -> bool:
    """Whether a constant is an address, a range of them, or an address with a port."""
    return term.constant and term.kind in (TEXT, NETWORK) and (
        as_network(term) is not None or _endpoint(str(term.value)) is not None
    )  # fmt: skip


def _endpoint(text: str) -> str | None:
    address, _, port = text.rpartition(":")
    if not port.isdecimal():
        return None
    bare = address[1:-1] if address[:1] == "[" and address[-1:] == "]" else address
    try:
        parsed = ip_address(bare)
    except ValueError:
        return None
    return f"[{parsed}]:{port}" if parsed.version == 6 else f"{parsed}:{port}"


def address_test(column: Term, constant: Term) -> Term:
    """Whether an end of the connection is, or is in, what `constant` names. Raises WhereError."""
    side = ENDS.get(column.name)
    if side is None:
        raise wrong(constant.at, f"{shown(column)} is no address; client_ip and broker_ip are")
    network = as_network(constant)
    if network is not None:
        address = Term(TEXT, lambda batch: batch[f"{side}_ip"], column.at)
        return tested(address, _in_network(network))
    written = _endpoint(str(constant.value))
    if written is None:
        raise wrong(constant.at, f"{constant.value!r} is no address")
    return tested(Term(TEXT, endpoint(side), column.at), lambda values: pc.equal(values, written))


def _in_network(network: Network) -> Callable[[Values], Values]:
    def test(addresses: Values) -> Values:
        # Each address once: there are far fewer than rows.
        encoded = addresses.dictionary_encode()
        hits = [ip_address(text) in network for text in encoded.dictionary.to_pylist()]
        return pa.array(hits, pa.bool_()).take(encoded.indices)

    return test
