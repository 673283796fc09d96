"""A benchmark that refuses unsound comparisons.

What is exported here are the names of a measurement: records of requests, runs of systems, their
comparison, and the runners. A name is imported when it is first used, so that importing the
package imports neither torch nor transformers, and a worker starts quickly.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nanoserve_bench.comparison import Comparison, first_divergence
    from nanoserve_bench.errors import RunUnsound, UnfairComparison
    from nanoserve_bench.records import RunRecord, SystemRun
    from nanoserve_bench.runners import run_concurrent, run_serial
    from nanoserve_bench.soundness.direct import (
        check_concurrent,
        check_offered_load,
        check_serial,
        compare,
    )
    from nanoserve_bench.systems.hf_model import hf_generate_one

__all__ = [
    "Comparison",
    "RunRecord",
    "RunUnsound",
    "SystemRun",
    "UnfairComparison",
    "check_concurrent",
    "check_offered_load",
    "check_serial",
    "compare",
    "first_divergence",
    "hf_generate_one",
    "run_concurrent",
    "run_serial",
]

_HOMES = {
    "Comparison": "comparison",
    "RunRecord": "records",
    "RunUnsound": "errors",
    "SystemRun": "records",
    "UnfairComparison": "errors",
    "check_concurrent": "soundness.direct",
    "check_offered_load": "soundness.direct",
    "check_serial": "soundness.direct",
    "compare": "soundness.direct",
    "first_divergence": "comparison",
    "hf_generate_one": "systems.hf_model",
    "run_concurrent": "runners",
    "run_serial": "runners",
}


def __getattr__(name: str) -> object:
    """Import an exported name on its first use."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
