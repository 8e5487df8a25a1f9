"""What keeps a live session from starting."""


class LiveError(Exception):
    """One line for the user: what is missing, and how to get it."""
