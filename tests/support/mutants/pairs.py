"""Mutants of the rules about two sides of a comparison (PAIR001 to PAIR013)."""

from __future__ import annotations

from collections.abc import Callable

from nanoserve_bench.plan import PlannedComparison
from nanoserve_bench.schema import DivergenceRow
from support.composed import two_devices, two_revisions
from support.mutants.base import (
    Mutant,
    altered_token,
    drop_request,
    mutants_of,
    prompts,
    short_outputs,
)
from support.rebuild import (
    BASE,
    change,
    change_arm,
    engine,
    measured,
    replace,
    set_plan,
)
from support.sound import Study, plan, study


def _triaged(kind: str, position: int = 5) -> Study:
    broken = altered_token()
    row = DivergenceRow(
        block=1,
        cell=engine(4),
        reference_cell=BASE,
        request="r3",
        position=position,
        token_id=7,
        reference_token_id=8,
        text=" a",
        reference_text=" the",
        logit=12.5,
        reference_logit=12.5000001,
        top2_margin=1e-7,
        noise_floor=2e-6,
        later_agreement=1.0,
        kind=kind,
    )
    broken.blocks[1] = replace(broken.blocks[1], divergences=(row,))
    return broken


def _both_warm(path_cells: Callable[[str], bool]) -> Study:
    """The prefix cache is on everywhere, and only some cells found it warm."""
    broken = change_arm(study(), None, cache="on")
    broken.edit(
        "requests",
        lambda row: replace(row, cached_tokens=4 if path_cells(row.cell) else 0),
        where=lambda row: not row.warmup,
    )
    return broken


def _swapped_outputs() -> Study:
    broken = study()
    rows = {r.request: r for r in broken.blocks[1].requests if measured(engine(4))(r)}
    names = {"r1": "r2", "r2": "r1"}
    broken.edit(
        "requests",
        lambda row: replace(row, output_sha256=rows[names[row.request]].output_sha256),
        where=lambda row: measured(engine(4))(row) and row.request in names,
        blocks=[1],
    )
    return broken


def _card_against_cpu() -> Study:
    """Two devices in one sweep, and a plan that sets one against the other."""
    broken = two_devices()
    crossed = PlannedComparison(
        baseline=BASE, candidate=engine(4).replace("cpu", "cuda:0"), kind="rival"
    )
    return set_plan(broken, comparisons=(*broken.plan.comparisons, crossed))


def _another_library_between_revisions() -> Study:
    return change_arm(
        two_revisions(),
        "nanoserve-next",
        libraries="nanoserve=0.2.0;torch=2.14.0;transformers=5.24.0",
    )


MUTANTS: tuple[Mutant, ...] = (
    *mutants_of(
        "PAIR001",
        (
            "a-request-less",
            "The engine leaves a request out.",
            lambda: drop_request(lambda cell: cell.startswith("nanoserve")),
        ),
        (
            "a-request-more",
            "The baselines leave a request out.",
            lambda: drop_request(lambda cell: cell.startswith("hf-generate")),
        ),
    ),
    *mutants_of(
        "PAIR002",
        (
            "other-prompts",
            "The engine runs other prompts of the same length.",
            lambda: prompts(
                study(),
                lambda _, ids: (ids[0] + 1, *ids[1:]),
                cells=lambda cell: cell.startswith("nanoserve"),
            ),
        ),
        (
            "one-other-prompt",
            "One token of one prompt of the baselines differs.",
            lambda: prompts(
                study(),
                lambda number, ids: (*ids[:-1], ids[-1] + 1) if number == 5 else ids,
                cells=lambda cell: cell.startswith("hf-generate"),
            ),
        ),
    ),
    *mutants_of(
        "PAIR003",
        (
            "truncated-prompts",
            "The engine cuts its prompts to five tokens.",
            lambda: prompts(
                study(),
                lambda _, ids: ids[:5],
                cells=lambda cell: cell.startswith("nanoserve"),
                blocks=range(8),
            ),
        ),
        (
            "padded-prompts",
            "The baselines' prompts are padded to eight tokens.",
            lambda: prompts(
                study(),
                lambda _, ids: (*ids, 0, 0),
                cells=lambda cell: cell.startswith("hf-generate"),
                blocks=range(8),
            ),
        ),
    ),
    *mutants_of(
        "PAIR004",
        (
            "shorter-outputs",
            "The engine is asked for 15 tokens, and the baseline for 16.",
            lambda: short_outputs([engine(4)], asked=True),
        ),
        (
            "more-asked-than-given",
            "One side was asked for more and stopped where the other ended.",
            lambda: change(
                study(), "requests", cell=engine(4), max_tokens=32, finish_reason="stop"
            ),
        ),
    ),
    *mutants_of(
        "PAIR005",
        (
            "one-token",
            "One token of one request differs, and no triage is there.",
            altered_token,
        ),
        ("last-token", "The last token of one request differs.", lambda: altered_token(15)),
        ("near-tie", "A near-tie, triaged as such.", lambda: _triaged("near-tie")),
        ("bug", "A bug, triaged as such.", lambda: _triaged("bug")),
        (
            "triage-of-another-position",
            "A triage that is not of the position that differs.",
            lambda: _triaged("near-tie", position=9),
        ),
        (
            "swapped-rows",
            "Two requests of the engine have each other's outputs.",
            _swapped_outputs,
        ),
    ),
    *mutants_of(
        "PAIR006",
        (
            "other-weights",
            "The engine ran other tensors.",
            lambda: change_arm(study(), "nanoserve", weights="sha256:" + "c" * 64),
        ),
        (
            "weights-unknown",
            "The engine does not say what it ran.",
            lambda: change_arm(study(), "nanoserve", weights=None),
        ),
        (
            "declared-within-one-system",
            "The A/A arm declares its weights and has no digest of them.",
            lambda: change_arm(study(), "hf-generate-again", weights="declared:the same"),
        ),
        (
            "weights-unnamed",
            "The engine calls its weights by a word.",
            lambda: change_arm(study(), "nanoserve", weights="smollm2"),
        ),
        (
            "weights-unnamed-everywhere",
            "Every side calls its weights by the same word, and digests nothing.",
            lambda: change_arm(study(), None, weights="smollm2"),
        ),
        (
            "digest-of-nothing",
            "Every side names a digest and gives none.",
            lambda: change_arm(study(), None, weights="sha256:"),
        ),
        (
            "declared-nothing",
            "The engine declares its weights and does not say what they are.",
            lambda: change_arm(study(), "nanoserve", weights="declared:"),
        ),
    ),
    *mutants_of(
        "PAIR007",
        (
            "tf32-on-one-side",
            "The engine multiplies in TF32.",
            lambda: change_arm(study(), "nanoserve", matmul_precision="tf32"),
        ),
        (
            "precision-unknown",
            "The baseline does not say what it multiplies in.",
            lambda: change_arm(study(), "hf-generate", matmul_precision=None),
        ),
    ),
    *mutants_of(
        "PAIR008",
        (
            "baseline-on-one-thread",
            "The baselines run on one thread.",
            lambda: change_arm(
                change_arm(study(), "hf-generate", threads=1), "hf-generate-again", threads=1
            ),
        ),
        (
            "threads-unknown",
            "Nobody says how many threads ran.",
            lambda: change_arm(study(), None, threads=None),
        ),
    ),
    *mutants_of(
        "PAIR009",
        (
            "eos-on-one-side",
            "The engine may stop at EOS, the baseline may not.",
            lambda: change_arm(study(), "nanoserve", decoding="greedy"),
        ),
        (
            "baseline-without-kv-cache",
            "The baseline computes every prefix again.",
            lambda: change_arm(study(), "hf-generate", decoding="greedy;ignore_eos;no_kv_cache"),
        ),
        (
            "decoding-unknown",
            "The engine does not say how it decoded.",
            lambda: change_arm(study(), "nanoserve", decoding=None),
        ),
    ),
    *mutants_of(
        "PAIR010",
        (
            "cache-blank",
            "A blank where the engine's cache state should stand.",
            lambda: change_arm(study(), "nanoserve", cache=None),
        ),
        (
            "cache-on-one-side",
            "The engine's prefix cache is on.",
            lambda: change_arm(study(), "nanoserve", cache="on"),
        ),
        (
            "cache-declared-on",
            "Of a server that cannot be asked, somebody declared that its cache is on.",
            lambda: change_arm(study(), "nanoserve", cache="declared:on"),
        ),
        (
            "only-one-side-warm",
            "The cache is on everywhere, and only the engine found it warm.",
            lambda: _both_warm(lambda cell: cell.startswith("nanoserve")),
        ),
        (
            "only-some-cells-warm",
            "The engine's later cells found the prompts of its first in the cache.",
            lambda: _both_warm(lambda cell: cell in {engine(4), engine(8)}),
        ),
    ),
    *mutants_of(
        "PAIR011",
        (
            "another-device",
            "The engine ran on a card under the name of a CPU cell.",
            lambda: change_arm(study(), "nanoserve", device="cuda:0"),
        ),
        (
            "a-card-against-a-cpu",
            "The plan sets the engine on a card against the baseline on the CPU.",
            _card_against_cpu,
        ),
    ),
    *mutants_of(
        "PAIR012",
        (
            "another-tokenizer",
            "The engine used another tokenizer.",
            lambda: change_arm(study(), "nanoserve", tokenizer="sha256:" + "d" * 64),
        ),
        (
            "tokenizer-unknown",
            "The engine does not say which tokenizer it used.",
            lambda: change_arm(study(), "nanoserve", tokenizer=None),
        ),
    ),
    *mutants_of(
        "PAIR013",
        (
            "another-library-in-a-a",
            "The A/A arm has another torch than the baseline.",
            lambda: change_arm(
                study(), "hf-generate-again", libraries="torch=2.12.0;transformers=5.24.0"
            ),
        ),
        (
            "another-kernel-in-a-a",
            "The A/A arm takes another attention path.",
            lambda: change_arm(study(), "hf-generate-again", attention="eager"),
        ),
        (
            "another-library-between-revisions",
            "The engine's next commit ran with another torch than the last.",
            _another_library_between_revisions,
        ),
        (
            "rivals-called-one-system",
            "The plan calls every rival the baseline itself.",
            lambda: set_plan(
                study(),
                comparisons=tuple(replace(pair, kind="self") for pair in plan().comparisons),
            ),
        ),
    ),
)
