"""Which compiled code is loaded, and what becomes of an installation that can't compile."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from kwsniff.cli import telling
from kwsniff.native import code as native_code
from kwsniff.native.code import (
    ACT,
    LEVELS,
    NATIVE,
    READ,
    as_library,
    fitting,
    is_library,
    opened,
    path_of,
    sealed,
)

ROOT = Path(__file__).parents[2]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(native_code, "FOLDER", tmp_path)
    monkeypatch.setattr(native_code, "_features", lambda: LEVELS["x86-64-v2"] | {"avx"})
    return tmp_path


def test_code_for_this_very_processor_goes_before_code_to_be_handed_on(folder: Path) -> None:
    assert fitting() is None
    for cpu in ("generic", "x86-64-v2", NATIVE):
        path_of(cpu).touch()
        assert fitting() == path_of(cpu)


def test_code_with_instructions_that_this_processor_lacks_is_passed_over(folder: Path) -> None:
    path_of("x86-64-v3").touch()
    (folder / path_of(NATIVE).name.replace("+", "+0")).touch()
    assert fitting() is None


def test_processors_of_one_name_with_other_features_are_told_apart(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path_of(NATIVE).touch()
    monkeypatch.setattr(native_code, "_features", lambda: LEVELS["x86-64-v3"])
    assert fitting() is None


def test_code_of_other_sources_is_passed_over(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path_of(NATIVE).touch()
    monkeypatch.setattr(native_code, "digest", lambda: "0" * 16)
    assert fitting() is None


@pytest.mark.parametrize("data", [b"", b"\x7fELF and no more", native_code.sealed(b"code")[:-1]])
def test_a_damaged_file_leaves_kernels_interpreted(data: bytes, folder: Path) -> None:
    path_of(NATIVE).write_bytes(data)
    native_code.functions.cache_clear()
    try:
        assert native_code.load(ACT) is None
    finally:
        native_code.functions.cache_clear()


def object_code() -> bytes:
    """Code as LLVM writes it, with the functions that are called from outside: each returns its number."""
    llvm = pytest.importorskip("llvmlite.binding")
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(reloc="pic")
    body = "define i64 @{}(ptr %tables, i64 %what, i64 %how) {{ ret i64 {} }}"
    functions = [body.format(symbol, number) for number, symbol in enumerate((ACT, READ))]
    return bytes(machine.emit_object(llvm.parse_assembly("\n".join(functions))))


@pytest.mark.parametrize("linked", [False, True])
def test_code_is_loaded_as_an_object_file_and_as_a_library(linked: bool, folder: Path) -> None:
    code = as_library(object_code()) if linked else object_code()
    if is_library(code) is not linked:
        pytest.skip("no linker on this machine")
    path_of(NATIVE).write_bytes(sealed(code))
    native_code.functions.cache_clear()
    try:
        loaded = native_code.functions()
        assert loaded is not None
        assert [loaded[symbol](0, 0, 0) for symbol in (ACT, READ)] == [0, 1]
    finally:
        native_code.functions.cache_clear()


@pytest.mark.parametrize("linker", [None, "/bin/false"])
def test_without_a_linker_code_stays_an_object_file(
    linker: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native_code.shutil, "which", lambda _: linker)
    assert as_library(b"code") == b"code"


def test_a_library_that_was_made_here_is_loaded_without_llvm() -> None:
    path = fitting()
    if path is None or not is_library(opened(path.read_bytes())):
        pytest.skip("no library for this machine")
    script = (
        "import sys; from kwsniff.native.code import ACT, load; load(ACT); print('llvmlite' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    assert run.stdout == "False\n"


def test_code_that_was_made_here_is_known_without_asking_llvm(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = path_of(NATIVE)
    path.write_bytes(sealed(b"code"))
    monkeypatch.setattr(native_code, "_features", pytest.fail)
    assert fitting() == path


def test_code_that_was_made_on_another_machine_is_judged_by_its_name(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / path_of(NATIVE).name.replace("+", "+0")).write_bytes(sealed(b"code"))
    monkeypatch.setattr(native_code, "place", lambda: b"far away")
    assert fitting() is None
    path_of("x86-64-v2").touch()
    assert fitting() == path_of("x86-64-v2")


def test_where_the_system_says_nothing_of_its_processor_code_is_judged_by_its_name(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native_code, "place", lambda: bytes(native_code.PLACE))
    (folder / path_of(NATIVE).name.replace("+", "+0")).write_bytes(sealed(b"code"))
    assert fitting() is None


def hook() -> ModuleType:
    pytest.importorskip("hatchling")
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def built(version: str, answer: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, Any], list[str]]:
    """What the hook adds to the wheel, and its warnings, when the compiler answers so."""
    module = hook()
    warnings: list[str] = []
    data: dict[str, Any] = {"force_include": {}}
    monkeypatch.setattr(module.subprocess, "run", answer)
    made = module.Kernels(
        str(ROOT), {}, None, None, "", "wheel", SimpleNamespace(display_warning=warnings.append)
    )
    made.initialize(version, data)
    return data, warnings


def test_a_compiler_that_fails_leaves_a_wheel_for_all_machines_and_one_warning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise subprocess.CalledProcessError(
            1, "python", stderr="Traceback\nModuleNotFoundError: No module numba\n"
        )

    data, (warning,) = built("standard", fails, monkeypatch)
    assert data == {"force_include": {}}
    assert warning.endswith("will be slow: ModuleNotFoundError: No module numba")


def test_what_is_compiled_goes_into_a_wheel_for_this_platform(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = ROOT / "kwsniff" / "native" / "compiled" / "test.kernels"
    code.parent.mkdir(exist_ok=True)
    code.touch()

    def compiles(command: list[str], **_: Any) -> Any:
        assert command[:3] == [sys.executable, "-m", "kwsniff.engine.build"]
        return SimpleNamespace(stdout=f"{code}\n")

    try:
        data, warnings = built("standard", compiles, monkeypatch)
        assert data["force_include"] == {str(code): "kwsniff/native/compiled/test.kernels"}
        assert data["tag"].startswith("py3-none-")
        assert not data["tag"].endswith("-any")
        assert built("editable", compiles, monkeypatch) == ({"force_include": {}}, [])
        assert warnings == []
    finally:
        code.unlink()


@pytest.mark.parametrize(("size", "emitted"), [(telling.LARGE - 1, 0), (telling.LARGE, 1)])
def test_a_large_input_without_compiled_kernels_is_told(
    size: int,
    emitted: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(telling, "load", lambda _: None)
    monkeypatch.delenv("KWSNIFF_KERNELS", raising=False)
    with (tmp_path / "a.pcap").open("wb") as file:
        file.truncate(size)
    telling.tell_if_interpreted([str(tmp_path), str(tmp_path / "missing"), "-"])
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == emitted
    assert all("python -m kwsniff.engine.build" in line for line in lines)


def test_who_wants_interpreted_kernels_is_told_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(telling, "load", lambda _: None)
    monkeypatch.setenv("KWSNIFF_KERNELS", "interpreted")
    with (tmp_path / "a.pcap").open("wb") as file:
        file.truncate(telling.LARGE)
    telling.tell_if_interpreted([str(tmp_path)])
    assert capsys.readouterr().err == ""


def test_compiling_needs_nothing_but_what_a_build_installs() -> None:
    """pip builds a wheel where nothing is installed but `build-system.requires`."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    needed, built = (
        {re.split(r"[^\w-]", each)[0].replace("-", "_") for each in names}
        for names in (project["project"]["dependencies"], project["build-system"]["requires"])
    )
    absent = sorted(needed - built - {"numpy", "llvmlite"})  # numba brings these two
    assert "pandas" in absent
    code = f"import sys; sys.modules.update(dict.fromkeys({absent!r})); import kwsniff.engine.build"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
