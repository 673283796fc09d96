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
        flags: The compiler's options; exactly what torch checks before it says that a processor
            has this capability.
    """

    name: str
    flags: tuple[str, ...]

    @property
    def library(self) -> str:
        """File name of the library."""
        return f"nanoserve_{self.name}.so"


_AVX2 = ("-mavx2", "-mfma")
_AVX512 = (*_AVX2, "-mavx512f", "-mavx512vl", "-mavx512bw", "-mavx512dq")
INSTRUCTION_SETS = (
    InstructionSet(name="avx512", flags=(*_AVX512, "-DNANOSERVE_LANES=16")),
    InstructionSet(name="avx2", flags=(*_AVX2, "-DNANOSERVE_LANES=8")),
)


class CannotCompile(Exception):
    """Why there are no compiled kernels here."""


def sources_digest() -> str:
    """Names one state of sources and flags; every library carries the one it was made from."""
    digest = hashlib.sha256(repr((_FLAGS, INSTRUCTION_SETS)).encode())
    for path in sorted([*FOLDER.glob("*.cpp"), *FOLDER.glob("*.h")]):
        digest.update(f"\0{path.name}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def compile_kernels(into: Path) -> list[Path]:
    """Compile a library for each instruction set.

    Args:
        into: Folder that gets the libraries.

    Returns:
        Their paths.

    Raises:
        CannotCompile: When this is no machine to compile for, or there is no compiler that can.
    """
    machine = platform.machine().lower()
    if sys.platform != "linux" or machine not in ("x86_64", "amd64"):
        raise CannotCompile(f"the kernels are for Linux on x86-64, not {sys.platform} on {machine}")
    compiler = _find_compiler()
    with tempfile.TemporaryDirectory() as scratch:
        built = [_compile(compiler, target, Path(scratch)) for target in INSTRUCTION_SETS]
        return [_move_into(into, library) for library in built]


def _move_into(folder: Path, library: Path) -> Path:
    """Put a library in its place at once: a running process may have the one before it mapped."""
    arriving = Path(shutil.copy2(library, folder / f".{library.name}"))
    return arriving.replace(folder / library.name)


def _find_compiler() -> str:
    asked = os.environ.get("CXX")
    for name in [asked] if asked else ["g++", "c++", "clang++"]:
        if found := shutil.which(name):
            return found
    raise CannotCompile(f"there is no C++ compiler ({asked or 'g++, c++, clang++'})")


def _compile(compiler: str, target: InstructionSet, scratch: Path) -> Path:
    digest = f'-DNANOSERVE_SOURCES="{sources_digest()}"'
    objects = []
    for source in sorted(FOLDER.glob("*.cpp")):
        objects.append(scratch / f"{target.name}-{source.stem}.o")
        _run([compiler, *_FLAGS, *target.flags, digest, "-c", str(source), "-o", str(objects[-1])])
    library = scratch / target.library
    _run([compiler, "-shared", *map(str, objects), "-o", str(library)])
    return library


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise CannotCompile(f"{' '.join(command)} failed:\n{done.stderr.strip()}")


if __name__ == "__main__":
    try:
        for made in compile_kernels(FOLDER):
            print(made)  # noqa: T201
    except CannotCompile as reason:
        sys.exit(f"no kernels were compiled: {reason}")
