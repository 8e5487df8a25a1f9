"""Run the command line as `python -m kwsniff`."""

from kwsniff.cli import main

main()
