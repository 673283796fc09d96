"""Run as a process of its own by `devices.probe`: what torch finds on this machine, as JSON.

A process of its own, because the sweep itself never imports torch: it would hold memory and threads
while the workers are being timed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import torch

from nanoserve_bench.systems.torch_facts import device_name


def main() -> None:
    """Print one line: `{"devices": [[name, hardware, problem], ...], "facts": [...]}`."""
    print(json.dumps({"devices": list(_devices()), "facts": list(_facts())}))  # noqa: T201


def _devices() -> Iterator[tuple[str, str | None, str | None]]:
    yield "cpu", device_name("cpu"), None
    yield from _cuda()
    yield _one("mps", built=torch.backends.mps.is_built(), seen=torch.backends.mps.is_available())
    yield _one("xpu", built=torch.version.xpu is not None, seen=torch.xpu.is_available())


def _cuda() -> Iterator[tuple[str, str | None, str | None]]:
    if not torch.cuda.is_available():
        built = torch.version.cuda is not None or torch.version.hip is not None
        yield _one("cuda", built=built, seen=False)
        return
    for index in range(torch.cuda.device_count()):
        yield _one(f"cuda:{index}", built=True, seen=True)


def _one(device: str, *, built: bool, seen: bool) -> tuple[str, str | None, str | None]:
    if not seen:
        why = "torch finds no such device" if built else "this build of torch does not support it"
        return device, None, why
    try:
        matrix = torch.ones(64, 64, device=device)
        product = float((matrix @ matrix)[0, 0])
    except (RuntimeError, AssertionError) as error:
        return device, None, f"it cannot multiply: {str(error).splitlines()[0]}"
    if product != 64:
        return device, None, f"it multiplies wrongly: 64 ones times ones gave {product}"
    return device, device_name(device), None


def _facts() -> Iterator[tuple[str, str | int | None, str]]:
    blas = re.search(r"BLAS_INFO=(\w+)", torch.__config__.show())
    yield "torch_build", str(torch.__version__), ""
    yield "torch_blas", None if blas is None else blas[1], ""
    yield "torch_cpu_capability", torch.backends.cpu.get_cpu_capability(), ""
    onednn = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    yield "torch_onednn", "on" if onednn else "off", ""
    yield "torch_cuda", torch.version.cuda, ""
    if not torch.cuda.is_available():
        return
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        yield f"cuda_{index}_name", properties.name, ""
        yield f"cuda_{index}_memory", properties.total_memory, "bytes"
        yield f"cuda_{index}_capability", f"{properties.major}.{properties.minor}", ""
        yield f"cuda_{index}_multiprocessors", properties.multi_processor_count, ""


if __name__ == "__main__":
    main()
