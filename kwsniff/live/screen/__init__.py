"""The view of a live session that fills the terminal."""
