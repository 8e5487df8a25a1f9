"""Whether a client would work with brokers of another release: one verdict, for whoever tells it.

A client breaks if it uses a version of an API that the release does not serve and will not choose another.
Whether it will can be told from what it was offered: a client that asks (ApiVersions) and uses the newest
version that this broker is known to serve may know newer ones, and chooses among what it is offered after
the upgrade; one whose broker served newer ones knows none of them, and one that never asks uses fixed
versions. Where it is not known what the broker serves, nothing is known. Nor is it of a client that takes the
newest but asks in a version of ApiVersions before 3, as clients from before 2019 do (Kafka 2.4, KIP-511): it
may know nothing newer.

What each release serves is in `dissectors/releases.kdef`.
"""

from __future__ import annotations

from dataclasses import dataclass

from kwsniff.spec.load import catalog
from kwsniff.spec.model import Versions

API_VERSIONS = 18
NAMES_ITSELF = 3
"""Version of ApiVersions in which clients name their software (KIP-511)."""
BETWEEN_BROKERS = frozenset(
    (4, 5, 6, 7, 27, 52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73, 82, 83, 84, 85, 86, 87)
)
"""APIs that only brokers and controllers call. Who does is upgraded with them, and left out."""
REPLICAS = ("ReplicaFetcherThread-", "broker-")
"""How client ids of brokers begin."""
BY_PLUGIN = (71, 72)
"""Client telemetry is served where a plugin takes it, in no release by itself, and clients do without it."""
BREAKS, NEGOTIATES, UNKNOWN, WORKS = "breaks", "will negotiate", "unknown", "ok"


@dataclass(slots=True)
class Asking:
    """How a client asks what brokers offer."""

    asked: int = -1
    """Greatest version of ApiVersions it asked in; -1 if it never did."""
    whole: bool = False
    """A connection of it was seen from its beginning."""
    partly: bool = False
    """One was joined when it was open already."""
    named: bool = False
    """It named its software."""


def verdict(
    client: Asking, key: int, version: int, served: Versions, newest: int | None, offer: str = ""
) -> tuple[str, str]:
    """The verdict on one version of an API, and why. `served` are those of the release, `newest` is the
    greatest that the client's broker is known to serve now; `offer` what it offers, in words."""
    if version in served:
        return WORKS, ""
    what = f"{api_name(key)} v{version} ({f'serves {served}' if served else 'not served'})"
    if client.asked < 0:
        if client.whole and not client.partly:
            return BREAKS, f"{what}: never asks what is offered"
        return UNKNOWN, f"{what}: ApiVersions not captured"
    if newest is None:
        return UNKNOWN, f"{what}: ApiVersions not captured"
    if served and version > served.last:
        return NEGOTIATES, f"{what}: takes what is offered"
    if version < newest:
        return BREAKS, f"{what}: {offer or f'others use v{newest}'}, knows no newer"
    if not offer:  # others may have used less than is served
        return UNKNOWN, f"{what}: ApiVersions not captured"
    if client.asked < NAMES_ITSELF and not client.named:
        return UNKNOWN, f"{what}: newest on offer, may know no newer"
    return NEGOTIATES, f"{what}: newest on offer"


def api_name(key: int) -> str:
    """The name of an API."""
    api = catalog().apis.get(key)
    return api.name if api else f"API {key}"
