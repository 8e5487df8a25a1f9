"""docs/findings.md, made from the rules: `python -m kwsniff.analysis.manual > docs/findings.md`."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator

from kwsniff.analysis import thresholds as module
from kwsniff.analysis.finding import FINDINGS, SEVERITIES
from kwsniff.analysis.findings import RULES
from kwsniff.analysis.positions import LAG
from kwsniff.analysis.thresholds import Thresholds

INTRODUCTION = """\
# Findings

What `kwsniff report` says in sentences, and what each of them means. A rule looks at calls, anomalies and
connections while they pass, in memory that does not grow with the input; when the input ends it says what
it found, with the figures it rests on, the packets that show it first and last, and the command that shows
more. Names of commands stand without their input: put your files where FILE stands.

Three answers are possible. A rule *found* something; it looked and everything was *ok*; or the capture does
*not show* what it looks at, because there is no such traffic in it or because it is encrypted. Not shown is
no praise.

Every finding is a row of findings.csv (`kwsniff report FILE --csv DIR`) and of the array `findings` of
`kwsniff report FILE --json`, so are the other two answers. In JSON `numbers` is an object and `evidence` a
list. This page is made from the rules by `python -m kwsniff.analysis.manual`.
"""


FIGURES = """\
## The figures

What a finding counts are calls or connections of its subject, by the columns of [schema.md](schema.md):

- `answers`, `attempts`: calls whose first error code is the one of the finding (`error_code`); of
  `throttled` those whose response names a throttle time, of `stale_leader` those with one of its codes.
  ApiVersions requests that were answered with UNSUPPORTED_VERSION are no errors: clients ask again.
- `calls` of a storm: calls of the API, with the sum of their `response_bytes`; of `slow_broker`: calls
  with a `broker_least_us`, of which `max_us` is the greatest and `p50_us` and `p95_us` are percentiles,
  within 2.5 %.
- `queued_calls`, `queued_us`: calls of the client with a `queued_us` above 0 at the brokers where one
  call of twenty stands in a queue too long, and its sum.
- `connections` of `connection_churn`: those that begin with a SYN, were answered and lived shorter than
  `churn_life_s`; `life_s` is their mean length. Of `password_in_clear` those that asked for the
  mechanism, without TLS.
- `retransmissions`, `ratio`: the sum over connections of the two, and its part of the packets of that
  direction.
- `zero_windows`: the sum over connections that have some, whose number is `connections`.
- `bytes`, `topic_bytes`, `share_ratio` of `hot_partition`: record data of Produce calls to the partition
  and to its topic; `record_bytes` and `uncompressed_bytes` the same of a client and topic, and that with
  codec `none`.
- `batches`: partitions with record data in Produce calls, with the means of their records and bytes.
- `span_s`: from the first to the last of what is counted.
"""


LAGGING = """lag.csv

How far groups and consumers were behind when the input ended, calculated as docs/answers.md says under
`groups`: written beside findings.csv, and the table `lag` of `kwsniff pipeline`. The live screen and the
metrics for Prometheus show the same. The first 5,000 partitions that groups commit, and the first 5,000 that
consumers fetch, have rows."""


def page() -> str:
    """The whole page."""
    return "\n".join([INTRODUCTION, *_severities(), *_columns(), *_rules(), FIGURES, *_thresholds()])


def _severities() -> Iterator[str]:
    yield "| severity | |\n| --- | --- |"
    yield from (f"| {name.replace('_', ' ')} | {meaning} |" for name, meaning in SEVERITIES.items())
    yield ""


def _columns() -> Iterator[str]:
    for title, table in (("findings.csv", FINDINGS), (LAGGING, LAG)):
        yield f"## {title}\n\n| column | type | meaning |\n| --- | --- | --- |"
        yield from (
            f"| `{field.name}` | {field.type} | {field.metadata[b'doc'].decode()} |" for field in table
        )
        yield ""


def _rules() -> Iterator[str]:
    yield "## The rules\n"
    for rule in RULES:
        yield f"### {rule.code}\n\n{inspect.getdoc(rule)}\n"
        yield f"On the page: {rule.about}. Not shown by a capture with {rule.missing}.\n"


def _thresholds() -> Iterator[str]:
    yield "## Thresholds\n"
    yield "`kwsniff report --threshold slow_ms=250` and `kwsniff live --threshold ...` take others, and so do"
    yield "`Config.thresholds` in Python and `Findings(Thresholds(...))`.\n"
    yield "| threshold | default | meaning |\n| --- | ---: | --- |"
    documents = thresholds()
    for name, text in documents.items():
        yield f"| `{name}` | {getattr(Thresholds(), name):,} | {text} |"


def thresholds() -> dict[str, str]:
    """What is said of each threshold where it is declared."""
    (declared,) = (
        node for node in ast.parse(inspect.getsource(module)).body if isinstance(node, ast.ClassDef)
    )
    found = {}
    for field, text in zip(declared.body, declared.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            assert isinstance(text, ast.Expr)
            assert isinstance(text.value, ast.Constant)
            found[field.target.id] = " ".join(str(text.value.value).split())
    return found


if __name__ == "__main__":
    print(page())
