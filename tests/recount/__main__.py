"""`python -m tests.recount [CAPTURE ...]` prints how many figures of each output were checked, and how many
were wrong: of all samples whole, and of some with packets missing."""

from __future__ import annotations

import sys

from tests.recount.inputs import check_all

if __name__ == "__main__":
    checked = check_all(sys.argv[1:])
    print("\n".join((*checked.table(), *checked.wrong[:50])))
    sys.exit(1 if checked.wrong else 0)
