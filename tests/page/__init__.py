from collections.abc import Iterable, Sequence

import pyarrow as pa

from kwsniff.page.html import Pass


def page_of(batches: Iterable[pa.RecordBatch], paths: Sequence[str] = ()) -> str:
    """The text of the page of EVENTS batches; `paths` say what they are of."""
    taken = Pass()
    for batch in batches:
        taken.take(batch)
    return taken.page(paths).html()
