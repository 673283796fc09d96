"""The requests and steps of many trials as columns, trial by trial, and runs as views of them.

`TrialSet` is what the gate looks at when it asks a question of a whole study at once; a rule that
has to word what is wrong with one run reads `TrialRecords`, which makes the records of that run
one after the other and keeps none of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, overload

import numpy as np

from nanoserve_bench.bulk import table_of, token_lists_of
from nanoserve_bench.records import RunRecord, StepRecord, Totals
from nanoserve_bench.results import ResultSet
from nanoserve_bench.schema import RequestRow, StepRow
from nanoserve_bench.stamps import Stamps
from nanoserve_bench.tables import Coded, Flags, Ints, Table, TokenLists, owners

_AT_ONCE = 1024
"""Records that are alive at a time while somebody goes over them."""
_FAR = 2**62
"""Stamps beyond it could overflow when subtracted; their runs are summed up without arrays."""


@dataclass(frozen=True, kw_only=True)
class TrialSet:
    """Trials by number; the requests of trial i are the rows `bounds[i]` to `bounds[i + 1]`.

    Attributes:
        requests: In the order of the trials; within a trial in the order of the file.
        order: Where each row of `requests` stands in the file, counted from 0.
        bounds: Of the trials in `requests`.
        steps: In the order of the trials and of their own numbers.
        step_bounds: Of the trials in `steps`.
        prompts: By digest; `prompt` holds places in it.
        outputs: Likewise.
    """

    requests: Table[RequestRow]
    order: Ints
    bounds: Ints
    steps: Table[StepRow]
    step_bounds: Ints
    prompts: TokenLists
    outputs: TokenLists

    @classmethod
    def of(cls, results: ResultSet) -> TrialSet:
        """The trials of `trials.csv`, numbered in its order."""
        trials = {(r.block, r.cell, r.warmup): n for n, r in enumerate(results.trials)}
        prompts, outputs = (
            lists if isinstance(lists, TokenLists) else token_lists_of(lists)
            for lists in (results.prompts, results.outputs)
        )
        requests, steps = results.requests, results.steps
        if not isinstance(requests, Table):
            known = {"prompt_sha256": prompts.places, "output_sha256": outputs.places}
            requests = table_of(RequestRow, requests, known)
        if not isinstance(steps, Table):
            steps = table_of(StepRow, steps, {})
        for name, lists in (("prompt_sha256", prompts), ("output_sha256", outputs)):
            column = requests.coded(name)
            if len(column) and column.codes.max() >= len(lists):
                raise KeyError(column.texts[int(column.codes.max())])
        requests, order, bounds = _grouped(requests, owners(requests, trials), len(trials), None)
        numbers = steps.whole("step").values
        steps, _, step_bounds = _grouped(steps, owners(steps, trials), len(trials), numbers)
        return cls(
            requests=requests,
            order=order,
            bounds=bounds,
            steps=steps,
            step_bounds=step_bounds,
            prompts=prompts,
            outputs=outputs,
        )

    def __len__(self) -> int:
        """Trials."""
        return len(self.bounds) - 1

    @cached_property
    def counts(self) -> Ints:
        """Requests of each trial."""
        return np.diff(self.bounds)

    @cached_property
    def owner(self) -> Ints:
        """The trial of each request."""
        return np.repeat(np.arange(len(self)), self.counts)

    @cached_property
    def prompt(self) -> Ints:
        """The place of each request's prompt."""
        return self.requests.coded("prompt_sha256").codes

    @cached_property
    def output(self) -> Ints:
        """The place of each request's output."""
        return self.requests.coded("output_sha256").codes

    def request(self, row: int) -> str:
        """The identifier of a request."""
        return str(self.requests.coded("request").cells(row, row + 1)[0])

    def digest(self, row: int) -> str:
        """The digest of a request's prompt."""
        return str(self.requests.coded("prompt_sha256").cells(row, row + 1)[0])

    @cached_property
    def prompt_lengths(self) -> Ints:
        """Prompt ids of each request that are present."""
        return self.prompts.lists.lengths[self.prompt]

    @cached_property
    def output_lengths(self) -> Ints:
        """Output ids of each request that are present."""
        return self.outputs.lists.lengths[self.output]

    def numbers(self, name: str) -> Ints:
        """A column of the requests; 0 where a cell is empty."""
        return self.requests.whole(name).values

    def of_trial(self, name: str, number: int) -> Ints:
        """The numbers of one trial in a column, without a look at the others'."""
        return self.requests.whole(name).part(*self.place(number))

    def full(self, name: str, number: int) -> bool:
        """Whether no request of a trial has an empty cell in a column of numbers or lists."""
        column = self.requests.columns[name]
        if isinstance(column, Coded):
            raise TypeError(f"column {name} holds texts")
        return column.full(*self.place(number))

    def place(self, number: int) -> tuple[int, int]:
        """The first request of a trial, and the one behind its last."""
        return int(self.bounds[number]), int(self.bounds[number + 1])

    def known(self, name: str) -> Flags:
        """Which requests have something in a column of numbers or lists."""
        column = self.requests.columns[name]
        if isinstance(column, Coded):
            raise TypeError(f"column {name} holds texts")
        return column.present

    def count(self, flags: Flags) -> Ints:
        """For how many requests of each trial something holds."""
        return np.diff(np.concatenate([np.zeros(1, np.int64), np.cumsum(flags)])[self.bounds])

    def any(self, flags: Flags) -> Flags:
        """Whether something holds for any request of each trial."""
        found: Flags = self.count(flags) > 0
        return found

    def trials_of_holds(self) -> Ints:
        """The trial of each hold, in the order of the column `holds_ns`."""
        return np.repeat(self.owner, self.requests.lists("holds_ns").lengths // 2)

    @cached_property
    def served_ns(self) -> Ints:
        """The sum of each request's holds."""
        flat = self.requests.lists("holds_ns").flat
        return self._by_request(flat[1::2] - flat[::2])

    def _by_request(self, of_holds: Ints) -> Ints:
        bounds = self.requests.lists("holds_ns").bounds // 2
        return np.diff(np.concatenate([np.zeros(1, np.int64), np.cumsum(of_holds)])[bounds])

    @cached_property
    def totals(self) -> Sequence[Totals]:
        """The records of each trial summed up."""
        stamps = [self.numbers(n) for n in ("arrival_ns", "finished_ns", "first_token_ns")]
        stamps.append(self.requests.lists("holds_ns").flat)
        if any(len(s) and (s.min() < -_FAR or s.max() > _FAR) for s in stamps):
            return [Totals.of(list(TrialRecords(self, trial))) for trial in range(len(self))]
        return self._totals(*stamps)

    def _totals(self, arrival: Ints, finished: Ints, first: Ints, holds: Ints) -> Sequence[Totals]:
        told = {n: self.known(n) for n in ("finished_ns", "first_token_ns", "holds_ns")}
        known = {name: (self.count(flags) == self.counts).tolist() for name, flags in told.items()}
        first_of_hold = np.repeat(first, self.requests.lists("holds_ns").lengths // 2)
        acquired, released = holds[::2], holds[1::2]
        held_first = np.where(
            acquired < first_of_hold, np.minimum(released, first_of_hold) - acquired, 0
        )
        many = self.output_lengths >= 2
        sums = {
            "tokens": self._sums(self.output_lengths),
            "cached": self._sums(self.numbers("cached_tokens")),
            "served": self._sums(self.served_ns),
            "resident": self._sums(finished - arrival),
            "prefill": self._sums(self._by_request(held_first)),
            "ttft": self._sums(first - arrival),
        }
        decodes = self.count(many).tolist()
        spans = self._spans(np.flatnonzero(many), finished - first)
        lowest, highest = self._extremes(arrival)
        last, longest = self._extremes(finished)[1], self._extremes(self.output_lengths)[1]
        unfinished = (self.counts - self.count(told["finished_ns"])).tolist()
        totals = []
        for trial, requests in enumerate(self.counts.tolist()):
            whole = requests > 0 and known["finished_ns"][trial]
            timed = requests > 0 and known["first_token_ns"][trial]
            held = requests > 0 and known["holds_ns"][trial]
            totals.append(
                Totals(
                    requests=requests,
                    unfinished=unfinished[trial],
                    started_ns=lowest[trial] if requests else None,
                    last_arrival_ns=highest[trial] if requests else None,
                    finished_ns=last[trial] if whole else None,
                    output_tokens=sums["tokens"][trial],
                    longest_output=longest[trial],
                    cached_tokens=sums["cached"][trial],
                    served_ns=sums["served"][trial] if held else None,
                    resident_ns=sums["resident"][trial] if whole else 0,
                    prefill_ns=sums["prefill"][trial] if held and timed else None,
                    ttft_ns=sums["ttft"][trial] if timed else None,
                    decode_ns=spans[trial] if whole and timed else None,
                    decodes=decodes[trial],
                )
            )
        return totals

    def _sums(self, values: Ints) -> list[int]:
        """The sum over each trial, exact: high and low halves cannot overflow."""
        edges = np.zeros(1, np.int64)
        high, low = (
            np.diff(np.concatenate([edges, np.cumsum(half)])[self.bounds]).tolist()
            for half in (values >> 32, values & 0xFFFFFFFF)
        )
        return [(h << 32) + part for h, part in zip(high, low, strict=True)]

    def _extremes(self, values: Ints) -> tuple[list[int], list[int]]:
        """Smallest and largest of each trial; 0 for one without requests."""
        low, high = np.zeros(len(self), np.int64), np.zeros(len(self), np.int64)
        filled = np.flatnonzero(self.counts)
        if len(filled):
            starts = self.bounds[:-1][filled]
            low[filled] = np.minimum.reduceat(values, starts)
            high[filled] = np.maximum.reduceat(values, starts)
        return low.tolist(), high.tolist()

    def _spans(self, rows: Ints, spans: Ints) -> list[dict[int, int]]:
        """The sum of some requests' spans, by trial and by gaps between output tokens."""
        found: list[dict[int, int]] = [{} for _ in range(len(self))]
        gaps = self.output_lengths[rows] - 1
        order = np.lexsort((gaps, self.owner[rows]))
        owner, gaps, values = self.owner[rows][order], gaps[order], spans[rows][order]
        turns = np.flatnonzero((np.diff(owner) != 0) | (np.diff(gaps) != 0)) + 1
        starts = np.concatenate([np.zeros(min(1, len(owner)), np.int64), turns])
        if len(starts):
            high = np.add.reduceat(values >> 32, starts).tolist()
            low = np.add.reduceat(values & 0xFFFFFFFF, starts).tolist()
            places = zip(owner[starts].tolist(), gaps[starts].tolist(), high, low, strict=True)
            for trial, gap, h, part in places:
                found[trial][gap] = (h << 32) + part
        return found


class TrialRecords(Sequence[RunRecord]):
    """The records of one trial, each made when it is asked for."""

    def __init__(self, trials: TrialSet, number: int) -> None:
        self._trials = trials
        self._number = number
        self._start, self._stop = (int(trials.bounds[number + i]) for i in (0, 1))

    def __len__(self) -> int:
        """Requests."""
        return self._stop - self._start

    @overload
    def __getitem__(self, index: int) -> RunRecord: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[RunRecord]: ...
    def __getitem__(self, index: int | slice) -> RunRecord | Sequence[RunRecord]:
        """One record, or some as a tuple."""
        if isinstance(index, slice):
            return tuple(self[i] for i in range(*index.indices(len(self))))
        place = self._start + range(len(self))[index]
        return next(self._make(place, place + 1))

    def __iter__(self) -> Iterator[RunRecord]:
        """All of them, a part of a trial alive at a time."""
        for start in range(self._start, self._stop, _AT_ONCE):
            yield from self._make(start, min(start + _AT_ONCE, self._stop))

    @property
    def totals(self) -> Totals:
        """Their sums, without making them."""
        return self._trials.totals[self._number]

    @property
    def stamps(self) -> Stamps:
        """Their stamps, without making them."""
        requests, part = self._trials.requests, (self._start, self._stop)
        finished, holds = requests.whole("finished_ns"), requests.lists("holds_ns")
        return Stamps(
            arrival_ns=requests.whole("arrival_ns").part(*part),
            finished_ns=finished.part(*part),
            finished=finished.full(*part),
            holds_ns=holds.part(*part),
            told=holds.full(*part),
            output_lengths=self._trials.output_lengths[slice(*part)],
        )

    def line(self, request: str) -> int | None:
        """The line of a request in `requests.csv`."""
        column = self._trials.requests.coded("request")
        names = column.cells(self._start, self._stop)
        if request not in names:
            return None
        return int(self._trials.order[self._start + names.index(request)]) + 2

    def _make(self, start: int, stop: int) -> Iterator[RunRecord]:
        trials, columns = self._trials, self._trials.requests.columns

        def cells(name: str) -> list[Any]:
            return columns[name].cells(start, stop)

        prompts = trials.prompts.at(trials.prompt[start:stop])
        outputs = trials.outputs.at(trials.output[start:stop])
        for (
            request, prompt, output, asked, arrival, submitted, holds, first, finished, stamps,
            discarded, cached, reason, error,
        ) in zip(
            cells("request"), prompts, outputs, cells("max_tokens"), cells("arrival_ns"),
            cells("submitted_ns"), cells("holds_ns"), cells("first_token_ns"),
            cells("finished_ns"), cells("token_ns"), cells("discarded_tokens"),
            cells("cached_tokens"), cells("finish_reason"), cells("error"), strict=True,
        ):  # fmt: skip
            yield RunRecord(
                request=request,
                prompt_ids=prompt,
                output_ids=output,
                max_tokens=asked,
                arrival_ns=arrival,
                submitted_ns=submitted,
                holds=holds,
                first_token_ns=first,
                finished_ns=finished,
                token_ns=stamps,
                discarded_tokens=discarded,
                cached_tokens=cached,
                finish_reason=reason,
                error=error or "",
            )


class StepLog(Sequence[StepRecord]):
    """The step log of one trial, each row made when it is asked for."""

    def __init__(self, trials: TrialSet, number: int) -> None:
        self._table = trials.steps
        self._start, self._stop = (int(trials.step_bounds[number + i]) for i in (0, 1))

    def __len__(self) -> int:
        """Rows."""
        return self._stop - self._start

    @overload
    def __getitem__(self, index: int) -> StepRecord: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[StepRecord]: ...
    def __getitem__(self, index: int | slice) -> StepRecord | Sequence[StepRecord]:
        """One row, or some as a tuple."""
        if isinstance(index, slice):
            return tuple(self[i] for i in range(*index.indices(len(self))))
        place = self._start + range(len(self))[index]
        return next(self._make(place, place + 1))

    def __iter__(self) -> Iterator[StepRecord]:
        """All of them, a part of the log alive at a time."""
        for start in range(self._start, self._stop, _AT_ONCE):
            yield from self._make(start, min(start + _AT_ONCE, self._stop))

    @property
    def passes(self) -> int:
        """Rows with prefill or decode rows: forward passes."""
        prefill, decode = (
            self._table.whole(name).part(self._start, self._stop)
            for name in ("prefill_rows", "decode_rows")
        )
        return int(np.count_nonzero((prefill != 0) | (decode != 0)))

    def _make(self, start: int, stop: int) -> Iterator[StepRecord]:
        names = ("start_ns", "prefill_rows", "decode_rows", "holders", "waiting")
        yield from map(StepRecord, *(self._table.columns[n].cells(start, stop) for n in names))


def _grouped(
    table: Table[Any], owner: Ints, trials: int, within: Ints | None
) -> tuple[Table[Any], Ints, Ints]:
    """Rows by trial, and inside of a trial by `within` or as they stand; (rows, order, bounds)."""
    order = np.arange(len(table))
    steady = np.diff(owner) > 0
    if within is None:
        steady |= np.diff(owner) == 0
    else:
        steady |= (np.diff(owner) == 0) & (np.diff(within) >= 0)
    if not steady.all() or (len(owner) and owner[0] < 0):
        order = np.argsort(owner, kind="stable") if within is None else np.lexsort((within, owner))
        order = order[owner[order] >= 0]
        table, owner = table.take(order), owner[order]
    return table, order, np.searchsorted(owner, np.arange(trials + 1))
