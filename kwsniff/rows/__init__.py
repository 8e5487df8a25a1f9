"""Rows: the codes and columns of EVENTS, and Arrow arrays made of NumPy's."""
