"""What several pages say in the same words about a section, a device, a folder."""

from __future__ import annotations

from dataclasses import dataclass

from nanoserve_bench.plan import WorkloadPlan
from nanoserve_bench.soundness import SoundMarginal
from nanoserve_report import ladder, numbers, wording
from nanoserve_report.setting import version_of
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
    """The workload, with what tells it from its neighbours on the page."""
    setting = section.setting
    same = [s.setting for s in page.sections if s.setting.workload == setting.workload]
    words = [setting.workload]
    if len({other.model for other in same}) > 1:
        words.append(setting.model)
    if len({other.machine for other in same}) > 1:
        words.append(f"machine {setting.machine.removeprefix('sha256:')[:8]}")
    if len({other.threads for other in same}) > 1:
        words += [numbers.count(number, "thread") for number in setting.threads]
    differing = [v for v in setting.versions if any(v not in other.versions for other in same)]
    systems = {version_of(arm) for arm in section.lead.plan.arms}
    words += [v for v in differing if v in systems]
    # Whose systems differ is known by them; a rival would bring all its libraries into the name.
    alike = [s for s in same if systems & set(differing) <= set(s.versions)]
    libraries = [v for v in differing if v not in systems]
    words += [v for v in libraries if any(v not in other.versions for other in alike)]
    if len({other.code for other in same}) > 1:
        revision = section.lead.plan.revision
        words += [f"revision {revision[:7]}"] if revision else []
        words += [f"sources {setting.code[:7]}"] if setting.code not in {"", revision} else []
    return ", ".join(words)


def tone(folder: Folder) -> str:
    """`good` or `bad`."""
    return "good" if folder.status in {Status.SOUND, Status.ACKNOWLEDGED} else "bad"
