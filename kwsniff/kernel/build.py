"""Compiles the kernels to an object file: `python -m kwsniff.kernel.build`.

numba translates `act` and all that it calls; what it yields is linked into one module, optimised as a whole
with all functions but the entry internal, and written by LLVM for the machine at hand. Compiled with NumPy's
error model and without numba's run-time system, so that the code calls nobody.
"""

from __future__ import annotations

import os
import sys
from typing import Any

os.environ["KWSNIFF_COMPILING"] = "1"

import llvmlite.binding as llvm
import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import compiler, registry
from numba.core.codegen import CPUCodeLibrary
from numba.core.imputils import lower_getattr_generic
from numba.core.typing.templates import AttributeTemplate, infer_getattr
from numba.extending import models, register_model
from numba.np import arrayobj

from kwsniff.kernel.entry import act
from kwsniff.kernel.native_code import FOLDER, SYMBOL, architecture, path_of
from kwsniff.kernel.tables import ARRAYS, NAMES, SPECS

KINDS = {"bytes": np.uint8, "words": np.int32, "longs": np.int64}


ELEMENTS = {spec.name: numba.from_dtype(np.dtype([(name, np.int64) for name in spec.names])) for spec in SPECS}
ELEMENTS |= {name: numba.from_dtype(np.dtype(KINDS[kind])) for name, kind in ARRAYS.items()}
"""The numba type of an element of each table."""


class TablesType(types.Type):  # type: ignore[misc]
    """What `t` is compiled: the address of pairs of an address and a length, one for each table."""

    def __init__(self) -> None:
        super().__init__(name="Tables")


TABLES = TablesType()


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
        return types.Array(ELEMENTS[name], 1, "C") if name in ELEMENTS else None


@lower_getattr_generic(TablesType)  # type: ignore[untyped-decorator]
def lower_table(context: Any, builder: Any, kind: Any, value: Any, name: str) -> Any:
    """Load the address and length of a table."""
    array = types.Array(ELEMENTS[name], 1, "C")
    made = arrayobj.make_array(array)(context, builder)
    at = NAMES.index(name) * 2
    address, count = (builder.load(builder.gep(value, [ir.Constant(ir.IntType(64), at + n)])) for n in (0, 1))
    size = context.get_constant(types.intp, context.get_abi_sizeof(context.get_data_type(array.dtype)))
    arrayobj.populate_array(
        made, data=builder.inttoptr(address, made.data.type), shape=[count], strides=[size], itemsize=size,
        meminfo=None,
    )  # fmt: skip
    return made._getvalue()


def _leave(library: Any) -> None:
    """Optimise nothing: numba would do so anew for every function with all that it calls."""


def module() -> Any:
    """The LLVM module of the entry and all that it calls, not optimised."""
    CPUCodeLibrary._optimize_functions = lambda library, module: None
    CPUCodeLibrary._optimize_final_module = _leave
    target = registry.cpu_target
    flags = compiler.Flags()
    flags.error_model = "numpy"
    flags.nrt = False
    flags.no_cpython_wrapper = True
    flags.no_cfunc_wrapper = False
    flags.boundscheck = os.environ.get("KWSNIFF_BOUNDSCHECK") == "1"
    made = compiler.compile_extra(
        target.typing_context, target.target_context, act.py_func, (TABLES, types.int64, types.int64),
        types.int64, flags, {},
    )  # fmt: skip
    linked = llvm.parse_assembly(str(made.library._final_module))
    name = made.fndesc.llvm_cfunc_wrapper_name
    for function in linked.functions:
        if function.is_declaration:
            continue
        if function.name == name:
            function.name = SYMBOL
            function.linkage = "external"
        else:
            function.linkage = "internal"
    return linked


def write(path: Any) -> None:
    """Write the object file for this machine's processor."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    linked = module()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=3, reloc="pic"
    )
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(linked, builder)
    path.parent.mkdir(exist_ok=True)
    for old in path.parent.glob(f"{architecture()}-*.o"):
        old.unlink()
    path.write_bytes(machine.emit_object(linked))


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    write(path_of(architecture()))
    print(path_of(architecture()), file=sys.stderr)
