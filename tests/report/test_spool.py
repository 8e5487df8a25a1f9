from __future__ import annotations

from kwsniff.count.spool import Spool

from .events import batch, call, event


def test_a_spool_passes_batches_on_and_gives_them_back_any_number_of_times() -> None:
    given = [batch(call(), event(event="anomaly", code="gap")), batch(call(at=5))]
    spool = Spool()
    assert list(spool.tee(given)) == given
    assert list(spool.read()) == given
    assert list(spool.read()) == given
    spool.close()


def test_a_spool_of_calls_keeps_nothing_else() -> None:
    spool = Spool("call")
    list(spool.tee([batch(event(event="connection"), call(at=9)), batch(event(event="connection"))]))
    assert [part.to_pylist() for part in spool.read()] == [batch(call(at=9)).to_pylist()]


def test_an_empty_spool_gives_nothing() -> None:
    assert list(Spool().read()) == []
