"""Whether one system against itself ran in one environment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from nanoserve_bench.soundness.evidence import DOUBLING, Evidence, Pair, Trial
from nanoserve_bench.soundness.rule import Flaw, Inspection, StudyRule


def parse_libraries(text: str) -> Mapping[str, str]:
    """`name=version;name=version` as a mapping."""
    pairs = (item.partition("=") for item in text.split(";") if item)
    return {name: version for name, _, version in pairs}


def library_differences(one: str, other: str) -> tuple[tuple[str, str | None, str | None], ...]:
    """Libraries whose versions differ, sorted by name; None is absent."""
    below, above = parse_libraries(one), parse_libraries(other)
    return tuple(
        (name, below.get(name), above.get(name))
        for name in sorted(below.keys() | above.keys())
        if below.get(name) != above.get(name)
    )


def _libraries(evidence: Evidence, inspection: Inspection) -> None:
    pairs = [pair for pair in evidence.pairs if pair.same_system]
    if not pairs:
        inspection.not_applicable = "no system is compared with itself"
    for pair in pairs:
        for block, below, above in pair.blocks():
            inspection.saw()
            for flaw in _differences(pair, below, above):
                inspection.refuse_pair(pair, flaw, block=block, file="systems.csv")


def _differences(pair: Pair, below: Trial, above: Trial) -> Iterator[Flaw]:
    for side, text in (("candidate", above.launch.libraries), ("baseline", below.launch.libraries)):
        names = Counter(item.partition("=")[0] for item in text.split(";"))
        for name, count in names.items():
            if count > 1:
                yield Flaw(f"the {side} names library {name} {count} times")
    # Between two revisions the system itself is what the arms declare to differ.
    declared = {below.launch.system, above.launch.system} if pair.kind == "revision" else set()
    for name, was, now in library_differences(below.launch.libraries, above.launch.libraries):
        if name not in declared:
            yield Flaw(
                f"library {name} is {now or 'absent'} in the candidate and {was or 'absent'} in "
                "the baseline"
            )
    if pair.kind in {"self", DOUBLING}:
        for column in ("attention", "kernel_path", "shape"):
            one, other = getattr(below.launch, column), getattr(above.launch, column)
            if one != other:
                yield Flaw(f"{column} is {other} in the candidate and {one} in the baseline")
    if pair.kind == "self" and pair.baseline.slots != pair.candidate.slots:
        yield Flaw(
            f"a system is set against itself with {pair.candidate.slots} and with "
            f"{pair.baseline.slots} slots"
        )


LIBRARIES = StudyRule(
    code="PAIR013",
    name="same-libraries-within-a-system",
    sentence="A system against itself ran with the same libraries and the same code paths.",
    rationale=(
        "Rivals bring the library versions that they need, and the difference is shown beside "
        "their ratio. Inside an A/A or A/B of one system a library that differs is a second change "
        "that the arms do not declare. Between two revisions, code paths and the system's own "
        "version may differ: that is the question."
    ),
    remedy="Launch both arms in the same environment.",
    check=_libraries,
)
