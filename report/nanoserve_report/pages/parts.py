"""What several pages say in the same words about a section, a device, a folder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from nanoserve_bench.plan import WorkloadPlan
from nanoserve_bench.soundness import SoundMarginal
from nanoserve_report import ladder, numbers, wording
from nanoserve_report.setting import Setting, version_of
from nanoserve_report.study import DevicePage, Section
from nanoserve_report.sweeps import Folder, Status, Sweep
from nanoserve_report.views import common

DEVICE_NAMES = {"cpu": "CPU", "cuda": "CUDA", "mps": "MPS", "xpu": "XPU"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Tile:
    """A doubling at a glance."""

    name: str
    value: str
    interval: str
    word: str
    note: str
    tone: str


def device_title(device: str, dtype: str) -> str:
    """`CPU, float32`."""
    kind, _, index = device.partition(":")
    name = DEVICE_NAMES.get(kind, kind)
    return f"{name}{f' {index}' if index else ''}, {dtype}"


def machine_line(page: DevicePage) -> str:
    """The device by its own name, with the threads that were used."""
    lines = []
    for section in page.sections:
        sweep = section.lead
        threads = sorted({row.threads for row in sweep.launches if row.threads is not None})
        words = sweep.device_name
        if threads:
            words += f", {' or '.join(numbers.count(n, 'thread') for n in threads)}"
        if words not in lines:
            lines.append(words)
    return "; ".join(lines)


def workload_of(sweep: Sweep) -> WorkloadPlan | None:
    """The plan's workload of a sweep."""
    return next((w for w in sweep.plan.workloads if w.name == sweep.setting.workload), None)


def setting_line(sweep: Sweep) -> str:
    """The workload and model in one sentence."""
    workload, setting = workload_of(sweep), sweep.setting
    words = f"Workload {setting.workload} on {setting.model}"
    if workload is not None:
        decoding = decoding_words(sweep)
        words += f": {numbers.count(workload.requests, 'request')} of {_work(workload)}, {decoding}"
    return f"{words}."


def _work(workload: WorkloadPlan) -> str:
    """What a request is: all alike, or the range of their lengths and where it is from."""
    words = f"{workload.new_tokens} new tokens after prompts of {workload.prompt_tokens}"
    if workload.lengths:
        new = [one.new_tokens for one in workload.lengths]
        prompts = [one.prompt_tokens for one in workload.lengths]
        words = (
            f"{min(new)} to {max(new)} new tokens after prompts of {min(prompts)} to "
            f"{max(prompts)} ({workload.source})"
        )
    if workload.prefix_tokens:
        words += f", of which the first {workload.prefix_tokens} are the same in all"
    return words


def decoding_words(sweep: Sweep) -> str:
    """`greedy, EOS ignored`."""
    parts = sweep.plan.decoding.split(";")
    return ", ".join("EOS ignored" if part == "ignore_eos" else part for part in parts)


def engines(sweep: Sweep) -> list[str]:
    """The arms whose slots were doubled, in order."""
    return list(dict.fromkeys(item.lower.arm for item in sweep.marginals))


def knee_line(sweep: Sweep) -> str:
    """Where the doublings stop paying, for every arm that has doublings; empty without any."""
    arms = engines(sweep)
    if len(arms) == 1:
        return wording.knee(sweep, arms[0])
    alike: dict[str, list[str]] = {}
    for arm in arms:
        alike.setdefault(wording.knee(sweep, arm), []).append(arm)
    return " ".join(
        f"{numbers.enumerate_words(names)}: {words[0].lower()}{words[1:]}"
        for words, names in alike.items()
    )


def headline(sweep: Sweep) -> str:
    """The heading of a sweep: its workload, and what was found; no two settings read alike."""
    workload = sweep.setting.workload
    if not sweep.marginals:
        return ": ".join(filter(None, (workload, wording.standing(sweep))))
    found = knee_line(sweep)
    if len(arms := engines(sweep)) == 1:
        found = f"{arms[0]}: {found[0].lower()}{found[1:]}"
    return f"{workload}, {found.removesuffix('.')}"


def ran(sweep: Sweep, *, libraries: bool) -> str:
    """What ran, by its versions: the systems and this repository's revision, perhaps the rest."""
    systems = [version_of(arm) for arm in sweep.plan.arms]
    found = list(dict.fromkeys(v for v in systems if v in sweep.setting.versions))
    if libraries:
        found += [v for v in sweep.setting.versions if v not in found]
    revision = sweep.plan.revision
    at = f", measured at revision {revision[:7]}" if revision else ""
    return f"Versions: {', '.join(found)}{at}."


def tiles(sweep: Sweep) -> list[Tile]:
    """The doublings as tiles, holes included."""
    several = len(engines(sweep)) > 1
    made = []
    for item in sweep.marginals:
        name = f"{item.lower.slots} {wording.ARROW} {item.upper.slots} slots"
        if several:
            name = f"{item.lower.arm}, {name}"
        if not isinstance(item, SoundMarginal):
            made.append(
                Tile(
                    name=name,
                    value=numbers.DASH,
                    interval="",
                    word=f"refused: {wording.codes(item.findings)}",
                    note="",
                    tone="hole",
                )
            )
            continue
        product = numbers.ratio(item.product)
        note = ""
        if item.batch_ratio is not None and item.slot_ratio is not None:
            batch, slot = numbers.ratio(item.batch_ratio), numbers.ratio(item.slot_ratio)
            note = f"{batch.point} batch {numbers.TIMES} {slot.point} slot"
        word = common.verdict(item.verdict)
        made.append(
            Tile(
                name=name,
                value=f"{product.point}{product.unit}",
                interval=product.interval,
                word=word.text,
                note=note,
                tone=word.tone,
            )
        )
    return made


def sentences(sweep: Sweep) -> list[str]:
    """One slot against each baseline, the best multiple after it, and the occupancy gotcha."""
    found = [wording.one_slot(sweep, p) for p in sweep.sound_rivals if p.candidate.slots == 1]
    wider = [pair for pair in sweep.sound_rivals if pair.candidate.slots > 1]
    for baseline in dict.fromkeys(pair.baseline.arm for pair in wider):
        best = max(
            (pair for pair in wider if pair.baseline.arm == baseline),
            key=lambda pair: pair.speedup.point,
        )
        found.append(wording.best(sweep, best))
    found += ladder.words(ladder.rungs(sweep))
    closing = (wording.refused(sweep), wording.unproven(sweep), wording.gotcha(sweep))
    found += [line for line in closing if line]
    return found


def section_name(section: Section, page: DevicePage) -> str:
    """The workload, with as little as tells it from its neighbours on the page."""
    like = [s for s in page.sections if s.setting.workload == section.setting.workload]
    words = [section.setting.workload]
    for fact in _TELLING:
        mine, others = fact(section), [fact(other) for other in like]
        words += [word for word in mine if any(word not in other for other in others)]
        like = [other for other in like if fact(other) == mine]
    return ", ".join(words)


def _systems(section: Section) -> tuple[str, ...]:
    arms = {cell.cell.arm for cell in section.lead.cells}
    return tuple(sorted({arm.system for arm in section.lead.plan.arms if arm.name in arms}))


def _revision(section: Section) -> tuple[str, ...]:
    revision = section.lead.plan.revision
    return (f"revision {revision[:7]}",) if revision else ()


def _sources(section: Section) -> tuple[str, ...]:
    code = section.setting.code
    return (f"sources {code[:7]}",) if code not in {"", section.lead.plan.revision} else ()


_TELLING: tuple[Callable[[Section], tuple[str, ...]], ...] = (
    lambda section: (section.setting.model,),
    lambda section: (f"machine {section.setting.machine.removeprefix('sha256:')[:8]}",),
    lambda section: tuple(numbers.count(n, "thread") for n in section.setting.threads),
    _systems,
    lambda section: section.setting.versions,
    _revision,
    _sources,
)
"""What may tell two sections of one workload apart, the plainest first."""


MOST_CELLS = 30
"""Cells of which the page of a device has everything; further sections have pages of their own."""


def apart(page: DevicePage) -> frozenset[Setting]:
    """The settings whose sections have pages of their own: those after the first that fit."""
    cells, found = 0, []
    for section in page.sections:
        cells += len(section.lead.planned)
        if cells > MOST_CELLS and section is not page.sections[0]:
            found.append(section.setting)
    return frozenset(found)


def home(page: DevicePage, section: Section) -> str:
    """The page that has everything of a section, which has its `slug` for an anchor there."""
    whole = section.setting not in apart(page)
    return f"results/devices/{page.slug}{'' if whole else f'/{section.slug}'}.md"


def tone(folder: Folder) -> str:
    """`good` or `bad`."""
    return "good" if folder.status in {Status.SOUND, Status.ACKNOWLEDGED} else "bad"
