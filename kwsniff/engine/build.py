"""Compiles the kernels: `python -m kwsniff.engine.build`.

numba translates the entries and all that they call; what it yields is linked into one module, optimised as a
whole with all functions but the entries internal, and written by LLVM for the machine at hand. The system's
linker, if there is one, makes a shared library of it. Compiled with NumPy's error model and without numba's
run-time system, so that the code calls nobody. `hatch_build.py` runs this when kwsniff is installed.

`--checked` makes code for tests that looks at every index first.
"""

from __future__ import annotations

import argparse
import os
import re
from pathlib import Path
from typing import Any

os.environ["KWSNIFF_COMPILING"] = "1"

from kwsniff.native.code import (
    ACT,
    BOUNDS,
    CHECKED,
    COVERED,
    ENDING,
    LEVELS,
    NATIVE,
    READ,
    STOPPED,
    digest,
    digest_now,
    path_of,
    sealed,
)

DIGEST = digest()
"""Of the sources as they were before any of them was read to be compiled."""

import llvmlite.binding as llvm
import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils, compiler, config, registry
from numba.core.callconv import RETCODE_USEREXC
from numba.core.codegen import CPUCodeLibrary, JITCodeLibrary
from numba.core.cpu import CPUContext
from numba.core.dispatcher import _DispatcherBase
from numba.core.imputils import lower_getattr_generic
from numba.core.lowering import Lower
from numba.core.typing.templates import AttributeTemplate, infer_getattr
from numba.extending import models, register_model
from numba.np import arrayobj

from kwsniff.engine import tables
from kwsniff.engine.follow import act
from kwsniff.native.code import as_library
from kwsniff.native.rowcopies import TYPES, Spec
from kwsniff.net import inout as packets
from kwsniff.net.layers import read

ENTRY = """
declare i32 @"INNER"(ptr, ptr, ptr, i64, i64)

define i64 @OUTER(ptr %tables, i64 %what, i64 %how) {
  %result = alloca i64
  %raised = alloca ptr
  store i64 0, ptr %result
  %status = call i32 @"INNER"(ptr %result, ptr %raised, ptr %tables, i64 %what, i64 %how)
  %value = load i64, ptr %result
  %good = icmp eq i32 %status, 0
  %answer = select i1 %good, i64 %value, i64 STOPPED
  ret i64 %answer
}
"""
"""What is called from outside: numba's functions return their result by address, and say whether they raised.
The wrapper that numba writes for C needs Python to report what."""


class TablesType(types.Type):  # type: ignore[misc]
    """What `t` is compiled: the address of pairs of an address and a length, one for each table."""

    def __init__(self, name: str, specs: list[Spec], arrays: dict[str, str]) -> None:
        super().__init__(name=name)
        self.names = [*(spec.name for spec in specs), *arrays]
        kinds = {spec.name: np.dtype([(name, np.int64) for name in spec.names]) for spec in specs}
        kinds |= {name: np.dtype(TYPES[kind]) for name, kind in arrays.items()}
        self.elements = {name: numba.from_dtype(kind) for name, kind in kinds.items()}


ENTRIES = {
    ACT: (act, TablesType("Tables", tables.SPECS, tables.ARRAYS)),
    READ: (read, TablesType("Packets", packets.SPECS, packets.ARRAYS)),
}
"""What can be called from outside, and the tables that it takes."""


@register_model(TablesType)
class TablesModel(models.PrimitiveModel):  # type: ignore[misc]
    """A pointer to 64-bit integers."""

    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, ir.IntType(64).as_pointer())


@infer_getattr
class TablesAttributes(AttributeTemplate):  # type: ignore[misc]
    """`t.name` is the array of that table."""

    key = TablesType

    def generic_resolve(self, value: Any, name: str) -> Any:
        return types.Array(value.elements[name], 1, "C") if name in value.elements else None


@lower_getattr_generic(TablesType)  # type: ignore[untyped-decorator]
def lower_table(context: Any, builder: Any, kind: Any, value: Any, name: str) -> Any:
    """Load the address and length of a table."""
    array = types.Array(kind.elements[name], 1, "C")
    made = arrayobj.make_array(array)(context, builder)
    at = kind.names.index(name) * 2
    address, count = (builder.load(builder.gep(value, [ir.Constant(ir.IntType(64), at + n)])) for n in (0, 1))
    size = context.get_constant(types.intp, context.get_abi_sizeof(context.get_data_type(array.dtype)))
    arrayobj.populate_array(
        made, data=builder.inttoptr(address, made.data.type), shape=[count], strides=[size], itemsize=size,
        meminfo=None,
    )  # fmt: skip
    return made._getvalue()


def only_translate() -> list[Any]:
    """Let numba write LLVM's language and no machine code. It would link, optimise and assemble every
    function with all that it calls, and wrap each for Python; here all are linked and optimised once.
    Returns the list that the code libraries to link will be added to."""
    libraries: list[Any] = []

    def nothing(*_: Any, **__: Any) -> None:
        return None

    def keep(dispatcher: Any, made: Any) -> None:
        dispatcher.overloads[tuple(made.signature.args)] = made

    CPUCodeLibrary.add_linking_library = lambda _, library: libraries.append(library)
    CPUCodeLibrary._optimize_functions = CPUCodeLibrary._optimize_final_module = nothing
    JITCodeLibrary._finalize_specific = nothing
    CPUContext.create_cpython_wrapper = nothing
    CPUContext.get_executable = lambda *_: object()  # what tells functions from each other
    _DispatcherBase.add_overload = keep
    return libraries


def module() -> Any:
    """The LLVM module of the entries and all that they call, not optimised."""
    libraries = only_translate()
    linked = llvm.parse_assembly("")
    inner = {symbol: translated(*entry) for symbol, entry in ENTRIES.items()}
    parts = [made.library for made in inner.values()]
    for library in dict.fromkeys([*parts, *libraries]):
        part = llvm.parse_assembly(str(library._final_module))
        for function in part.functions:
            if not function.is_declaration and function.linkage == llvm.Linkage.external:
                function.linkage = "weak_odr"
        linked.link_in(part)
    for symbol, made in inner.items():
        entry = ENTRY.replace("INNER", made.fndesc.llvm_func_name).replace("OUTER", symbol)
        linked.link_in(llvm.parse_assembly(entry.replace("STOPPED", str(STOPPED))))
    return linked


def keep_inside(linked: Any) -> None:
    """Make all functions internal but those that are called from outside: LLVM may do without the others."""
    for function in linked.functions:
        if not function.is_declaration:
            function.linkage = "external" if function.name in (*ENTRIES, BOUNDS) else "internal"


def translated(function: Any, kind: TablesType) -> Any:
    """What numba makes of an entry."""
    target = registry.cpu_target
    flags = compiler.Flags()
    flags.error_model = "numpy"
    flags.nrt = False
    flags.no_cpython_wrapper = True
    flags.no_cfunc_wrapper = True
    return compiler.compile_extra(
        target.typing_context, target.target_context, function.py_func, (kind, types.int64, types.int64),
        types.int64, flags, {},
    )  # fmt: skip


def machine_of(cpu: str) -> Any:
    """What writes code for a processor."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    name, features = cpu, ""
    if cpu in (NATIVE, CHECKED):
        name, features = llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=name, features=features, opt=level(cpu), reloc="pic"
    )


# Compiled code that looks at every index before it uses it.
#
# numba can check indexes, and raises IndexError with Python's help. Here what fails is written down (where,
# which index, how many rows) and the function returns with numba's mark of an error, which each of its
# callers passes on; `kwsniff.native.code` raises what is written there. A negative index is wrong too: it
# would count from the end in Python only.
#
# The code also counts how often each of its blocks ran, which is what a fuzzer is led by.

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


def level(cpu: str) -> int:
    """How much LLVM optimises: code for tests is made in a hurry."""
    return 1 if cpu == CHECKED else 3


def compiled(cpu: str) -> bytes:
    """The object code for a processor."""
    machine = machine_of(cpu)
    if cpu == CHECKED:
        look_at_indexes()
    linked = module()
    if cpu == CHECKED:
        add_report(linked)
    keep_inside(linked)
    options = llvm.create_pipeline_tuning_options(speed_level=level(cpu))
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(linked, builder)
    if cpu == CHECKED:
        linked = counting(linked)
    return bytes(machine.emit_object(linked))


def write(path: Path, cpu: str) -> None:
    """Write the code for a processor. Older ones for other sources go. Raises SystemExit if the
    sources were changed meanwhile: it is not known then which of them was compiled."""
    code = as_library(compiled(cpu))
    if digest_now() != DIGEST:
        raise SystemExit("The sources were changed while they were compiled: nothing is written.")
    path.parent.mkdir(exist_ok=True)
    for old in [*path.parent.glob("*.o"), *path.parent.glob(f"*{ENDING}")]:
        if not old.name.endswith(f"-{DIGEST}{ENDING}"):
            old.unlink(missing_ok=True)
    made = path.with_suffix(f".{os.getpid()}")
    made.write_bytes(sealed(code))
    made.replace(path)


def main() -> None:
    """Compile unless it is done already, and print where the code is."""
    parser = argparse.ArgumentParser(prog="python -m kwsniff.engine.build", description=main.__doc__)
    parser.add_argument("--cpu", choices=(NATIVE, *LEVELS), default=NATIVE, help="processor to compile for")
    parser.add_argument(
        "--checked",
        action="store_const",
        dest="cpu",
        const=CHECKED,
        help="for tests: look at every index first",
    )
    cpu = parser.parse_args().cpu
    path = path_of(cpu)
    if not path.exists():
        write(path, cpu)
    print(path)


if __name__ == "__main__":
    main()
