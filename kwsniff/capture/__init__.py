"""Capture files and interfaces: the only packet I/O."""
