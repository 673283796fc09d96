"""Systems for the tests of sweep and worker: no model, tokens that follow from the prompt.

They are registered as anybody's would be, through the entry points of a distribution that the
fixture `fake_systems` lays down. Some of them misbehave on purpose.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import psutil

from nanoserve_bench.protocol import Description, Divergence, Launch, Triage, Trial
from nanoserve_bench.records import Shape, SystemRun
from nanoserve_bench.runners import Generated, run_serial
from nanoserve_bench.systems import System

TOKEN_NS = 100_000
ENTRY_POINTS = {
    "fake": "support.fake_systems:Fake",
    "fake-untimed": "support.fake_systems:FakeUntimed",
    "fake-batch": "support.fake_systems:FakeBatch",
    "fake-wrong": "support.fake_systems:Wrong",
    "fake-chatty": "support.fake_systems:Chatty",
    "fake-dying": "support.fake_systems:Dying",
    "fake-hanging": "support.fake_systems:Hanging",
    "fake-rubbish": "support.fake_systems:Rubbish",
    "fake-raising": "support.fake_systems:Raising",
    "fake-needy": "support.fake_systems:Needy",
    "fake-blind": "support.fake_systems:Blind",
    "fake-elsewhere": "support.fake_systems:Elsewhere",
    "fake-narrow": "support.fake_systems:Narrow",
    "fake-optional": "support.fake_systems:Optional",
    "fake-missing": "no_such_module:Nothing",
    "fake-no-system": "support.fake_systems:answer",
    "fake-leaving": "support.leaving:Nothing",
    "fake-misformed": "support.fake_systems:Misformed",
    "fake-unfinished": "support.fake_systems:Unfinished",
    "fake-nameless": "support.fake_systems:Nameless",
    "fake-unwritable": "support.fake_systems:Unwritable",
    "fake-mistyped": "support.fake_systems:Mistyped",
    "fake-parental": "support.fake_systems:Parental",
}


def install(folder: Path) -> None:
    """Lay down a distribution that registers all of them."""
    metadata = folder / "fake_systems-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: fake-systems\nVersion: 1.0\n")
    lines = "\n".join(f"{name} = {value}" for name, value in ENTRY_POINTS.items())
    (metadata / "entry_points.txt").write_text(f"[nanoserve_bench.systems]\n{lines}\n")


def answer(prompt: Sequence[int], max_tokens: int) -> tuple[int, ...]:
    """What the fake model says to a prompt."""
    return tuple((sum(prompt) + 7 * position) % 200 for position in range(max_tokens))


def spin() -> int:
    """Compute for as long as a token takes, and say when it is there."""
    end_ns = time.monotonic_ns() + TOKEN_NS
    while (now_ns := time.monotonic_ns()) < end_ns:
        pass
    return now_ns


class Fake(System):
    """A serial system with all the stamps that a serial system can have."""

    summary = "a fake"
    shape = Shape.SERIAL
    stamps: ClassVar[tuple[str, ...]] = ("holds", "first_token", "tokens")
    distribution = "fake-systems"
    triages = True

    def __init__(self, launch: Launch) -> None:
        self.launch = launch

    def describe(self) -> Description:
        return Description(
            version=self.version(),
            revision=None,
            shape=self.shape.value,
            stamps=self.stamps,
            device_name="fake device",
            dtype=self.launch.dtype,
            matmul_precision="ieee",
            threads=int(os.environ["OMP_NUM_THREADS"]),
            weights="declared:none",
            weight_bytes_per_step=4096,
            tokenizer="none",
            attention=None,
            cache="off",
            decoding="greedy;ignore_eos",
            kernel_path=None,
            libraries=(("fake", "1.0"),),
        )

    def generate(self, prompt: Sequence[int], max_tokens: int) -> Generated:
        stamps = tuple(spin() for _ in range(max_tokens))
        timed = "first_token" in self.stamps
        return Generated(answer(prompt, max_tokens), stamps if timed else None)

    def run(self, trial: Trial) -> SystemRun:
        return run_serial(
            trial.prompts,
            self.generate,
            max_tokens=trial.max_tokens,
            system=self.launch.system,
            settings=self.describe().settings(self.launch),
            cached_tokens=0,
        )

    def triage(self, divergence: Divergence) -> Triage:
        pairs = zip(divergence.output_ids, divergence.reference_ids, strict=True)
        position = next(i for i, (one, other) in enumerate(pairs) if one != other)
        return Triage(
            position=position,
            text="a",
            reference_text="b",
            logit=1.0,
            reference_logit=2.0,
            top2_margin=1.0,
            noise_floor=0.0,
            later_agreement=None,
            kind="bug",
        )


class FakeUntimed(Fake):
    """The same with holds alone."""

    stamps: ClassVar[tuple[str, ...]] = ("holds",)
    variant_of = "fake"


class FakeBatch(Fake):
    """A concurrent system that steps through its slots."""

    shape = Shape.CONCURRENT
    stamps: ClassVar[tuple[str, ...]] = ("holds", "first_token", "tokens", "steps")
    triages = False
    open_loop = True

    def run(self, trial: Trial) -> SystemRun:
        from nanoserve_bench.runners import run_concurrent  # noqa: PLC0415

        return run_concurrent(
            SteppedFake(trial.slots),
            trial.prompts,
            [Params(max_tokens=tokens) for tokens in trial.max_tokens],
            slots=trial.slots,
            system=self.launch.system,
            settings=self.describe().settings(self.launch),
            cached_tokens=0,
            due_ns=trial.due_ns,
        )


class Wrong(Fake):
    """Says something else at the third token of its second request."""

    def generate(self, prompt: Sequence[int], max_tokens: int) -> Generated:
        right = super().generate(prompt, max_tokens)
        wrong = list(right.token_ids)
        if len(wrong) > 2 and prompt[0] % 2 == 0:
            wrong[2] = (wrong[2] + 1) % 200
        return right._replace(token_ids=tuple(wrong))


class Chatty(Fake):
    """Writes to standard output in every way that a library can, and reads standard input."""

    def run(self, trial: Trial) -> SystemRun:
        print("printed")
        sys.stdout.flush()
        os.write(1, b"written\n")
        subprocess.run(["echo", "from a child"], check=True)
        assert sys.stdin.read() == ""
        return super().run(trial)


class Dying(Fake):
    """Dies in a trial."""

    def run(self, trial: Trial) -> SystemRun:
        sys.stderr.write("the last words of a dying system\n")
        sys.stderr.flush()
        os._exit(7)


class Hanging(Fake):
    """Never answers."""

    def run(self, trial: Trial) -> SystemRun:
        time.sleep(600)
        raise AssertionError


class Rubbish(Fake):
    """Gets hold of the protocol's own stream and writes into it."""

    def run(self, trial: Trial) -> SystemRun:
        frame = sys._getframe()
        while frame is not None and "replies" not in frame.f_locals:
            frame = frame.f_back
        assert frame is not None
        frame.f_locals["replies"].write("rubbish\n")
        frame.f_locals["replies"].flush()
        return super().run(trial)


class Raising(Fake):
    """Fails in a trial, as code does."""

    def run(self, trial: Trial) -> SystemRun:
        raise RuntimeError("out of something")


class Needy(Fake):
    """Needs what is not installed."""

    requires = ("no_such_module",)


class Blind(Fake):
    """Cannot measure the ceilings."""

    measures_ceilings = False


class Elsewhere(Fake):
    """Runs in another interpreter, and says in which; see `install_elsewhere`."""

    measures_ceilings = False

    @classmethod
    def interpreter(cls) -> str:
        return os.environ["FAKE_INTERPRETER"]

    def describe(self) -> Description:
        heavy = [name for name in ("torch", "numpy", "click") if importlib.util.find_spec(name)]
        return replace(super().describe(), attention=sys.prefix, kernel_path=" ".join(heavy))


class Narrow(Fake):
    """Runs on one kind of device in one dtype."""

    runs_on = (("cpu", "float32"),)


class Optional(Needy):
    """Cannot run, and need not."""

    optional = True


class Misformed(Fake):
    """Its attributes are of other types than a system's."""

    summary = ""
    shape = "serial"  # type: ignore[assignment]
    stamps = "holds"  # type: ignore[assignment]
    requires = ("no_such_parent.module",)


class Unfinished(System):
    """Has neither all the attributes nor all the methods."""

    summary = "a draft"
    shape = Shape.SERIAL
    stamps: ClassVar[tuple[str, ...]] = ("holds", "everything")

    def describe(self) -> Description:
        raise AssertionError


class Nameless(Fake):
    """Cannot tell its version."""

    @classmethod
    def version(cls) -> str:
        raise LookupError("no [run] here")


class Unwritable(Fake):
    """Answers with what is no JSON."""

    def describe(self) -> Description:
        return replace(super().describe(), threads=1j)  # type: ignore[arg-type]


class Mistyped(Fake):
    """Answers with values of other types."""

    def describe(self) -> Description:
        return replace(super().describe(), threads="2")  # type: ignore[arg-type]


class Parental(Fake):
    """Lets a child process do the work."""

    def __init__(self, launch: Launch) -> None:
        super().__init__(launch)
        work = "import time\ninput()\nwhile time.process_time() < 0.3: pass\nprint()\ninput()"
        self.child = subprocess.Popen(
            [sys.executable, "-u", "-c", work], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def run(self, trial: Trial) -> SystemRun:
        assert self.child.stdin is not None
        assert self.child.stdout is not None
        self.child.stdin.write(b"\n")
        self.child.stdin.flush()
        self.child.stdout.readline()
        return super().run(trial)


def install_elsewhere(folder: Path) -> str:
    """Make a bare environment that holds the fakes and nothing else; its interpreter."""
    venv.create(folder, symlinks=True)
    (site,) = folder.glob("lib/python3*/site-packages")
    install(site)
    # psutil, which the worker's meter reads with, and the fakes themselves.
    (site / "psutil").symlink_to(Path(psutil.__file__).parent, target_is_directory=True)
    (site / "tests.pth").write_text(f"{Path(__file__).parents[1]}\n")
    return str(folder / "bin" / "python")


@dataclass(frozen=True, kw_only=True)
class Params:
    """Sampling parameters of the fake engine."""

    max_tokens: int


@dataclass(frozen=True, kw_only=True)
class Timings:
    """As an engine's."""

    arrival_ns: int
    submitted_ns: int
    holds: tuple[tuple[int, int], ...]
    first_token_ns: int
    token_ns: tuple[int, ...]
    finished_ns: int


@dataclass(frozen=True, kw_only=True)
class Output:
    """As an engine's."""

    request_id: str
    token_ids: list[int]
    finish_reason: str
    error: str | None
    timings: Timings


@dataclass(frozen=True, kw_only=True)
class StepOutput:
    """As an engine's."""

    start_ns: int
    end_ns: int
    prefill_rows: int
    decode_rows: int
    holders: int
    waiting: int
    outputs: tuple[Output, ...]


class SteppedFake:
    """A little engine that batches: every step gives every holder of a slot a token."""

    def __init__(
        self,
        slots: int,
        *,
        clock: Callable[[], int] = time.monotonic_ns,
        work: Callable[[], int] = spin,
    ) -> None:
        self.slots = slots
        self.clock = clock
        self.work = work
        self.waiting: list[tuple[str, list[int], int, int, int]] = []
        self.running: dict[str, list[int]] = {}
        self.state: dict[str, tuple[list[int], int, int, int, int]] = {}
        self.boundary_ns: int | None = None

    def add_request(
        self, request_id: str, prompt: list[int], params: Params, *, arrival_ns: int | None = None
    ) -> None:
        now_ns = self.clock()
        due_ns = now_ns if arrival_ns is None else arrival_ns
        self.waiting.append((request_id, prompt, params.max_tokens, due_ns, now_ns))
        self.boundary_ns = None  # a step that admits it begins after it was submitted

    def has_unfinished(self) -> bool:
        return bool(self.waiting or self.running)

    def step(self) -> StepOutput:
        start_ns = self.boundary_ns if self.running and self.boundary_ns else self.clock()
        decode_rows = len(self.running)
        while self.waiting and len(self.running) < self.slots:
            name, prompt, max_tokens, arrival_ns, submitted_ns = self.waiting.pop(0)
            self.state[name] = (prompt, max_tokens, arrival_ns, submitted_ns, start_ns)
            self.running[name] = []
        holders = len(self.running)
        end_ns = self.boundary_ns = self.work()
        outputs = []
        for name, stamps in list(self.running.items()):
            prompt, max_tokens, arrival_ns, submitted_ns, acquired_ns = self.state[name]
            stamps.append(end_ns)
            if len(stamps) == max_tokens:
                del self.running[name]
                outputs.append(
                    Output(
                        request_id=name,
                        token_ids=list(answer(prompt, max_tokens)),
                        finish_reason="length",
                        error=None,
                        timings=Timings(
                            arrival_ns=arrival_ns,
                            submitted_ns=submitted_ns,
                            holds=((acquired_ns, end_ns),),
                            first_token_ns=stamps[0],
                            token_ns=tuple(stamps),
                            finished_ns=end_ns,
                        ),
                    )
                )
        return StepOutput(
            start_ns=start_ns,
            end_ns=end_ns,
            prefill_rows=holders - decode_rows,
            decode_rows=decode_rows,
            holders=holders,
            waiting=len(self.waiting),
            outputs=tuple(outputs),
        )
