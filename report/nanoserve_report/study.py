"""From a root of result folders to a judged study: every folder judged again, from its raw rows.

Nothing is believed because a summary says so, and nothing is left out: a folder that cannot be
read, is half-written, or is refused stands in the study with its findings and without numbers.

A *section* is all sweeps of one setting, oldest first: what the site shows in one place, and what
the question "does it reproduce?" is asked of.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from nanoserve_bench.errors import BenchError
from nanoserve_bench.plan import SkippedDevice
from nanoserve_bench.schema import RequestRow
from nanoserve_bench.soundness import Finding, Verdict, judge_path
from nanoserve_report import order, own, retractions
from nanoserve_report.calibrations import AnyCalibration, RefusedCalibration, judged
from nanoserve_report.own import Own
from nanoserve_report.setting import Setting, slug
from nanoserve_report.sweeps import Folder, Sweep

CALIBRATION = "calibration"
"""Name of the folder beside the results root that holds the calibrations."""


class StudyError(BenchError):
    """A results root that cannot be judged at all."""


@dataclass(frozen=True, kw_only=True)
class Section:
    """All sweeps of one setting, oldest first."""

    setting: Setting
    sweeps: tuple[Sweep, ...]

    @property
    def lead(self) -> Sweep:
        """The sweep to show: the newest by its plan's time, whatever it says.

        Nothing that was measured has a part in the choice, holes included: a rule that looked at
        an outcome would let a sweep be repeated until it pleases.
        """
        return self.sweeps[-1]

    @property
    def slug(self) -> str:
        """Names the section in anchors and file names."""
        return self.setting.slug


@dataclass(frozen=True, kw_only=True)
class DevicePage:
    """A device and dtype with what was measured on it by the newest code."""

    device: str
    dtype: str
    sections: tuple[Section, ...]
    replaced: Mapping[Setting, tuple[Section, ...]]
    """By the setting of a section, those of earlier code that it replaces (see `order.current`)."""

    @property
    def slug(self) -> str:
        """Names the page."""
        return slug(f"{self.device}-{self.dtype}")


@dataclass(frozen=True, kw_only=True)
class Study:
    """Every folder of a results root, judged; oldest first, unreadable ones before all.

    `calibrations` are those that stand in the folder `calibration` beside the root, `own` the
    records of the engine itself that stand there.
    """

    folders: tuple[Folder, ...]
    calibrations: tuple[AnyCalibration, ...] = ()
    own: Own = field(default_factory=Own)

    @property
    def ok(self) -> bool:
        """Whether there is something to publish and nothing refused that was not acknowledged."""
        return (
            bool(self.folders)
            and not any(folder.refusing for folder in self.folders)
            and not self.refused_calibrations
        )

    @property
    def bare(self) -> bool:
        """Whether there is no sound cell in it anywhere."""
        return not any(sweep.sound_cells for folder in self.folders for sweep in folder.sweeps)

    @property
    def refused_calibrations(self) -> tuple[RefusedCalibration, ...]:
        """The calibrations that no longer stand for what they were made of."""
        return tuple(item for item in self.calibrations if isinstance(item, RefusedCalibration))

    @property
    def findings(self) -> tuple[tuple[Folder, Finding], ...]:
        """Every finding with its folder."""
        return tuple((folder, f) for folder in self.folders for f in folder.verdict.findings)

    @cached_property
    def sections(self) -> tuple[Section, ...]:
        """One section per setting, by device and dtype, and there by the rule of `order`.

        Noise that was recorded for its own sake stands among the A/A pairs and on its run's
        page, and has no section where its device and dtype have others.
        """
        sweeps = [sweep for folder in self.folders for sweep in folder.sweeps]
        shown = {sweep.setting.place[:2] for sweep in sweeps if not sweep.only_noise}
        grouped: dict[Setting, list[Sweep]] = defaultdict(list)
        for sweep in sweeps:
            if not sweep.only_noise or sweep.setting.place[:2] not in shown:
                grouped[sweep.setting].append(sweep)
        return order.ordered(
            Section(setting=key, sweeps=tuple(sweeps)) for key, sweeps in grouped.items()
        )

    @cached_property
    def devices(self) -> tuple[DevicePage, ...]:
        """One page per device and dtype that a plan has cells for; the CPU first."""
        grouped: dict[tuple[str, str], list[Section]] = defaultdict(list)
        for section in self.sections:
            grouped[section.setting.device, section.setting.dtype].append(section)
        keys = sorted(grouped, key=lambda key: (key[0] != "cpu", key))
        pages = []
        for device, dtype in keys:
            replaced = order.current(grouped[device, dtype])
            shown = tuple(
                section for section in grouped[device, dtype] if section.setting in replaced
            )
            pages.append(DevicePage(device=device, dtype=dtype, sections=shown, replaced=replaced))
        return tuple(pages)

    @cached_property
    def skipped(self) -> tuple[SkippedDevice, ...]:
        """Devices that were looked for and never measured, with the newest reason.

        A kind that was not found (`cuda`) is settled by any device of it; one device (`cuda:1`)
        only by itself.
        """
        measured = {device.device for device in self.devices}
        measured |= {device.partition(":")[0] for device in measured}
        reasons = {
            item.device: item
            for folder in self.folders
            if folder.plan is not None
            for item in folder.plan.skipped_devices
            if item.device not in measured
        }
        return tuple(reasons[name] for name in sorted(reasons))

    @property
    def newest(self) -> str:
        """The newest plan's time (ISO), the only clock of the site; empty without a plan."""
        return max((folder.created_at for folder in self.folders), default="")


def load(root: Path) -> Study:
    """Judge every folder of `root`.

    Raises:
        StudyError: `root` is not a folder, or holds one run twice.
        RetractionError: Its list of retractions says something that is not so.
    """
    if not root.is_dir():
        raise StudyError(
            f"{root} is not a folder: name the folder that holds the result folders, such as "
            "bench/results"
        )
    entries: Iterable[Path] = (path for path in root.iterdir() if not path.name.startswith("."))
    verdicts = {
        path.name: judge_path(path)
        for path in sorted(entries)
        if path.is_dir() or path.is_symlink()
    }
    _refuse_copies(verdicts)
    retracted = retractions.read(
        root,
        {name: frozenset(f.rule for f in v.findings) for name, v in verdicts.items()},
    )
    folders = [
        Folder(name=name, verdict=verdict, retraction=retracted.get(name))
        for name, verdict in verdicts.items()
    ]
    folders.sort(key=lambda folder: (folder.created_at, folder.name))
    return Study(
        folders=tuple(folders),
        calibrations=judged(
            root.absolute().parent / CALIBRATION, {v.run_id: v for v in verdicts.values()}
        ),
        own=own.read(root.absolute().parent),
    )


def _refuse_copies(verdicts: Mapping[str, Verdict]) -> None:
    """One measurement under two names would be its own witness that it reproduces."""
    seen: dict[tuple[str, str], str] = {}
    for name, verdict in verdicts.items():
        if verdict.results is None:
            continue
        digests = {file.name: file.sha256 for file in verdict.results.manifest.files}
        for what, value in (
            ("run id", verdict.results.plan.run_id),
            ("rows of requests", digests.get(RequestRow.FILE, name)),
        ):
            other = seen.setdefault((what, value), name)
            if other != name:
                raise StudyError(
                    f"{name} and {other} have the same {what} ({value}): one is a copy, and a run "
                    "counts once. Remove one of the two folders."
                )
