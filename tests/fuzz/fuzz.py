"""Runs one fuzzer: `python -m tests.fuzz.fuzz TARGET SECONDS [libFuzzer options]`.

The corpus grows in `out/fuzz/TARGET`; an input that breaks the invariant is left in `out/fuzz` as
`TARGET-crash-...`. Turn it into a test before you mend what it found.

Targets of kernels run compiled, see `tests.fuzz.loop`; those of Python run under libFuzzer.
"""

from __future__ import annotations

import os
import sys
from hashlib import sha1
from pathlib import Path

OUT = Path("out/fuzz")
COMPILED = ("stream", "kernels", "frames", "link")
SECONDS_EACH = 10
EVERY = 100
MEMORY_MB = 4096
"""atheris itself keeps half a kilobyte of every comparison of NumPy arrays that it traces."""
ALLOCATION_MB = 1024


def main() -> None:
    name, seconds, *options = sys.argv[1:]
    if name not in COMPILED:
        under_libfuzzer(name, seconds, options)
    from tests.kernel.kinds import make_checked

    make_checked()
    os.environ["KWSNIFF_KERNELS"] = "checked"
    from tests.fuzz.loop import fuzz

    sys.exit(1 if fuzz(name, float(seconds), OUT) else 0)


def under_libfuzzer(name: str, seconds: str, options: list[str]) -> None:
    """Let atheris fuzz a target; it ends the process."""
    import atheris

    with atheris.instrument_imports(include=["kwsniff"]):
        from tests.fuzz.corpus import seeds
        from tests.fuzz.targets import TARGETS

    corpus = OUT / name
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(seeds(name)):
        (corpus / sha1(seed, usedforsecurity=False).hexdigest()).write_bytes(seed)
        if number % EVERY == 0:
            TARGETS[name](seed)  # what is compiled at first use takes longer than an execution may
    atheris.Setup(
        [
            "kwsniff-fuzz", str(corpus), f"-max_total_time={seconds}", f"-timeout={SECONDS_EACH}",
            f"-rss_limit_mb={MEMORY_MB}", f"-malloc_limit_mb={ALLOCATION_MB}",
            f"-artifact_prefix={OUT / name}-", "-print_final_stats=1",
            "-max_len=20000", "-len_control=0", *options,
        ],
        TARGETS[name],
    )  # fmt: skip
    atheris.Fuzz()


if __name__ == "__main__":
    main()
