"""Mutants: sound studies with one thing broken, and the rule that must refuse each.

Every digest is right, so that no mutant is caught for having been written by hand: only the rule
that is meant for it (and what follows from the same fault) can refuse it. The table is data, so
that a kill table can be made by running it.
"""

from support.mutants import (
    fifth,
    forms,
    fourth,
    fresh,
    loads,
    pairs,
    reports,
    requests,
    shapes,
    statistics,
    steps,
    third,
    trials,
)
from support.mutants.base import Mutant

MUTANTS: tuple[Mutant, ...] = (
    *requests.MUTANTS,
    *shapes.MUTANTS,
    *trials.MUTANTS,
    *loads.MUTANTS,
    *pairs.MUTANTS,
    *statistics.MUTANTS,
    *forms.MUTANTS,
    *reports.MUTANTS,
    *fresh.MUTANTS,
    *third.MUTANTS,
    *steps.MUTANTS,
    *fourth.MUTANTS,
    *fifth.MUTANTS,
)

__all__ = ["MUTANTS", "Mutant"]
