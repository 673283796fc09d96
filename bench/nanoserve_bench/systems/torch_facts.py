"""What torch says about a device and the arithmetic it does there. Imports torch."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

import torch

from nanoserve_bench.environment import cpu_model


def synchronise(device: str) -> None:
    """Wait until everything that was started on a device is done. A CPU runs nothing ahead."""
    kind = device.partition(":")[0]
    if kind == "cuda":
        torch.cuda.synchronize(device)
    elif kind == "xpu":
        torch.xpu.synchronize(device)
    elif kind == "mps":
        torch.mps.synchronize()


def device_name(device: str) -> str:
    """The name of a device's hardware, such as `NVIDIA H200`."""
    kind = device.partition(":")[0]
    if kind == "cuda":
        return str(torch.cuda.get_device_name(device))
    if kind == "xpu":
        return str(torch.xpu.get_device_name(device))
    return "Apple GPU" if kind == "mps" else cpu_model()


def matmul_precision(device: str, dtype: str) -> str:
    """What a product of this dtype really computes in: `ieee`, or a shorter type such as `tf32`.

    Only float32 can be shortened; a setting of `none` means that torch leaves it at IEEE.
    """
    kind = device.partition(":")[0]
    if dtype != "float32" or kind == "mps":
        return "ieee"
    backend = torch.backends.cuda if kind == "cuda" else torch.backends.mkldnn
    setting = str(backend.matmul.fp32_precision)
    return "ieee" if setting == "none" else setting


def libraries(*distributions: str) -> tuple[tuple[str, str], ...]:
    """Name and version of each distribution that is installed."""
    found = []
    for name in distributions:
        try:
            found.append((name, version(name)))
        except PackageNotFoundError:
            continue
    return tuple(found)
