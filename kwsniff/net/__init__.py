"""From packets to TCP segments and streams. No I/O."""
