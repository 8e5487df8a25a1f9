"""One release checked in every way: messages, what its brokers serve, error codes."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from kwsniff.spec.load import catalog
from kwsniff.spec.releases import numbers, releases
from tests.conformance import compare, definitions, errors, jars, served
from tests.conformance.compare import Finding


@dataclass(frozen=True)
class Result:
    """What came of a check."""

    release: str
    messages: int
    versions: int
    """Message versions compared."""
    errors: int
    """Error codes compared."""
    findings: list[Finding]
    explained: list[tuple[Finding, str]]
    """Differences with a reason."""

    def __str__(self) -> str:
        head = (
            f"kafka-clients {self.release}: {self.messages} messages in {self.versions} versions, "
            f"{self.errors} error codes: {len(self.findings) or 'no'} findings"
        )
        return "\n".join([head, *(f"  {row}" for row in summary(self.findings)), *self._reasons()])

    def _reasons(self) -> list[str]:
        by_reason = groupby(self.explained, key=lambda pair: (pair[0].where, pair[0].what, pair[1]))
        return [f"  known: {where}: {what}: {why}" for (where, what, why), _ in by_reason]


def summary(findings: list[Finding]) -> list[str]:
    """A line for each difference, with all the versions that have it."""
    rows = []
    by_difference = groupby(sorted(findings), key=lambda each: each._replace(version=0))
    for same, each in by_difference:
        found = [str(one.version) for one in each]
        versions = "" if found == ["-1"] else f" v{','.join(found)}"
        rows.append(
            f"{same.where}{versions}: {same.what}: {same.release_says}, in kwsniff {same.kwsniff_says}"
        )
    return rows


def release(version: str, folder: Path) -> Result:
    """Fetches a release and compares it; raises NoSuchReleaseError or DefinitionError."""
    jar = jars.fetch(version, folder)
    name = jars.release(jar)
    defined = definitions.read(jar)
    compared = compare.compare(defined, catalog())
    codes = errors.read(folder)
    found = [*compared.findings, *served.compare(defined, name, releases())]
    if numbers(name)[:2] >= numbers(releases().names[-1])[:2]:
        found += served.compare_4x(defined, catalog())
    found += errors.compare(codes, catalog().errors)
    explained = [(each, why) for each in found if (why := compare.reason(each))]
    explained += [(each, compare.UNSTABLE) for each in compared.unstable]
    findings = [each for each in found if not compare.reason(each)]
    return Result(name, len(defined), compared.compared, len(codes), findings, explained)
