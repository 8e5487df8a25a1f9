"""Rows of columns as lines of CSV: the kernel that writes them, and what runs it."""
