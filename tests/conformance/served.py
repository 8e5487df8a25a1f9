"""What a release's definitions say that its brokers serve, against `dissectors/releases.kdef`."""

from __future__ import annotations

from collections.abc import Iterator

from kwsniff.spec.load import Catalog
from kwsniff.spec.model import NO_VERSIONS, Versions
from kwsniff.spec.releases import Releases, numbers
from tests.conformance.compare import Finding
from tests.conformance.definitions import Definition

PLUGIN = {71: "GetTelemetrySubscriptions", 72: "PushTelemetry"}
"""Defined for all brokers, but served only with a plugin for metrics."""


def compare(definitions: list[Definition], release: str, releases: Releases) -> Iterator[Finding]:
    """Versions that brokers serve clients: those with ZooKeeper before 4.0, those with KRaft from then on."""
    if not any(definition.listeners for definition in definitions):
        return  # as before 2.8
    listener = "zkBroker" if numbers(release) < (4,) else "broker"
    try:
        name = releases.find(release)
    except ValueError:
        yield Finding("releases.kdef", "release", release, f"{releases.names[-1]} is the last")
        return
    for definition in definitions:
        if definition.direction != "request" or definition.api_key is None or definition.api_key in PLUGIN:
            continue
        served = _versions(definition.stable) if listener in definition.listeners else NO_VERSIONS
        ours = releases.serves(name, definition.api_key)
        if served != ours:
            where = f"{definition.name} {definition.direction}"
            yield Finding(where, f"served by {name}", str(served), str(ours))


def compare_4x(definitions: list[Definition], catalog: Catalog) -> Iterator[Finding]:
    """The `kafka4` clause, against the newest release: what it defines, 4.x speaks."""
    defined = {d.api_key: d.versions for d in definitions if d.direction == "request"}
    for api in catalog.apis.values():
        spoken = _versions(defined.get(api.key, range(0)))
        if spoken != api.head.kafka4:
            yield Finding(f"{api.name} request", "kafka4", str(spoken), str(api.head.kafka4))


def _versions(versions: range) -> Versions:
    return Versions(((versions[0], versions[-1]),)) if versions else NO_VERSIONS
