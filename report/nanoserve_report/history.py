"""What changed from version to version: the same thing measured again after the code had changed.

A *track* is everything that has to stay as it was before a change can be the engine's: device,
dtype, model, workload, machine, threads, the headline baseline's version and every library's. What
may differ along a track is the version of the other systems and the sources that ran. Folders of
two machines are on two tracks, and nothing joins them.

Two versions were not measured in the same blocks, so only what was paired with the baseline inside
its own blocks is held against the version before: the speedup, and what a doubling is worth. The
change is the ratio of the two geometric means, its interval is Welch's t on the logs, and it has to
leave the noise behind: the A/A envelopes of both sweeps, and how far the sweeps of one version
differ among themselves. Throughputs are shown beside it and not judged. A version without a sound
figure is a hole, and the one after it has nothing to be held against.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from nanoserve_bench.comparison import Comparison
from nanoserve_bench.soundness import Finding
from nanoserve_bench.statistics import (
    Estimate,
    Outcome,
    compare_verdict,
    estimate,
    ratio_of_independent,
)
from nanoserve_report.setting import Setting
from nanoserve_report.study import Section, Study
from nanoserve_report.sweeps import Folder, Sweep

SPEEDUP, DOUBLING = "speedup", "doubling"
NOT_MEASURED = "not measured in this version"


@dataclass(frozen=True, kw_only=True, slots=True)
class Quantity:
    """What is followed: a speedup over the headline baseline, or a doubling of the slots."""

    kind: str
    arm: str
    slots: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Sound:
    """A figure of one version, block by block, as the sweep that is shown (`run`) states it.

    `reach` is how far, as a factor of at least 1, equal things were seen to differ around it.
    """

    value: Estimate
    blocks: tuple[Fraction, ...]
    verdict: str
    reach: float
    throughput: Estimate | None
    run: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Missing:
    """A figure that a version does not have, and why."""

    reason: str
    folder: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """A version's figure over the one before it, and what that may be called."""

    ratio: Estimate
    verdict: Outcome


@dataclass(frozen=True, kw_only=True)
class Version:
    """One state of the code on a track: its sections, and what was taken back.

    What other arms ran beside it makes no version: sections of the same sources are one, unless
    they name another version of something. Of two that state one quantity the first is shown.
    """

    setting: Setting
    sections: tuple[Section, ...]
    retracted: tuple[Sweep, ...]

    @property
    def sweeps(self) -> tuple[Sweep, ...]:
        """All of it, shown or not; never empty."""
        shown = (sweep for section in self.sections for sweep in section.sweeps)
        return (*shown, *self.retracted)

    @property
    def since(self) -> str:
        """When its first plan was written."""
        return min(sweep.plan.created_at for sweep in self.sweeps)

    @property
    def label(self) -> str:
        """The revision, or the digest of the sources, in seven characters."""
        plan = self.sweeps[0].plan
        name = (plan.revision or self.setting.code)[:7] or "unknown"
        return f"{name}, changed" if plan.dirty else name

    @cached_property
    def figures(self) -> Mapping[Quantity, Sound]:
        """The sound figures of the sweeps that are shown."""
        found: dict[Quantity, Sound] = {}
        for section in reversed(self.sections):
            found |= _figures(section)
        return found

    def get(self, quantity: Quantity) -> Sound | Missing:
        """Its figure, or why it has none."""
        found = self.figures.get(quantity)
        if found is not None:
            return found
        if not self.sections:
            folder = self.retracted[-1].folder
            rule = "" if folder.retraction is None else folder.retraction.rule
            return Missing(reason=f"retracted by {rule}", folder=folder.name)
        for section in self.sections:
            codes = _refusals(section.lead, quantity)
            if codes is not None:
                return Missing(reason=f"refused: {', '.join(codes)}", folder=section.lead.name)
        return Missing(reason=NOT_MEASURED)


@dataclass(frozen=True, kw_only=True)
class Track:
    """The versions that may be set side by side, oldest first."""

    setting: Setting
    kept: tuple[str, ...]
    versions: tuple[Version, ...]

    @cached_property
    def quantities(self) -> tuple[Quantity, ...]:
        """Everything that at least one version states: speedups first, then doublings."""
        found = {quantity for version in self.versions for quantity in version.figures}
        return tuple(sorted(found, key=lambda q: (q.kind != SPEEDUP, q.arm, q.slots)))

    def change(self, quantity: Quantity, index: int) -> Change | None:
        """What became of a figure since the version before; None where one side has none."""
        if index == 0:
            return None
        below, above = (self.versions[at].get(quantity) for at in (index - 1, index))
        if not isinstance(below, Sound) or not isinstance(above, Sound):
            return None
        ratio = ratio_of_independent(above.blocks, below.blocks)
        reach = max(above.reach, below.reach)
        return Change(ratio=ratio, verdict=compare_verdict(ratio, (1 / reach, reach)))


def tracks(study: Study) -> tuple[Track, ...]:
    """Every track of a study; the newest first, and those with most versions before it."""
    sections = {section.setting: section for section in study.sections}
    retracted: dict[Setting, list[Sweep]] = defaultdict(list)
    for folder in study.folders:
        for sweep in folder.measured:
            if folder.retraction is not None:
                retracted[sweep.setting].append(sweep)
    grouped: dict[tuple[object, ...], list[Version]] = defaultdict(list)
    for setting in dict.fromkeys((*sections, *retracted)):
        version = Version(
            setting=setting,
            sections=(sections[setting],) if setting in sections else (),
            retracted=tuple(retracted.get(setting, ())),
        )
        _join(grouped[_key(version)], version)
    found = [
        Track(
            setting=versions[0].setting,
            kept=kept_versions(versions[0]),
            versions=tuple(sorted(versions, key=lambda version: version.since)),
        )
        for versions in grouped.values()
    ]
    found.sort(key=lambda track: track.versions[-1].since, reverse=True)
    return tuple(sorted(found, key=lambda track: -len(track.versions)))


def _join(versions: list[Version], new: Version) -> None:
    """Add a version to those of its track, as part of one of them where it is the same."""
    for index, other in enumerate(versions):
        if new.setting.code == other.setting.code and _agree(new, other):
            versions[index] = Version(
                setting=other.setting,
                sections=(*other.sections, *new.sections),
                retracted=(*other.retracted, *new.retracted),
            )
            return
    versions.append(new)


def _agree(one: Version, other: Version) -> bool:
    """Whether nothing is named in both with two versions."""
    named = [
        {version for sweep in side.sweeps for version in sweep.setting.versions}
        for side in (one, other)
    ]
    names = [{version.partition(" ")[0] for version in side} for side in named]
    return not {v.partition(" ")[0] for v in named[0] ^ named[1]} & names[0] & names[1]


def kept_versions(version: Version) -> tuple[str, ...]:
    """The versions that have to stay: the headline baseline's and every library's."""
    plan = version.sweeps[0].plan
    baseline = {arm.system for arm in plan.arms if arm.name == plan.headline_baseline}
    followed = {arm.system for arm in plan.arms} - baseline
    return tuple(v for v in version.setting.versions if v.partition(" ")[0] not in followed)


def _key(version: Version) -> tuple[object, ...]:
    setting = version.setting
    baseline = version.sweeps[0].plan.headline_baseline
    return (*setting.place, setting.threads, baseline, kept_versions(version))


def _figures(section: Section) -> Mapping[Quantity, Sound]:
    lead = section.lead
    throughputs = {cell.cell.id: cell.throughput for cell in lead.sound_cells}
    found: dict[Quantity, Sound] = {}
    envelopes = [pair.envelope[1] for pair in (*lead.sound_rivals, *lead.sound_selves)]
    points = [_points(sweep) for sweep in section.sweeps]
    for quantity, pairs, verdict, candidate in _stated(lead):
        among = [mine[quantity] for mine in points if quantity in mine]
        blocks = _blocks(pairs)
        found[quantity] = Sound(
            value=estimate(blocks),
            blocks=blocks,
            verdict=verdict,
            reach=max(1.0, *envelopes, max(among) / min(among)),
            throughput=throughputs.get(candidate),
            run=lead.name,
        )
    return found


Stated = tuple[Quantity, Mapping[int, Comparison], str, str]


def _stated(sweep: Sweep) -> Iterable[Stated]:
    """What a sweep states that can be followed: (quantity, blocks, verdict, candidate's cell)."""
    for pair in sweep.sound_rivals:
        if pair.baseline.arm == sweep.plan.headline_baseline:
            quantity = Quantity(kind=SPEEDUP, arm=pair.candidate.arm, slots=pair.candidate.slots)
            yield quantity, pair.pairs, pair.verdict, pair.candidate.id
    for item in sweep.sound_marginals:
        quantity = Quantity(kind=DOUBLING, arm=item.arm, slots=item.slots)
        yield quantity, item.pairs, item.verdict, item.upper.id


def _points(sweep: Sweep) -> Mapping[Quantity, float]:
    return {quantity: estimate(_blocks(pairs)).point for quantity, pairs, _, _ in _stated(sweep)}


def _blocks(pairs: Mapping[int, Comparison]) -> tuple[Fraction, ...]:
    return tuple(pairs[block].speedup for block in sorted(pairs))


def _refusals(sweep: Sweep, quantity: Quantity) -> Sequence[str] | None:
    """The rules that refuse a quantity in a sweep; None where its plan does not have it."""
    if quantity.kind == SPEEDUP:
        planned = [
            pair
            for pair in sweep.rivals
            if (pair.candidate.arm, pair.candidate.slots) == (quantity.arm, quantity.slots)
        ]
        findings = [_findings(pair) for pair in planned]
    else:
        findings = [
            _findings(item)
            for item in sweep.marginals
            if (item.lower.arm, item.lower.slots) == (quantity.arm, quantity.slots)
        ]
    if not findings:
        return None
    return sorted({finding.rule for some in findings for finding in some}) or ["no finding"]


def _findings(item: object) -> tuple[Finding, ...]:
    return getattr(item, "findings", ())


def folder_of(version: Version) -> Folder:
    """The folder whose page tells most about a version."""
    return version.sections[0].lead.folder if version.sections else version.retracted[-1].folder
