"""What the kernels of a round left to the exact path: frame by frame, deed by deed, in stream order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from kwsniff.engine.bulk import columns as c
from kwsniff.events import Anomaly
from kwsniff.wire.framer import Frame
from kwsniff.wire.pairing import EarlyResponse, Request

if TYPE_CHECKING:
    from kwsniff.engine.connection import Connection
    from kwsniff.wire.conversation import Conversation

Ints = NDArray[np.int64]


class Rest:
    """Carries it out on the conversations of the round's connections."""

    def __init__(
        self, buf: memoryview, frames: Ints, deeds: Ints, shares: list[tuple[Connection, int, int]]
    ) -> None:
        self._buf, self._frames, self._deeds, self._shares = buf, frames, deeds, shares
        self._opened: dict[int, Request] = {}
        """Requests that a later frame or deed makes a call of."""

    def frame(self, index: int) -> None:
        """Take a frame of which the kernels made no call."""
        row = self._frames[index].tolist()
        conversation = self._shares[row[c.CONNECTION]][0].exchange.conversation
        if row[c.KEY] < 0:
            self._response(index, row, conversation)
        else:
            self._request(index, row, conversation)

    def _request(self, index: int, row: list[int], conversation: Conversation) -> None:
        request, _ = conversation.opened(self._cut(row), row[c.IN_FLIGHT])
        mate = row[c.PARTNER]
        if mate == c.NO_REPLY:
            conversation.unasked(request)
        elif mate == c.UNPAIRED:
            conversation.outstanding.add(request)
        elif 0 <= mate < index:
            early = self._cut(self._frames[mate].tolist())
            conversation.answer(request, early._replace(order=max(early.order, request.order)))
        else:
            self._opened[index] = request

    def _response(self, index: int, row: list[int], conversation: Conversation) -> None:
        mate = row[c.PARTNER]
        if mate > index:
            return  # its request comes later
        frame = self._cut(row)
        if mate <= c.EARLIER:
            request = conversation.outstanding.take(row[c.CORRELATION_ID])
            assert request is not None
            conversation.answer(request, frame)
        elif mate >= 0:
            conversation.answer(self._opened.pop(mate), frame)
        else:
            conversation.early.append(EarlyResponse(row[c.CORRELATION_ID], frame))

    def deed(self, at: int) -> None:
        """Do or tell what is neither a call nor a frame."""
        row = self._deeds[at].tolist()
        connection = self._shares[row[c.DEED_LINK]][0]
        conversation = connection.exchange.conversation
        kind, what = row[c.DEED], row[c.DEED_WHAT]
        if kind == c.REQUEST_LOST:
            oldest = self._opened.pop(what) if what >= 0 else conversation.outstanding.oldest()
            assert oldest is not None
            if what < 0:
                conversation.outstanding.take(oldest.correlation_id)
            conversation.lost(oldest, row[c.DEED_ORDER])
        elif kind == c.RESPONSE_ORPHANED:
            conversation.orphan(conversation.early.pop(0))
        else:
            code, detail = _words(row, connection.exchange.client)
            connection.anomalies.append(
                Anomaly(
                    row[c.DEED_ORDER], connection.number, code, detail, row[c.DEED_PACKET], row[c.DEED_TIME]
                )
            )

    def _cut(self, row: list[int]) -> Frame:
        data = bytes(self._buf[row[c.START] : row[c.STOP]])
        size = len(data)
        return Frame(row[c.ORDER], data, 0, size, size, row[c.FIRST_TIME], row[c.LAST_TIME], row[c.PACKET])


def _words(row: list[int], client: int) -> tuple[str, str]:
    what, is_client = row[c.DEED_WHAT], row[c.DEED_SIDE] == client
    if row[c.DEED] == c.GAP_FOUND:
        return "gap", f"{what} bytes from the {'client' if is_client else 'broker'}"
    if row[c.DEED] == c.RESYNCHRONISATION:
        return (
            "resynchronised",
            f"{what} bytes skipped of the {'request' if is_client else 'response'} stream",
        )
    return "response_before_request", f"correlation id {what}"
