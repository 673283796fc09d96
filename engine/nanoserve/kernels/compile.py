"""Compile the C++ sources beside this file, once for each instruction set.

Run by the build hook when the package is installed, or by hand for a checkout that is used without
being installed (``python engine/nanoserve/kernels/compile.py``). It needs nothing but the standard
library and a C++ compiler: the kernels have a plain C interface, and no header of torch or Python
comes in.

The libraries are compiled for OpenMP but not linked to a runtime of their own. Its symbols are
resolved when the library is loaded, from the one that torch brings, because two runtimes in one
process would be two pools of threads that spin against each other.
"""

import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent

_FLAGS = (
    "-std=c++17",
    "-O3",
    "-fPIC",
    "-fopenmp",
    "-ffp-contract=fast",  # a * b + c is one operation, and the same one everywhere
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fno-exceptions",
    "-fvisibility=hidden",
    "-Wall",
    "-Wextra",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class InstructionSet:
    """What a library is compiled for.

    Attributes:
        name: As it stands in the library's file name and in the engine's kernel path.
        flags: The compiler's options. The instructions that they allow are exactly those that
            torch checks before it says that a processor has this capability.
    """

    name: str
    flags: tuple[str, ...]

    @property
    def library(self) -> str:
        """File name of the library."""
        return f"nanoserve_{self.name}.so"


_AVX2 = ("-mavx2", "-mfma")
_AVX512 = (*_AVX2, "-mavx512f", "-mavx512vl", "-mavx512bw", "-mavx512dq")
# Tuned for no processor in particular, g++ keeps addresses in vector registers and, for want of
# them, a tile's columns in memory.
_TUNED = "-mtune=skylake-avx512"
INSTRUCTION_SETS = (
    InstructionSet(name="avx512", flags=(*_AVX512, _TUNED, "-DNANOSERVE_LANES=16")),
    InstructionSet(name="avx2", flags=(*_AVX2, "-DNANOSERVE_LANES=8")),
)


class CannotCompile(Exception):
    """Why there are no compiled kernels here: another machine, or no compiler."""


class CompilerFailed(CannotCompile):
    """There is a compiler, and it did not take the sources."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Compiled:
    """What came of compiling.

    Attributes:
        libraries: Paths of the libraries, at least one.
        faults: Of each instruction set that has none, why.
    """

    libraries: tuple[Path, ...]
    faults: tuple[str, ...]


def sources_digest() -> str:
    """Names one state of sources and flags; every library carries the one it was made from."""
    digest = hashlib.sha256(repr((_FLAGS, INSTRUCTION_SETS)).encode())
    for path in sorted([*FOLDER.glob("*.cpp"), *FOLDER.glob("*.h")]):
        digest.update(f"\0{path.name}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def compile_kernels(into: Path) -> Compiled:
    """Compile a library for each instruction set, each whatever becomes of the others.

    Args:
        into: Folder that gets the libraries.

    Raises:
        CannotCompile: When this is no machine to compile for, or there is no compiler.
        CompilerFailed: When no instruction set could be compiled.
        OSError: When the compiler cannot be run or a file not be written.
    """
    machine = platform.machine().lower()
    if sys.platform != "linux" or machine not in ("x86_64", "amd64"):
        raise CannotCompile(f"the kernels are for Linux on x86-64, not {sys.platform} on {machine}")
    compiler = _find_compiler()
    libraries: list[Path] = []
    faults: list[str] = []
    with tempfile.TemporaryDirectory() as scratch:
        for target in INSTRUCTION_SETS:
            try:
                library = _compile(compiler, target, Path(scratch))
            except CompilerFailed as failure:
                faults.append(f"{target.name}: {failure}")
            else:
                libraries.append(_move_into(into, library))
    if not libraries:
        raise CompilerFailed("\n".join(faults))
    return Compiled(libraries=tuple(libraries), faults=tuple(faults))


def _move_into(folder: Path, library: Path) -> Path:
    """Put a library in its place at once.

    A running process may have the one before it mapped, and another may be compiling as well.
    """
    with tempfile.TemporaryDirectory(dir=folder, prefix=".arriving-") as door:
        return Path(shutil.copy2(library, door)).replace(folder / library.name)


def _find_compiler() -> list[str]:
    """The compiler's command, as ``CXX`` has it: a program, and perhaps arguments for it."""
    asked = os.environ.get("CXX", "").strip()
    try:
        commands = [shlex.split(asked)] if asked else [["g++"], ["c++"], ["clang++"]]
    except ValueError as error:
        raise CannotCompile(f"CXX={asked!r} is no command: {error}") from error
    for program, *arguments in commands:
        if found := shutil.which(program):
            return [found, *arguments]
    raise CannotCompile(f"there is no C++ compiler ({asked or 'g++, c++, clang++'})")


def _compile(compiler: Sequence[str], target: InstructionSet, scratch: Path) -> Path:
    digest = f'-DNANOSERVE_SOURCES="{sources_digest()}"'
    objects = []
    for source in sorted(FOLDER.glob("*.cpp")):
        objects.append(scratch / f"{target.name}-{source.stem}.o")
        _run([*compiler, *_FLAGS, *target.flags, digest, "-c", str(source), "-o", str(objects[-1])])
    library = scratch / target.library
    _run([*compiler, "-shared", *map(str, objects), "-o", str(library)])
    return library


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise CompilerFailed(f"{' '.join(command)} failed:\n{done.stderr.strip()}")


if __name__ == "__main__":
    try:
        made = compile_kernels(FOLDER)
    except (CannotCompile, OSError) as reason:
        sys.exit(f"no kernels were compiled: {reason}")
    print(*made.libraries, sep="\n")  # noqa: T201
    if made.faults:
        sys.exit("not compiled, " + "\nnot compiled, ".join(made.faults))
