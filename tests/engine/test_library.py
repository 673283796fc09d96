"""Which path runs: the compiled kernels where they can, torch elsewhere, and the log says why."""

from __future__ import annotations

import ctypes
import logging
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from nanoserve import LLM, SamplingParams, backend
from nanoserve.kernels import library
from nanoserve.kernels.compile import INSTRUCTION_SETS
from nanoserve.kernels.library import KernelLibrary, KernelsUnavailable, load_kernels


def test_the_engine_says_which_path_it_runs(on_kernels: KernelLibrary):
    about = LLM("synthetic:tiny-llama").engine.describe()
    name = on_kernels.instruction_set.name
    assert about.kernel_path == f"cpp:{name} panels"
    assert about.attention_path == f"cpp:{name} through block tables"


@pytest.mark.usefixtures("on_kernels")
def test_torch_runs_where_it_is_asked_for(caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.INFO, logger="nanoserve"):
        about = LLM("synthetic:tiny-llama", kernel="torch").engine.describe()
    assert about.kernel_path.startswith("torch:")
    assert "compiled kernels are not used: kernel='torch' asks for torch" in caplog.text


@pytest.mark.usefixtures("on_kernels")
def test_other_dtypes_run_on_torch():
    about = LLM("synthetic:tiny-llama", dtype="bfloat16").engine.describe()
    assert about.kernel_path.startswith("torch:")


def test_heads_that_do_not_fill_registers_run_on_torch(
    on_kernels: KernelLibrary,
    make_reference: Any,
    run_requests: Any,
    caplog: pytest.LogCaptureFixture,
):
    reference = make_reference(head_dim=12)
    with caplog.at_level(logging.WARNING, logger="nanoserve"):
        run = run_requests(reference.folder, [[5, 6, 7, 8, 9]], SamplingParams(max_tokens=3))
    assert run.runner.kernel_path.startswith("torch:")
    assert f"head_dim must be a multiple of {on_kernels.lanes}, and is 12" in caplog.text
    assert run.worst_logit(reference) < 1e-4


def test_without_a_library_torch_runs_and_the_log_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(
        backend, "load_kernels", lambda: KernelLibrary(INSTRUCTION_SETS[0], tmp_path)
    )
    with caplog.at_level(logging.WARNING, logger="nanoserve"):
        about = LLM("synthetic:tiny-llama").engine.describe()
    assert about.kernel_path.startswith("torch:")
    assert "nanoserve_avx512.so has not been compiled; pip install the engine" in caplog.text


def test_a_library_of_other_sources_is_refused(
    kernels: KernelLibrary, kernel_libraries: Any, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(library, "sources_digest", lambda: "another")
    with pytest.raises(KernelsUnavailable, match="was compiled from other sources"):
        KernelLibrary(kernels.instruction_set, kernels.folder)


def test_a_file_that_is_no_library_is_refused(tmp_path: Path):
    (tmp_path / INSTRUCTION_SETS[1].library).write_bytes(b"\x7fELF, or not")
    with pytest.raises(KernelsUnavailable, match="cannot be loaded"):
        KernelLibrary(INSTRUCTION_SETS[1], tmp_path)


def test_a_processor_without_the_instructions_has_no_kernels(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "DEFAULT")
    with pytest.raises(KernelsUnavailable, match=r"need avx512 or avx2, and .* is default"):
        load_kernels.__wrapped__()


def test_a_narrower_library_runs_where_there_is_no_wider_one(
    kernel_libraries: dict[str, KernelLibrary],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
):
    narrow = INSTRUCTION_SETS[1]
    if narrow.name not in kernel_libraries:
        pytest.skip(f"this processor has no {narrow.name}")
    shutil.copy2(kernel_libraries[narrow.name].folder / narrow.library, tmp_path)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    monkeypatch.setattr(library, "KernelLibrary", lambda each: KernelLibrary(each, tmp_path))
    with caplog.at_level(logging.WARNING, logger="nanoserve"):
        assert load_kernels.__wrapped__().instruction_set == narrow
    assert "kernels for avx2 run, no wider ones: nanoserve_avx512.so has not been" in caplog.text
    (tmp_path / narrow.library).unlink()
    with pytest.raises(
        KernelsUnavailable, match=r"avx512\.so has not been .*; nanoserve_avx2\.so has not been"
    ):
        load_kernels.__wrapped__()


def test_another_openmp_runtime_than_torchs_is_refused(
    kernels: KernelLibrary, monkeypatch: pytest.MonkeyPatch
):
    """Two pools of threads in one process would wait for each other's processors."""
    other = ctypes.CDLL(None)
    other.omp_get_max_threads = other.malloc
    monkeypatch.setattr(library, "_openmp_of_torch", lambda: other)
    with pytest.raises(KernelsUnavailable, match="on another OpenMP runtime than torch"):
        KernelLibrary(kernels.instruction_set, kernels.folder)
