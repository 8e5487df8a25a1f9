"""Says what the dissectors lack or say otherwise than a release of kafka-clients.

    python -m tests.conformance [VERSION]    4.4.0, a Maven range, or nothing for the newest there is

Ends with 0 if they agree, 1 if there are findings, 2 if the release cannot be had.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.conformance import check, jars
from tests.conformance.definitions import DefinitionError


def main(arguments: list[str]) -> int:
    """Checks one release and prints what was found."""
    version = arguments[0] if arguments and arguments[0] else f"[{jars.FIRST},)"
    with tempfile.TemporaryDirectory() as folder:
        try:
            result = check.release(version, Path(folder))
        except (jars.NoSuchReleaseError, DefinitionError, FileNotFoundError) as error:
            print(f"conformance: {error}", file=sys.stderr)
            return 2
    print(result)
    return 1 if result.findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
