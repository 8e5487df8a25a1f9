"""Rows chosen, grouped and counted, in bounded memory, so that what was counted apart can be merged."""
