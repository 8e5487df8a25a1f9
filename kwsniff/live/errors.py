"""What keeps a live session from starting or going on."""


class LiveError(Exception):
    """One line for the user: what is missing, and how to get it."""
