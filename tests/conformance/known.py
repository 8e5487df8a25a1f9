"""Where a release says otherwise than the dissectors, and why the dissectors stay as they are.

Other names of a field need no entry: `alias` in the dissector says them.
"""

from __future__ import annotations

from tests.conformance.finding import Finding

UNSTABLE = "the release calls this version unstable"

KNOWN = {
    (
        "ApiVersions response",
        "zk_migration_ready",
    ): "3.4 added it as a tagged field, which takes no new version",
    ("UpdateMetadata request", "type"): "3.5 added it as a tagged field, which takes no new version",
    ("LeaderChangeMessage data", "version"): "2.8, where KRaft was a preview, wrote the record without it",
    ("ReadShareGroupStateSummary response", "results.partitions.leader_epoch"): "4.1 added it",
    ("error 51", "retriable"): "it is since 3.3",
}
"""By message or error, and field or property."""


def reason(finding: Finding) -> str | None:
    """Why a difference is none to mend, or None."""
    return KNOWN.get((finding.where, finding.what))
