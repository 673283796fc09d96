"""What every command that measures has to know before it plans: code, machine, model, threads."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from nanoserve_bench import devices, environment, revision
from nanoserve_bench.devices import Probe
from nanoserve_bench.errors import PlanError
from nanoserve_bench.models import ModelFolder, materialise
from nanoserve_bench.plan import Fact
from nanoserve_bench.revision import Revision


@dataclass(frozen=True, kw_only=True, slots=True)
class Surroundings:
    """What was found.

    Attributes:
        probe: The devices that torch knows of.
        code: What measures.
        model: What is measured, on disk.
        machine: Fingerprint of the machine.
        threads: Compute threads of every worker.
        facts: Machine, environment and accelerators, as the files hold them.
    """

    probe: Probe
    code: Revision
    model: ModelFolder
    machine: str
    threads: int
    facts: tuple[Fact, ...]


def look_around(model: str, threads: int | None) -> Surroundings:
    """Probe the devices, and materialise the model.

    Args:
        model: As `models.materialise` takes it.
        threads: None for as many as there are physical cores to use.

    Raises:
        PlanError: There is no such model, or it cannot be brought into the common form.
    """
    probe = devices.probe()
    threads = threads or environment.usable_cores()
    return Surroundings(
        probe=probe,
        code=revision.current(),
        model=materialise(model),
        machine=environment.fingerprint(probe.accelerators),
        threads=threads,
        facts=(*environment.facts(threads=threads), *probe.facts),
    )


def require_writable(out: Path) -> None:
    """See that a file can be put into the folder for results, or into what it will be made in.

    It is called before anything is measured: minutes of work must not end in a lost file. Nothing
    is left behind, for what comes next may end the command.

    Raises:
        PlanError: It cannot.
    """
    try:
        there = next(folder for folder in (out, *out.absolute().parents) if folder.exists())
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        raise PlanError(
            f"nothing can be written into {out} ({error.strerror}): choose another --out"
        ) from error
