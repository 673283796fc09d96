"""The stamps of one run as arrays, for what goes over all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nanoserve_bench.records import RunRecord
from nanoserve_bench.tables import Ints


@dataclass(frozen=True, kw_only=True, slots=True)
class Stamps:
    """Stamps in ns, one per request, in the order of the records.

    Attributes:
        arrival_ns: Arrivals.
        finished_ns: Finishes.
        finished: Whether every request has one.
        holds_ns: Acquired and released in turn, of all requests.
        told: Whether every request tells its holds.
        output_lengths: Output tokens.
    """

    arrival_ns: Ints
    finished_ns: Ints
    finished: bool
    holds_ns: Ints
    told: bool
    output_lengths: Ints

    @classmethod
    def of(cls, records: Sequence[RunRecord]) -> Stamps:
        """The stamps of records, which they may know without being made."""
        known = getattr(records, "stamps", None)
        if isinstance(known, Stamps):
            return known
        holds = [stamp for r in records for hold in r.holds or () for stamp in hold]
        return cls(
            arrival_ns=np.array([r.arrival_ns for r in records], np.int64),
            finished_ns=np.array([r.finished_ns or 0 for r in records], np.int64),
            finished=all(r.finished_ns is not None for r in records),
            holds_ns=np.array(holds, np.int64),
            told=all(r.holds is not None for r in records),
            output_lengths=np.array([len(r.output_ids) for r in records], np.int64),
        )
