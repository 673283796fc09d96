"""Running a soak: the reference once, then every case against it; each is kept as it comes."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from nanoserve_bench import timeouts
from nanoserve_bench.errors import WorkerError
from nanoserve_bench.faults import one_line
from nanoserve_bench.launcher import Worker
from nanoserve_bench.models import ModelFolder
from nanoserve_bench.probes import EngineSettings, ServeAnswer, ServeOrder, run_probe
from nanoserve_bench.protocol import Divergence, Launch, Triage, Trial, TrialResult
from nanoserve_bench.soak.cases import Case, Proof, Request
from nanoserve_bench.soak.records import (
    CaseRow,
    DifferenceRow,
    Finding,
    Soak,
    write_answers,
    write_soak,
)
from nanoserve_bench.soak.resume import Begun, answer_row

REFERENCE = "hf-generate"
NEAR_TIE, BUG = "near-tie", "bug"
_PORTION = 4
"""Most prompts that the reference answers in one go."""

Output = tuple[int, ...]


class Session:
    """Runs what is left of a soak.

    Args:
        begun: The soak so far.
        folder: Where it is kept.
        model: The model, materialised.
        requests: What is asked.
        say: Told what happens, a line at a time.
    """

    def __init__(
        self,
        begun: Begun,
        folder: Path,
        *,
        model: ModelFolder,
        requests: Sequence[Request],
        say: Callable[[str], None],
    ) -> None:
        self.soak = begun.soak
        self._answers = list(begun.answers)
        self._folder = folder
        self._model = model
        self._requests = requests
        self._say = say
        self._longest = max(len(r.prompt) + r.max_tokens for r in requests)

    def run(self, cases: Sequence[Case]) -> Soak:
        """Run the cases that have not been run.

        Raises:
            WorkerError: The reference failed; without it nothing can be judged.
        """
        launch = Launch(
            system=REFERENCE,
            machine=self.soak.machine,
            device="cpu",
            dtype="float32",
            threads=self.soak.threads,
            model_name=self._model.name,
            model_path=str(self._model.path),
            most_slots=1,
            longest=self._longest,
        )
        self._keep()
        done = {row.case for row in self.soak.cases}
        worker = Worker(launch, arm=REFERENCE)
        try:
            description = worker.describe()
            self._ask(worker)
            self._keep(
                reference=f"transformers {description.version}, {description.attention}",
                requests=len(self._answers),
            )
            for case in cases:
                if case.name not in done:
                    self._run_case(case, worker)
            worker.close()
        finally:
            worker.kill()
        self._keep(complete=True)
        return self.soak

    def _ask(self, worker: Worker) -> None:
        """Ask the reference what it has not been asked."""
        while len(self._answers) < len(self._requests):
            first = len(self._answers)
            self._say(f"{REFERENCE}: {first} of {len(self._requests)} prompts")
            portion = self._requests[first : first + _PORTION]
            trial = Trial(
                slots=1,
                prompts=tuple(request.prompt for request in portion),
                max_tokens=tuple(request.max_tokens for request in portion),
            )
            tokens = sum(map(len, trial.prompts)) + sum(trial.max_tokens)
            result = worker.ask(trial, TrialResult, timeout_s=timeouts.trial_s(tokens))
            self._answers += [
                answer_row(index, request, record.output_ids)
                for index, (request, record) in enumerate(
                    zip(portion, result.records, strict=True), start=first
                )
            ]
            write_answers(self._folder, self._answers)

    def _run_case(self, case: Case, worker: Worker) -> None:
        count = max(1, len(self._requests) * case.share // 100)
        requests = self._requests[:count]
        self._say(f"{case.name}: {count} requests, {case.settings()}")
        tokens = sum(len(r.prompt) + r.max_tokens for r in requests)
        order = ServeOrder(
            model_path=str(self._model.path),
            settings=self._settings(case),
            prompts=tuple(request.prompt for request in requests),
            max_tokens=tuple(request.max_tokens for request in requests),
        )
        try:
            answer = run_probe(
                "soak_engine",
                order,
                ServeAnswer,
                threads=self.soak.threads,
                # Preempted requests are computed again and again.
                timeout_s=5 * timeouts.trial_s(tokens),
            )
        except WorkerError as error:
            self._add(_failed(case, count, one_line(str(error))), ())
            return
        differences = [
            self._look_into(case, index, answer, worker=worker)
            for index in range(count)
            if _differs(answer, index, self._answers[index].token_ids)
        ]
        row = case_row(case, answer, differences)
        self._say(
            f"{case.name}: {row.finding}; {row.identical} of {row.requests} identical, "
            f"{row.near_ties} near-ties, {row.bugs} bugs; {row.preemptions} preemptions, "
            f"{row.chunks} further pieces, {row.cached_tokens} cached tokens"
        )
        self._add(row, differences)

    def _settings(self, case: Case) -> EngineSettings:
        request = -(-self._longest // case.block_size) * case.block_size
        return EngineSettings(
            max_slots=case.slots,
            max_model_len=self._longest,
            block_size=case.block_size,
            kv_pool_tokens=None if case.tight_pool else case.slots * request,
            max_batch_tokens=case.max_batch_tokens,
            prefix_cache=case.prefix_cache,
            kernel=case.kernel,
        )

    def _look_into(
        self, case: Case, index: int, answer: ServeAnswer, *, worker: Worker
    ) -> DifferenceRow:
        request, reference = self._requests[index], self._answers[index].token_ids
        error, output = answer.errors[index], answer.outputs[index]
        if error is not None:
            return _failure(case, index, request, error)
        self._say(f"{case.name}: looking into request {index}")
        divergence = Divergence(
            prompt_ids=request.prompt, output_ids=output, reference_ids=reference
        )
        triage = worker.ask(divergence, Triage, timeout_s=timeouts.TRIAGE_S)
        token_id, reference_token_id = divergence.tokens_at(triage.position)
        return DifferenceRow(
            case=case.name,
            request=index,
            prompt_tokens=len(request.prompt),
            kind=triage.kind,
            position=triage.position,
            token_id=token_id,
            reference_token_id=reference_token_id,
            text=_quoted(triage.text),
            reference_text=_quoted(triage.reference_text),
            top2_margin=triage.top2_margin,
            noise_floor=triage.noise_floor,
            later_agreement=triage.later_agreement,
            error=None,
        )

    def _add(self, row: CaseRow, differences: Sequence[DifferenceRow]) -> None:
        self._keep(
            cases=(*self.soak.cases, row), differences=(*self.soak.differences, *differences)
        )

    def _keep(self, **changes: Any) -> None:
        self.soak = dataclasses.replace(self.soak, **changes)
        write_soak(self._folder, self.soak)


def _quoted(text: str | None) -> str | None:
    return None if text is None else json.dumps(text)


def _differs(answer: ServeAnswer, index: int, expected: Output) -> bool:
    return answer.errors[index] is not None or answer.outputs[index] != expected


def case_row(case: Case, answer: ServeAnswer, differences: Sequence[DifferenceRow]) -> CaseRow:
    """What came of a case."""
    done = {
        Proof.BATCHED: answer.most_rows > 1,
        Proof.PREEMPTED: answer.preemptions > 0,
        Proof.CHUNKED: answer.chunks > 0,
        Proof.CACHED: answer.cached_tokens > 0,
    }
    unproven = [proof.value for proof in case.proofs if not done[proof]]
    near_ties = sum(difference.kind == NEAR_TIE for difference in differences)
    bugs = len(differences) - near_ties
    if bugs:
        finding = Finding.BUG
    elif unproven:
        finding = Finding.UNPROVEN
    else:
        finding = Finding.NEAR_TIES if near_ties else Finding.IDENTICAL
    requests = len(answer.outputs)
    return CaseRow(
        case=case.name,
        settings=case.settings(answer.kv_pool_tokens),
        kernel_path=answer.kernel_path,
        requests=requests,
        tokens=sum(map(len, answer.outputs)),
        identical=requests - len(differences),
        near_ties=near_ties,
        bugs=bugs,
        preemptions=answer.preemptions,
        chunks=answer.chunks,
        cached_tokens=answer.cached_tokens,
        most_rows=answer.most_rows,
        finding=finding,
        note=f"it is there for {', '.join(unproven)}, and had none" if unproven else None,
    )


def _failed(case: Case, requests: int, note: str) -> CaseRow:
    """A case whose engine did not come to an end."""
    return CaseRow(
        case=case.name,
        settings=case.settings(),
        kernel_path=None,
        requests=requests,
        tokens=0,
        identical=0,
        near_ties=0,
        bugs=requests,
        preemptions=0,
        chunks=0,
        cached_tokens=0,
        most_rows=0,
        finding=Finding.BUG,
        note=note,
    )


def _failure(case: Case, index: int, request: Request, error: str) -> DifferenceRow:
    return DifferenceRow(
        case=case.name,
        request=index,
        prompt_tokens=len(request.prompt),
        kind=BUG,
        position=None,
        token_id=None,
        reference_token_id=None,
        text=None,
        reference_text=None,
        top2_margin=None,
        noise_floor=None,
        later_agreement=None,
        error=one_line(error),
    )
