"""Compiling the kernels, alone and for a wheel, with compilers of every kind and with none."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

from nanoserve.kernels import compile as kernel_compiler
from nanoserve.kernels.compile import (
    INSTRUCTION_SETS,
    CannotCompile,
    CompilerFailed,
    compile_kernels,
)


def test_a_machine_without_a_compiler_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CannotCompile, match=r"no C\+\+ compiler \(g\+\+, c\+\+, clang\+\+\)"):
        compile_kernels(tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.fixture
def compiler(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A compiler that writes a line wherever it is to write, and is too old for AVX-512."""
    path = tmp_path_factory.mktemp("bin") / "compiler"
    path.write_text(
        "#!/bin/sh\n"
        'case "$*" in *$REFUSED*) echo too old >&2; exit 1;; esac\n'
        "for output; do :; done\n"
        'echo made > "$output"\n'
    )
    path.chmod(0o755)
    monkeypatch.setenv("CXX", str(path))
    monkeypatch.setenv("REFUSED", "-mavx512f")
    return path


@pytest.mark.usefixtures("compiler")
def test_a_compiler_that_fails_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("REFUSED", "-c")
    with pytest.raises(CompilerFailed, match=r"(?s)avx512: .*failed:\ntoo old.*avx2: .*too old"):
        compile_kernels(tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("compiler")
def test_an_instruction_set_that_cannot_be_compiled_leaves_the_others(tmp_path: Path):
    made = compile_kernels(tmp_path)
    assert made.libraries == (tmp_path / "nanoserve_avx2.so",)
    (fault,) = made.faults
    assert fault.startswith("avx512: ")
    assert fault.endswith("failed:\ntoo old")


def test_the_compilers_command_may_have_arguments(
    compiler: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    compiler.chmod(0o644)
    monkeypatch.setenv("CXX", f"sh '{compiler}'")
    assert len(compile_kernels(tmp_path).libraries) == 1
    monkeypatch.setenv("CXX", f"sh '{compiler}")
    with pytest.raises(CannotCompile, match="is no command: No closing quotation"):
        compile_kernels(tmp_path)


@pytest.mark.usefixtures("compiler")
def test_two_may_compile_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Neither finds a file of the other's on its way to a library's place."""
    ways: list[Path] = []
    replace = Path.replace

    def watched(self: Path, target: Path) -> Path:
        ways.append(self)
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", watched)
    for _ in range(2):
        compile_kernels(tmp_path)
    first, second = ways
    assert first != second
    assert first.is_relative_to(tmp_path), "on one file system, so that it is there at once"
    assert [path.name for path in tmp_path.iterdir()] == ["nanoserve_avx2.so"]


def test_only_a_machine_without_a_compiler_skips_these_tests(
    compiler: Path,
    compile_or_skip: Callable[[Path], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    with pytest.raises(pytest.fail.Exception, match="too old"):
        compile_or_skip(tmp_path)
    monkeypatch.setenv("REFUSED", "-c")
    with pytest.raises(CompilerFailed):
        compile_or_skip(tmp_path)
    compiler.unlink()
    with pytest.raises(pytest.skip.Exception, match=r"no C\+\+ compiler"):
        compile_or_skip(tmp_path)


def test_other_machines_are_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kernel_compiler.platform, "machine", lambda: "riscv64")
    with pytest.raises(CannotCompile, match=r"for Linux on x86-64, not .* on riscv64"):
        compile_kernels(tmp_path)


def build_wheel(folder: Path) -> Path:
    builder = WheelBuilder(str(Path(kernel_compiler.__file__).parents[2]))
    (wheel,) = builder.build(directory=str(folder), versions=["standard"])
    return Path(wheel)


def test_a_wheel_carries_the_libraries_and_says_for_which_platform(tmp_path: Path):
    wheel = build_wheel(tmp_path)
    names = zipfile.ZipFile(wheel).namelist()
    found = [name for name in names if name.endswith(".so")]
    assert sorted(found) == sorted(f"nanoserve/kernels/{s.library}" for s in INSTRUCTION_SETS)
    assert wheel.name.endswith("-py3-none-linux_x86_64.whl")
    assert "nanoserve/kernels/step.cpp" in names, "the sources come along, for their digest"


def test_a_wheel_is_built_without_a_compiler_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("CXX", "no-such-compiler")
    wheel = build_wheel(tmp_path)
    assert wheel.name.endswith("-py3-none-any.whl")
    assert not [name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".so")]
    said = "".join(capsys.readouterr())
    assert "built without its kernels: there is no C++ compiler (no-such-compiler)" in said


def test_a_wheel_is_built_with_a_compiler_that_cannot_be_run_all_the_same(
    compiler: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    compiler.write_bytes(b"\x7fELF, or not")
    assert build_wheel(tmp_path).name.endswith("-py3-none-any.whl")
    assert "built without its kernels: [Errno 8]" in "".join(capsys.readouterr())


@pytest.mark.usefixtures("compiler")
def test_a_wheel_carries_what_could_be_compiled(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    names = zipfile.ZipFile(build_wheel(tmp_path)).namelist()
    found = [name for name in names if name.endswith(".so")]
    assert found == ["nanoserve/kernels/nanoserve_avx2.so"]
    assert "built without some of its kernels: avx512: " in "".join(capsys.readouterr())
