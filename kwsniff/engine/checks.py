"""Compiled code that looks at every index before it uses it.

numba can check indexes, and raises IndexError with Python's help. Here what fails is written down (where,
which index, how many rows) and the function returns with numba's mark of an error, which each of its callers
passes on; `kwsniff.native.code` raises what is written there. A negative index is wrong too: it would count
from the end in Python only.

The code also counts how often each of its blocks ran, which is what a fuzzer is led by.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba.core import cgutils, config, types
from numba.core.callconv import RETCODE_USEREXC
from numba.core.lowering import Lower
from numba.np import arrayobj

from kwsniff.native.code import BOUNDS, COVERED

WRONG = "kwsniff_wrong_index"
LONG = ir.IntType(64)
REPORT = f"""
@{WRONG} = global [3 x i64] zeroinitializer

define i64 @{BOUNDS}() {{
  ret i64 ptrtoint (ptr @{WRONG} to i64)
}}
"""
"""The address of a text that says where, the index, and how many there are."""
_place = "?"
"""Of the source that is being translated."""


def look_at_indexes() -> None:
    """Make numba translate so from now on."""
    config.BOUNDSCHECK = 1  # type: ignore[attr-defined]
    lower = Lower.lower_inst

    def noting(self: Any, instruction: Any) -> None:
        global _place
        _place = f"{Path(instruction.loc.filename).name}:{instruction.loc.line}"
        lower(self, instruction)  # type: ignore[no-untyped-call]

    Lower.lower_inst = noting
    cgutils.do_boundscheck = _check
    arrayobj.fix_integer_index = _as_it_is


def add_report(linked: Any) -> None:
    """Add what the checks write to."""
    linked.link_in(llvm.parse_assembly(REPORT))
    linked.get_global_variable(WRONG).linkage = "internal"


COUNT = """
  %kwsniff.{n} = getelementptr i8, ptr @kwsniff_counts, i64 {at}
  %kwsniff.{n}.was = load i8, ptr %kwsniff.{n}
  %kwsniff.{n}.is = add i8 %kwsniff.{n}.was, 1
  store i8 %kwsniff.{n}.is, ptr %kwsniff.{n}
"""
COUNTS = """
@kwsniff_counts = internal global {{ i64, [{count} x i8] }} {{ i64 {count}, [{count} x i8] zeroinitializer }}

define i64 @{covered}() {{
  ret i64 ptrtoint (ptr @kwsniff_counts to i64)
}}
"""
_LABEL = re.compile(r"^[^\s;@!].*:\s*(;.*)?$")


def counting(linked: Any) -> Any:
    """The module with a counter in each block, behind the values that it takes from the blocks before it."""
    made: list[str] = []
    count, due = 0, False
    for line in str(linked).splitlines():
        begins = line.startswith("define ") or bool(_LABEL.match(line))
        if due and line.strip() and not begins and " = phi " not in line:
            made.append(COUNT.format(n=count, at=8 + count))
            count, due = count + 1, False
        made.append(line)
        due = due or begins
    made.append(COUNTS.format(count=count, covered=COVERED))
    return llvm.parse_assembly("\n".join(made))


def _as_it_is(context: Any, builder: Any, kind: Any, index: Any, _size: Any) -> Any:
    """An index as 64 bits; negative ones stay so."""
    return context.cast(builder, index, kind, types.intp if kind.signed else types.uintp)


def _check(context: Any, builder: Any, index: Any, size: Any, _axis: Any = None) -> None:
    """Write code that returns if an index, taken without sign, is not below the size."""
    with cgutils.if_unlikely(  # type: ignore[no-untyped-call]
        builder, builder.icmp_unsigned(">=", index, size)
    ):
        module = builder.module
        place = context.insert_const_string(module, _place)
        wrong = module.globals.get(WRONG) or ir.GlobalVariable(module, ir.ArrayType(LONG, 3), WRONG)
        for at, value in enumerate((builder.ptrtoint(place, LONG), index, size)):
            zero = ir.IntType(32)(0)
            builder.store(value, builder.gep(wrong, [zero, ir.IntType(32)(at)]))
        builder.ret(RETCODE_USEREXC)
