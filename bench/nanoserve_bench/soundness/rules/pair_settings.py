"""Whether two runs had the same conditions. What is unknown on a side cannot be verified."""

from __future__ import annotations

import re
from collections.abc import Iterator

from nanoserve_bench.records import Settings, SystemRun, undeclared
from nanoserve_bench.soundness.rule import Flaw, PairRule

_DIGEST = re.compile(r"[0-9a-f]{64}")
_SAMPLES = frozenset({"sample", "samples", "sampling", "do_sample", "multinomial"})
_NO = frozenset({"0", "false", "no", "off"})

MOST_CACHED_APART = 0.1
"""Of all prompt tokens, the most that one side may take more from its cache than the other."""


def _same(baseline: SystemRun, candidate: SystemRun, *names: str) -> Iterator[Flaw]:
    for name in names:
        label = name.replace("_", " ")
        below, above = _known(baseline.settings, name), _known(candidate.settings, name)
        if below is None or above is None:
            side = " and ".join(
                side for side, value in (("baseline", below), ("candidate", above)) if value is None
            )
            yield Flaw(
                f"the {label} of the {side} is unknown, and what is unknown cannot be verified",
                evidence=f"baseline {below}, candidate {above}",
            )
        elif below != above:
            yield Flaw(
                f"the {label} differs: {above} in the candidate, {below} in the baseline",
                evidence=f"baseline {below}, candidate {above}",
            )


def _known(settings: Settings, name: str) -> str | int | None:
    value: str | int | None = getattr(settings, name)
    if isinstance(value, int):
        return value if value > 0 else None
    if isinstance(value, str) and name != "weights":
        value = undeclared(value)
    return None if value is None or value.strip().casefold() in {"", "unknown"} else value


def _weights(baseline: SystemRun, candidate: SystemRun) -> Iterator[Flaw]:
    below, above = _known(baseline.settings, "weights"), _known(candidate.settings, "weights")
    if below is not None and above is not None:
        forms = [str(value).partition(":") for value in (below, above)]
        if not all(_names_weights(kind, what) for kind, _, what in forms):
            yield Flaw(
                "the weights are named by neither a digest nor a declaration",
                evidence=f"baseline {below}, candidate {above}",
            )
            return
        converted = any(kind == "declared" for kind, _, _ in forms)
        if converted and baseline.system != candidate.system:
            return  # a converted form has no canonical tensors; its tokens must agree all the same
    yield from _same(baseline, candidate, "weights")


def _names_weights(kind: str, what: str) -> bool:
    """Whether a digest is one, and a declaration says something."""
    if kind == "sha256":
        return _DIGEST.fullmatch(what) is not None
    return kind == "declared" and what.strip().casefold() not in {"", "unknown"}


WEIGHTS = PairRule(
    code="PAIR006",
    name="same-weights",
    sentence="Both sides ran the same weights: equal digests, or a declared conversion of a rival.",
    rationale=(
        "Quantised weights are smaller and faster, and are another model. A rival that needs its "
        "own file format has no canonical tensors to digest and declares what it converted; that "
        "the conversion is faithful is shown by its tokens. One system against itself has no such "
        "excuse. A digest has its 64 digits: two of them that are cut short agree too easily."
    ),
    remedy="Load the same tensors on both sides, and let the worker digest what it loaded.",
    check=_weights,
    file="systems.csv",
)
PRECISION = PairRule(
    code="PAIR007",
    name="same-precision",
    sentence="Both sides ran in the same dtype, with the same precision inside matrix products.",
    rationale="TF32 on one side multiplies several times as fast and still calls itself float32.",
    remedy="Set dtype and float32 matrix precision explicitly on both sides.",
    check=lambda one, two: _same(one, two, "dtype", "matmul_precision"),
    file="systems.csv",
)
THREADS = PairRule(
    code="PAIR008",
    name="same-threads",
    sentence="Both sides ran with the same number of compute threads.",
    rationale="A baseline on one thread is half a baseline.",
    remedy="Set the thread count explicitly on both sides.",
    check=lambda one, two: _same(one, two, "threads"),
    file="systems.csv",
)


def _samples(decoding: str) -> bool:
    """Whether a decoding that calls itself greedy goes on to say that it samples."""
    for part in decoding.split(";")[1:]:
        name, _, value = part.partition("=")
        if name.strip().casefold() in _SAMPLES and value.strip().casefold() not in _NO:
            return True
    return False


def _decoding(baseline: SystemRun, candidate: SystemRun) -> Iterator[Flaw]:
    yield from _same(baseline, candidate, "decoding")
    for side, run in (("baseline", baseline), ("candidate", candidate)):
        decoding = _known(run.settings, "decoding")
        if decoding is not None and (
            str(decoding).split(";")[0] != "greedy" or _samples(str(decoding))
        ):
            yield Flaw(
                f"the {side} did not decode greedily ({decoding}): that its tokens agree is no "
                "evidence of equal work"
            )


DECODING = PairRule(
    code="PAIR009",
    name="same-decoding",
    sentence="Both sides decoded greedily under the same settings, EOS included.",
    rationale="Sampling, an EOS that ends one side early, or a missing KV cache is other work.",
    remedy="Give both sides the decoding of the plan.",
    check=_decoding,
    file="systems.csv",
)


def _cache(baseline: SystemRun, candidate: SystemRun) -> Iterator[Flaw]:
    yield from _same(baseline, candidate, "cache")
    below, above = (run.totals.cached_tokens for run in (baseline, candidate))
    if bool(below) != bool(above):
        yield Flaw(
            f"only one side answered from a warm prefix cache: {above} cached tokens in the "
            f"candidate, {below} in the baseline"
        )
    elif below != above:
        prompts = max(
            sum(len(record.prompt_ids) for record in run.records) for run in (baseline, candidate)
        )
        if abs(above - below) > MOST_CACHED_APART * prompts:
            yield Flaw(
                f"of {prompts} prompt tokens the candidate took {above} from its prefix cache and "
                f"the baseline {below}: one of them had more to compute"
            )


CACHE = PairRule(
    code="PAIR010",
    name="same-cache",
    sentence="The prefix cache was off on both sides, or on and served as much.",
    rationale=(
        "Several engines cache prompts by default. On one side only, it turns prefills into "
        "look-ups; a blank where the state should stand is not an off. Where it is on, the tokens "
        f"that it served may differ by {MOST_CACHED_APART:.0%} of the prompts': engines keep whole "
        "blocks, each of its own size. Of a server that cannot be asked, the state is declared "
        "beforehand, and shown as declared."
    ),
    remedy="Switch the prefix cache off on both sides, and let the system report its state.",
    check=_cache,
    file="systems.csv",
)
MACHINE = PairRule(
    code="PAIR011",
    name="same-machine",
    sentence="Both sides ran on the same machine and the same device.",
    rationale="Otherwise the ratio is one of machines.",
    remedy="Measure both sides in one sweep.",
    check=lambda one, two: _same(one, two, "machine", "device"),
    file="systems.csv",
)


def _tokenizer(baseline: SystemRun, candidate: SystemRun) -> Iterator[Flaw]:
    for side, run in (("baseline", baseline), ("candidate", candidate)):
        kind, _, what = str(run.settings.tokenizer).partition(":")
        if kind == "sha256" and not _DIGEST.fullmatch(what):
            yield Flaw(f"the {side} names its tokenizer by a digest that is none: {what!r}")
    yield from _same(baseline, candidate, "tokenizer")


TOKENIZER = PairRule(
    code="PAIR012",
    name="same-tokenizer",
    sentence="Both sides used the same tokenizer, or none.",
    rationale="Prompts are ids here; a side that decodes text as well does more work.",
    remedy="Hand over token ids, and let the worker digest the tokenizer that it loaded.",
    check=_tokenizer,
    file="systems.csv",
)
