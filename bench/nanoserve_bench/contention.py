"""Whether something else was using the machine while a trial ran.

The sweep runs a contended block again, and the gate flags what still is contended: both ask
here. With two OpenMP threads one other busy process makes single operations 10 to 100 times
slower, so little is tolerated: a tenth of one core, and a twentieth of one core that the
hypervisor took away. The kernel counts in ticks of usually 10 ms, so less than a few ticks in all
says nothing, however short the trial was.
"""

from __future__ import annotations

from nanoserve_bench.schema import TrialRow

OTHER_CPU_SHARE = 0.10
"""CPU time of others, in cores."""
STEAL_SHARE = 0.05
"""Time taken by the hypervisor, in cores."""
RESOLUTION_NS = 50_000_000
"""Less than this much time in all is not told from the kernel's rounding."""


def contention(trial: TrialRow) -> str | None:
    """What disturbed a trial, in words; None where nothing did, or nothing is known."""
    return disturbance(
        wall_ns=trial.wall_ns, other_cpu_ns=trial.other_cpu_ns, steal_ns=trial.steal_ns
    )


def disturbance(*, wall_ns: int, other_cpu_ns: int | None, steal_ns: int | None) -> str | None:
    """The same, from the three figures that it takes."""
    for what, taken_ns, share in (
        ("other processes used", other_cpu_ns, OTHER_CPU_SHARE),
        ("the hypervisor took", steal_ns, STEAL_SHARE),
    ):
        if taken_ns is None or taken_ns < RESOLUTION_NS or taken_ns <= share * wall_ns:
            continue
        return (
            f"{what} {taken_ns / wall_ns:.2f} cores during the trial, and more than "
            f"{share:.2f} disturb it"
        )
    return None
