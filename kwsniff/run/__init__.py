"""How an input is read: by one process, by stages, side by side, or in parts that are put together.

A part begins where its file is cut, without what came before. What it can't know (the beginnings of open
connections) stays apart until the parts before it are known; then both are joined, and the rows are those of
one process.
"""
