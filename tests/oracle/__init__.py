"""What bodies and record data say, a second time and in another way: the kernels are compared with it.

The kernels run programs of instructions over tables of integers. Here the plain interpreter of layouts
reads the same bytes, and rows are tuples of Python's own types: `facts` are fields with roles, `bodies` a
whole body with its record data, `records` sums of batches, `joining` what request and response say together.
"""
