"""The history over versions of the code."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from nanoserve_bench.statistics import Outcome
from nanoserve_report import numbers, wording
from nanoserve_report.book import ROOT, Book
from nanoserve_report.figures import history as figure
from nanoserve_report.history import DOUBLING, SPEEDUP, Track, tracks
from nanoserve_report.links import Linker
from nanoserve_report.pages import parts
from nanoserve_report.study import Study
from nanoserve_report.views import history as tables

PAGE = f"{ROOT}/history.md"


def write(book: Book, study: Study) -> None:
    """Add it."""
    linker = book.linker(PAGE)
    found = tracks(study)
    book.page(
        PAGE,
        "history.md.jinja",
        linker,
        judged=tables.judged([(name_of(t, found), anchor_of(t), t) for t in found], linker)
        or False,
        several=any(len(track.versions) > 1 for track in found),
        tracks=[_track(book, track, found, linker) for track in found],
    )


def _track(book: Book, track: Track, beside: Sequence[Track], linker: Linker) -> dict[str, Any]:
    anchor = anchor_of(track)
    kinds = [kind for kind in (SPEEDUP, DOUBLING) if figure.followed(track, kind)]
    return {
        "anchor": anchor,
        "name": name_of(track, beside),
        "setting": setting_line(track),
        "sentence": sentence(track),
        "versions": tables.versions(track, linker),
        "figures": [
            book.figure(figure.draw, track, kind, stem=anchor, linker=linker) for kind in kinds
        ],
        "changes": len(track.versions) > 1 and tables.changes(track, linker),
    }


def anchor_of(track: Track) -> str:
    """Where a track stands on the page."""
    return f"track-{_digest(track)}"


def name_of(track: Track, beside: Sequence[Track]) -> str:
    """Device and workload, with what tells the track from the others of the same two."""
    same = [other for other in beside if other is not track and _title(other) == _title(track)]
    told = [word for word in _facts(track) if any(word not in _facts(other) for other in same)]
    alike = [other for other in same if _facts(other) == _facts(track)]
    if alike:
        others = {name for other in alike for name in _systems(other)}
        own = sorted(_systems(track) - others)
        lacking = sorted(others - _systems(track))
        if own or lacking:
            told.append(
                f"with {numbers.enumerate_words(own)}"
                if own
                else f"without {numbers.enumerate_words(lacking)}"
            )
        else:
            told += [v for v in track.kept if any(v not in other.kept for other in alike)]
    return ", ".join([_title(track), *told])


def _systems(track: Track) -> set[str]:
    """What took part in it."""
    return {
        arm.system
        for version in track.versions
        for sweep in version.sweeps
        for arm in sweep.plan.arms
    }


def _title(track: Track) -> str:
    setting = track.setting
    return f"{parts.device_title(setting.device, setting.dtype)}, {setting.workload}"


def _facts(track: Track) -> tuple[str, ...]:
    """What starts another track beside libraries, in words."""
    setting = track.setting
    return (
        setting.model,
        f"machine {setting.machine.removeprefix('sha256:')[:8]}",
        *(numbers.count(n, "thread") for n in setting.threads),
        f"over {track.versions[0].sweeps[0].plan.headline_baseline}",
    )


def _digest(track: Track) -> str:
    """Names a track by what stays the same on it, so that a new version moves no link."""
    setting = track.setting
    key = (setting.place, setting.threads, track.kept)
    return sha256(repr(key).encode()).hexdigest()[:8]


def setting_line(track: Track) -> str:
    """What stays the same on a track."""
    setting = track.setting
    sweep = track.versions[-1].sweeps[0]
    threads = [numbers.count(n, "thread") for n in setting.threads]
    return (
        f"The same on all of it: {setting.model} on {sweep.device_name} "
        f"(machine {setting.machine.removeprefix('sha256:')[:8]}), "
        f"{', '.join([*threads, *track.kept])}; speedups over {sweep.plan.headline_baseline}."
    )


def sentence(track: Track) -> str:
    """What changed with the newest version, in words made from the verdicts."""
    if len(track.versions) == 1:
        return (
            f"One version has been measured here ({track.versions[0].label}), so there is no "
            "change to judge."
        )
    last = len(track.versions) - 1
    by_word: dict[str, list[str]] = {}
    for quantity in track.quantities:
        if quantity.kind == SPEEDUP:
            change = track.change(quantity, last)
            word = "not to be judged" if change is None else change.verdict.value
            at = wording.slots(quantity.slots)
            by_word.setdefault(word, []).append(f"{quantity.arm} at {at}")
    order = [*(outcome.value for outcome in Outcome), "not to be judged"]
    said = [
        f"{word} for {numbers.enumerate_words(by_word[word])}" for word in order if word in by_word
    ]
    return (
        f"{wording.count_versions(len(track.versions))} were measured here. What changed from "
        f"{track.versions[-2].label} to {track.versions[-1].label}, over the baseline: "
        f"{'; '.join(said) or 'nothing is stated'}."
    )
