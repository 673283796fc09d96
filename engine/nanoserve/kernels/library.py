"""Load the compiled kernels, or say why not.

``Matrix``, ``Layer``, ``Model`` and ``Step`` mirror the structures of ``step.h`` field by field.
"""

import ctypes
import logging
import re
from functools import cache
from pathlib import Path
from typing import Any

import torch

from nanoserve.kernels.compile import FOLDER, INSTRUCTION_SETS, InstructionSet, sources_digest

_log = logging.getLogger(__name__)

_OPENMP = re.compile(r"lib(?:gomp|iomp5|omp)\b[^/]*\.so[^/]*")
_BUILD = "pip install the engine where there is a C++ compiler, or run nanoserve/kernels/compile.py"


class KernelsUnavailable(Exception):
    """Why the compiled kernels cannot run here."""


class Matrix(ctypes.Structure):
    """A weight in panels."""

    _fields_ = (
        ("panels", ctypes.c_void_p),
        ("outputs", ctypes.c_int64),
        ("inputs", ctypes.c_int64),
    )


class Layer(ctypes.Structure):
    """The weights of one layer."""

    _fields_ = (
        ("window", ctypes.c_int64),
        ("input_norm", ctypes.c_void_p),
        ("qkv", Matrix),
        ("qkv_bias", ctypes.c_void_p),
        ("query_norm", ctypes.c_void_p),
        ("key_norm", ctypes.c_void_p),
        ("output", Matrix),
        ("post_attention_norm", ctypes.c_void_p),
        ("gate", Matrix),
        ("up", Matrix),
        ("down", Matrix),
    )


class Model(ctypes.Structure):
    """Shape, weights, rotary tables and KV pool."""

    _fields_ = (
        ("num_layers", ctypes.c_int64),
        ("hidden", ctypes.c_int64),
        ("intermediate", ctypes.c_int64),
        ("vocab", ctypes.c_int64),
        ("num_heads", ctypes.c_int64),
        ("num_kv_heads", ctypes.c_int64),
        ("head_dim", ctypes.c_int64),
        ("norm_eps", ctypes.c_float),
        ("layers", ctypes.POINTER(Layer)),
        ("embedding", Matrix),
        ("head", Matrix),
        ("norm", ctypes.c_void_p),
        ("cosines", ctypes.c_void_p),
        ("sines", ctypes.c_void_p),
        ("positions", ctypes.c_int64),
        ("keys", ctypes.c_void_p),
        ("values", ctypes.c_void_p),
        ("num_blocks", ctypes.c_int64),
        ("block_size", ctypes.c_int64),
    )


class Step(ctypes.Structure):
    """One step's tokens, and where its results go."""

    _fields_ = (
        ("tokens", ctypes.c_int64),
        ("token_ids", ctypes.c_void_p),
        ("positions", ctypes.c_void_p),
        ("sequences", ctypes.c_void_p),
        ("num_sequences", ctypes.c_int64),
        ("tables", ctypes.c_void_p),
        ("table_stride", ctypes.c_int64),
        ("num_wanted", ctypes.c_int64),
        ("wanted", ctypes.c_void_p),
        ("logits", ctypes.c_void_p),
        ("logits_stride", ctypes.c_int64),
        ("workspace", ctypes.c_void_p),
        ("num_threads", ctypes.c_int32),
    )


class KernelLibrary:
    """The functions of one loaded library.

    Args:
        instruction_set: Which one.
        folder: Where the libraries are.

    Attributes:
        instruction_set: What it was compiled for.
        folder: Where it is.
        lanes: Floats in one of its registers.
        panel_width: Outputs in one of its panels.

    Raises:
        KernelsUnavailable: When the library is missing, stale, or cannot share torch's threads.
    """

    def __init__(self, instruction_set: InstructionSet, folder: Path = FOLDER) -> None:
        path = folder / instruction_set.library
        if not path.is_file():
            raise KernelsUnavailable(f"{path.name} has not been compiled; {_BUILD}")
        openmp = _openmp_of_torch()
        try:
            library = ctypes.CDLL(str(path))
        except OSError as error:
            raise KernelsUnavailable(f"{path.name} cannot be loaded: {error}") from error
        library.nanoserve_sources.restype = ctypes.c_char_p
        if library.nanoserve_sources().decode() != sources_digest():
            raise KernelsUnavailable(f"{path.name} was compiled from other sources; {_BUILD}")
        library.nanoserve_openmp.restype = ctypes.c_void_p
        if library.nanoserve_openmp() != _address(openmp.omp_get_max_threads):
            raise KernelsUnavailable(f"{path.name} runs on another OpenMP runtime than torch")

        self.instruction_set = instruction_set
        self.folder = folder
        self.lanes: int = library.nanoserve_lanes()
        library.nanoserve_panel_width.restype = ctypes.c_int64
        self.panel_width: int = library.nanoserve_panel_width()
        self._workspace = library.nanoserve_workspace
        self._workspace.argtypes = (ctypes.POINTER(Model), ctypes.c_int64, ctypes.c_int32)
        self._workspace.restype = ctypes.c_int64
        self._step = library.nanoserve_step
        self._step.argtypes = (ctypes.POINTER(Model), ctypes.POINTER(Step))
        self._step.restype = ctypes.c_int32
        self._linear = library.nanoserve_linear
        self._linear.argtypes = (
            *(ctypes.POINTER(Matrix), ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p),
            *(ctypes.c_int64, ctypes.c_int64, ctypes.c_int32, ctypes.c_int32),
        )
        self._linear.restype = None
        self._argmax = library.nanoserve_argmax
        self._argmax.argtypes = (
            *(ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64),
            *(ctypes.c_void_p, ctypes.c_int32),
        )
        self._argmax.restype = None

    def padded(self, width: int) -> int:
        """``width`` features, rounded up to whole panels."""
        return -(-width // self.panel_width) * self.panel_width

    def workspace(self, model: Model, *, tokens: int, threads: int) -> int:
        """Floats of workspace for a step of up to ``tokens`` tokens."""
        size: int = self._workspace(model, tokens, threads)
        return size

    def step(self, model: Model, step: Step) -> int:
        """Run a step; 0, or the code of what is wrong with it (``step.h``)."""
        fault: int = self._step(model, step)
        return fault

    def linear(self, weight: Matrix, x: torch.Tensor, y: torch.Tensor, *, epilogue: int) -> None:
        """One linear by itself, into ``y``, ``[rows, at least padded(outputs)]``; see ``step.h``.

        Both are float32 on the CPU, and their rows may be any distance apart.
        """
        self._linear(
            weight,
            *(x.data_ptr(), x.stride(0), y.data_ptr(), y.stride(0), len(x)),
            epilogue,
            torch.get_num_threads(),
        )

    def argmax(self, rows: torch.Tensor) -> list[int | None]:
        """Where each row's highest value first stands; None if it is infinite, or a NaN there.

        ``rows`` is ``[rows, width]``, float32 on the CPU, and the rows may be any distance apart.
        """
        count, width = rows.shape
        # Not a tensor: after a step, in which the weights have gone through every cache, each of
        # torch's operations takes long to begin.
        indices = (ctypes.c_int64 * count)()
        self._argmax(
            *(rows.data_ptr(), rows.stride(0), count, width),
            *(indices, torch.get_num_threads()),
        )
        return [index if index >= 0 else None for index in indices]


@cache
def load_kernels() -> KernelLibrary:
    """The kernels for the widest instruction set of this processor that a library is there for.

    Raises:
        KernelsUnavailable: When there are none; says of every instruction set why.
    """
    capability = torch.backends.cpu.get_cpu_capability().lower()
    names = [instruction_set.name for instruction_set in INSTRUCTION_SETS]
    if capability not in names:
        raise KernelsUnavailable(
            f"they need {' or '.join(names)}, and this processor's capability is {capability}"
        )
    faults: list[str] = []
    # The sets are listed widest first, and a processor that has one has those behind it.
    for instruction_set in INSTRUCTION_SETS[names.index(capability) :]:
        try:
            library = KernelLibrary(instruction_set)
        except KernelsUnavailable as reason:
            faults.append(str(reason))
            continue
        if faults:
            _log.warning(
                "the kernels for %s run, no wider ones: %s", instruction_set.name, "; ".join(faults)
            )
        return library
    raise KernelsUnavailable("; ".join(faults))


def _openmp_of_torch() -> ctypes.CDLL:
    """The OpenMP runtime that torch has loaded, its symbols made visible to our library.

    Raises:
        KernelsUnavailable: When there is none, or more than one and none of them is torch's own.
    """
    maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    mapped = {Path(line.split(maxsplit=5)[5]) for line in maps.splitlines() if "/" in line}
    runtimes = sorted(path for path in mapped if _OPENMP.fullmatch(path.name))
    home = Path(torch.__file__).resolve().parent
    own = [path for path in runtimes if path.is_relative_to(home)]
    own += [path for path in runtimes if path.is_relative_to(home.parent / "torch.libs")]
    candidates = own or runtimes
    if len(candidates) != 1:
        found = ", ".join(map(str, candidates)) or "none"
        raise KernelsUnavailable(f"torch's OpenMP runtime is not known; loaded: {found}")
    return ctypes.CDLL(str(candidates[0]), mode=ctypes.RTLD_GLOBAL)


def _address(function: Any) -> int | None:
    return ctypes.cast(function, ctypes.c_void_p).value
