"""The rules of TCP, Kafka's framing, pairing and bodies, as functions over tables of integers.

The same source runs in two ways (see `kwsniff.engine.machine`): compiled to machine code when the package is
installed, or interpreted, where no compiled code fits the machine and in tests. So functions in here touch
only integers, rows with named fields, and byte arrays; they allocate nothing, and raise nothing but
`Stopped`, when a table is full.
"""
