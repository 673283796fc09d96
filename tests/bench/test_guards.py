"""One sweep in a folder at a time, and Ctrl-C when the files agree."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from nanoserve_bench.errors import PlanError
from nanoserve_bench.guards import exclusive, no_interrupt


def test_one_sweep_at_a_time_fills_a_folder(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text("{}")
    with (
        exclusive(path),
        pytest.raises(PlanError, match="another sweep is running"),
        exclusive(path),
    ):
        pass
    with exclusive(path):
        pass


def test_ctrl_c_waits_until_the_files_agree() -> None:
    written = []

    def write() -> None:
        with no_interrupt():
            os.kill(os.getpid(), signal.SIGINT)
            written.append("a block")

    with pytest.raises(KeyboardInterrupt):
        write()
    assert written == ["a block"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
