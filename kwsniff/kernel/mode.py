"""Whether kernels are being compiled or interpreted, for the kernels of this package."""

from kwsniff.native.mode import COMPILING, inlined, int64, kernel, uintp

__all__ = ["COMPILING", "inlined", "int64", "kernel", "uintp"]
