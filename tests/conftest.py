"""What every test relies on, wherever the suite is started."""

from __future__ import annotations

import os
import signal

import torch

if not torch.cuda.is_available():
    # Triton reads it when a kernel is defined, its own ones as well: before any test imports it,
    # and transformers does.
    os.environ["TRITON_INTERPRET"] = "1"


def pytest_configure() -> None:
    """Let Ctrl-C be heard by the tests that press it.

    A shell starts what it puts into the background with SIGINT ignored, and every child inherits
    that; the programs under test would rightly ignore it, too.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
