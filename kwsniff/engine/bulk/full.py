"""The bodies of plain calls as JSON, for runs that ask for all fields: decoded one by one, as ever."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kwsniff.binary import DecodeError
from kwsniff.config import Config
from kwsniff.engine.bulk import columns as c
from kwsniff.spec.compile import FullDecoder, decoder
from kwsniff.wire.render import Problem, render

Ints = NDArray[np.int64]


class Bodies:
    """Texts by frame; frames whose body only the facts accept become unclean."""

    def __init__(self, config: Config, buf: memoryview, frames: Ints, facts: Ints) -> None:
        self._config = config
        self._texts: dict[int, str] = {}
        self._partner = frames[:, c.PARTNER]
        self.notes: dict[int, list[Problem]] = {}
        """What is wrong inside of record batches."""
        wanted = np.flatnonzero(facts[: len(frames), c.CLEAN])
        asked = np.where(frames[wanted, c.KEY] >= 0, wanted, frames[wanted, c.PARTNER])
        columns = (wanted, asked == wanted, frames[asked, c.KEY], frames[asked, c.VERSION])
        decoders: dict[tuple[int, int, bool], FullDecoder] = {}
        spans = (frames[wanted, at] for at in (c.START, c.BODY, c.STOP))
        for index, is_request, key, version, start, body, stop in zip(
            *(column.tolist() for column in (*columns, *spans)), strict=True
        ):
            direction = "request" if is_request else "response"
            problems: list[Problem] = []
            data = bytes(buf[start:stop])
            which = (key, version, is_request)
            decode = decoders.get(which)
            if decode is None:
                decode = decoders[which] = decoder(key, version, direction)
            try:
                fields, _ = decode(data, body - start, stop - start, config.max_elements)
            except DecodeError:
                facts[index, c.CLEAN] = 0
                continue
            self._texts[index] = render(key, version, direction, fields, config, problems)
            if problems:
                self.notes[index] = problems

    def of(self, asked: Ints) -> tuple[list[str | None], list[str | None]]:
        """The texts of requests, by frame, and of their responses."""
        given = self._partner[asked].tolist()
        return [self._texts.get(at) for at in asked.tolist()], [self._texts.get(at) for at in given]
