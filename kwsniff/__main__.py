"""Run the command line as `python -m kwsniff`, or by the path of this file, as spark-submit does."""

import os
import sys

# By its path, Python looks in this directory first, where `html` is not that of the standard library.
if sys.path and os.path.realpath(sys.path[0] or ".") == os.path.dirname(os.path.realpath(__file__)):
    del sys.path[0]

from kwsniff.cli import main

main()
