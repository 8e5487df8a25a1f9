"""The job of `kwsniff report`: events in, statistics of calls out."""

from __future__ import annotations

import sys
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from rich.console import Console

from kwsniff.analysis.findings import NEEDED as FINDINGS
from kwsniff.analysis.findings import Finding, Findings, Thresholds
from kwsniff.analysis.report import DEFAULT_BY, OF_TOPICS, Report
from kwsniff.analysis.rule import about_input, table, with_input
from kwsniff.analysis.statistics import TABLES
from kwsniff.capture.error import CaptureError, Stop
from kwsniff.cli import problem
from kwsniff.cli.destination import Interrupts, Stopping
from kwsniff.cli.problem import CommandError, suggestion
from kwsniff.cli.request import Request, from_pipe, patient, refuse_overwriting
from kwsniff.cli.telling import Damage, ProgressBar, Trust, instead, tell_if_interpreted
from kwsniff.count import sessions
from kwsniff.count.eventrows import EventBatch
from kwsniff.count.naming import named
from kwsniff.count.sessions import followed
from kwsniff.count.spans import Coverage
from kwsniff.count.spool import even
from kwsniff.count.timeline import Timeline
from kwsniff.count.where.name import BODIES
from kwsniff.count.where.period import minute_around
from kwsniff.count.where.predicate import Predicate
from kwsniff.output.writers import write_table
from kwsniff.page import Page
from kwsniff.page.layout import title
from kwsniff.run.offline import MOST_STAGES, events, processes
from kwsniff.spec.load import catalog

if TYPE_CHECKING:
    from kwsniff.page.html import Gathered
    from kwsniff.run.stages import Taker


@dataclass(frozen=True, kw_only=True)
class ReportRequest(Request):
    """What `kwsniff report` can be asked."""

    by: str | None = None
    csv: str | None = None
    json: bool = False
    html: str | None = None
    around: str | None = None


def _around(request: ReportRequest) -> ReportRequest:
    """The request with the bounds that `--around` says. Raises CommandError."""
    if request.around is None:
        return request
    if request.since is not None or request.until is not None:
        raise CommandError("--around stands in place of --since and --until")
    since, until = minute_around(request.around)
    return replace(request, since=since, until=until)


def report(request: ReportRequest) -> int:
    """Print the statistics of the inputs, write CSV files if asked for; return the exit code.

    Raises:
        CommandError: the request is wrong, or an input could not be read.
    """
    request = _around(request)
    tables = _tables(request)
    only = {*tables, "api", "client"} if request.csv is None and not request.json else None
    predicate = request.checked().predicate()
    request = _only_needed(_with_bodies(request))
    damage, stop, window = Damage(), Stop(), request.bounds()
    trust = Trust(wanted=not request.quiet, window=window, instead=instead(request.paths, request.config))
    coverage = None if predicate is None else Coverage(None if window is None else window.parts)
    found = Findings(Thresholds.of(request.config.thresholds)) if _wants_findings(request) else None
    gathered = _gathered(request)
    timeline = Timeline() if gathered is None else gathered.timeline
    piped = from_pipe(request.paths)
    # What comes through a pipe often ends by Ctrl-C, and is to be told then.
    interrupts = Stopping(stop) if piped else Interrupts()
    taker = None
    try:
        taker = None if found is None else _taker(found, request)
        with (
            ProgressBar(wanted=not piped) as progress,
            closing(_events(request, predicate, coverage, damage, trust, progress, stop)) as rows,
        ):
            errors = {code: (error.name, error.retriable) for code, error in catalog().errors.items()}
            taking = (None if taker else found, gathered or (timeline if found else None))
            statistics = Report.from_events(
                rows if taker is None else taker.watch(rows),
                errors=errors,
                keep_calls=request.csv is not None,
                only=only,
                samples=request.config.max_samples,
                uses=gathered is not None,
                others=[each for each in taking if each is not None],
                coverage=coverage,
            )
            found = found if taker is None else taker.taken()
    except CaptureError as error:
        raise CommandError(str(error)) from None
    finally:
        if taker is not None:
            taker.close()
        interrupts.restore()
    chosen = (request.paths, request.again, request.where)
    rules = [] if found is None else about_input(found.found(errors), *chosen)
    if request.csv is not None:
        statistics.write_csv(request.csv)
        write_table(Path(request.csv) / "findings.csv", table(rules))
        if found is not None:
            write_table(Path(request.csv) / "lag.csv", found.lag())
    if gathered is not None and found is not None:
        _write_page(request, statistics, found, rules, gathered, trust)
    if request.json:
        print(statistics.to_json({"findings": [each.as_json() for each in rules]}))
    elif found is None or request.wide or request.by is not None:
        statistics.print(_console(request), tables, wide=request.wide, zone=request.zone)
    else:
        page = Page(
            statistics.arrow, title(request.paths, statistics, request.zone), trust.text(), rules,
            found.errors(errors), trust.anomalies, statistics.note, zone=request.zone,
            timeline=timeline,
        )  # fmt: skip
        page.again = with_input(page.again, *chosen)
        page.print(_console(request), top=request.top)
    sys.stdout.flush()
    if request.json or found is None or request.wide or request.by is not None:
        trust.show()
    if statistics.note and request.csv is not None:
        problem.said(statistics.note)
    if damage:
        problem.said(damage.line())
    if stop.is_set():
        return problem.INTERRUPTED
    return problem.DAMAGED if damage else problem.DONE


def _taker(found: Findings, request: ReportRequest) -> Taker | None:
    """What takes findings in a process of its own, if there is one for it."""
    try:
        count = processes(request.paths, request.config, request.jobs)
    except CaptureError:  # which who reads says
        return None
    if count < MOST_STAGES:
        return None
    from kwsniff.run.stages import Taker  # which loads what starts processes

    try:
        return Taker(found, FINDINGS)
    except OSError:  # there is no room for one
        if request.jobs is not None:
            raise
        return None


def _console(request: ReportRequest) -> Console:
    wanted = {"always": True, "never": False}.get(request.color)
    if wanted is None:
        return Console()
    return Console(force_terminal=True) if wanted else Console(no_color=True, highlight=False)


def _gathered(request: ReportRequest) -> Gathered | None:
    if request.html is None:
        return None
    refuse_overwriting(request.html, request.paths)
    from kwsniff.page.html import Gathered

    return Gathered()


def _write_page(
    request: ReportRequest,
    report: Report,
    found: Findings,
    rules: Sequence[Finding],
    gathered: Gathered,
    trust: Trust,
) -> None:
    """Write the page, having read the input again for the fields of its slowest calls."""
    from kwsniff.page.html import Page

    errors = {code: (error.name, error.retriable) for code, error in catalog().errors.items()}
    page = Page(
        request.paths, report, rules, found.errors(errors), trust.anomalies, trust.paragraph(), gathered,
        where=request.where, options=request.again,
    )  # fmt: skip
    if "-" in request.paths or from_pipe(request.paths):
        page.notes = [
            "The input could be read only once, so the fields of single calls are not in this page."
        ]
    assert request.html is not None
    try:
        if not page.notes:
            page.read_again(request.config)
        Path(request.html).write_text(page.html(), encoding="utf-8")
    except CaptureError as error:
        raise CommandError(str(error)) from None
    except OSError as error:
        raise CommandError(f"--html {request.html}: {error.strerror}") from None


def _with_bodies(request: ReportRequest) -> ReportRequest:
    """Decode bodies where the expression looks into them."""
    if not request.chosen_by & BODIES:
        return request
    return replace(request, config=replace(request.config, full=True))


def _only_needed(request: ReportRequest) -> ReportRequest:
    """Without calls.csv, decode no more columns than the statistics use."""
    if request.csv is not None:
        return request
    from kwsniff.count.store import LISTS, NEEDED

    needed = frozenset(NEEDED)
    if _follows_sessions(request):
        needed |= sessions.NEEDED | (FINDINGS if _wants_findings(request) else frozenset())
    else:
        needed -= LISTS
    if request.html is not None:
        from kwsniff.page.html import NEEDED as PAGE

        needed |= PAGE
    return replace(request, config=replace(request.config, columns=request.chosen_by | needed))


def _wants_findings(request: ReportRequest) -> bool:
    """The default page has them, and what is complete: CSV and JSON."""
    more = request.csv is not None or request.json or request.html is not None
    return more or (request.by is None and not request.wide)


def _tables(request: ReportRequest) -> Sequence[str]:
    if request.by is None:
        return DEFAULT_BY if request.wide else ("api", "client")
    names = [name.strip() for name in request.by.split(",") if name.strip()]
    for name in names:
        if name not in TABLES:
            known = ", ".join(TABLES)
            raise CommandError(f"--by: unknown table {name!r}{suggestion(name, TABLES)}; there are {known}")
    if not names:
        raise CommandError("--by names no table")
    return names


def _events(
    request: ReportRequest,
    predicate: Predicate | None,
    coverage: Coverage | None,
    damage: Damage,
    trust: Trust,
    progress: ProgressBar,
    stop: Stop,
) -> Generator[pa.RecordBatch]:
    config = patient(request.config) if from_pipe(request.paths) else request.config
    tell_if_interpreted(request.paths)
    source = events(
        request.paths, config, totals=trust.capture, progress=progress, jobs=request.jobs, stop=stop
    )
    batches = even(damage.watch(trust.watch(source)))
    if predicate is None:
        if request.names:
            yield from named(batches, learner=request.learner())
        else:
            yield from followed(batches, idle=_idle(request)) if _follows_sessions(request) else batches
        return
    # A condition on topics has to see their names; without one the report fills them in by itself.
    seen = left = 0
    for batch in named(batches, learner=request.learner()):
        if coverage is not None:
            coverage.take(EventBatch(batch))
        chosen = batch.filter(predicate(batch))
        seen += _calls(batch)
        left += _calls(chosen)
        yield chosen
    if seen and not left:
        problem.said(f"{request.limits} left none of {seen:,} calls")


def _follows_sessions(request: ReportRequest) -> bool:
    """Whether anything is asked about topics and partitions."""
    return _wants_findings(request) or not OF_TOPICS.isdisjoint(_tables(request))


def _idle(request: ReportRequest) -> bool:
    """Whether anything is asked about calls that brought nothing and their partitions: the page says nothing
    of them."""
    more = request.csv is not None or request.json or request.html is not None
    return more or request.by is not None


def _calls(batch: pa.RecordBatch) -> int:
    """How many rows are calls: only they have a status."""
    calls: int = batch.num_rows - batch["status"].null_count
    return calls
