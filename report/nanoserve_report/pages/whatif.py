"""The what-if page, and the trials that it computes from."""

from __future__ import annotations

from nanoserve_report import numbers, whatif
from nanoserve_report.book import ROOT, Book
from nanoserve_report.study import Study

PAGE = f"{ROOT}/what-if.md"
FOLDER = f"{ROOT}/what-if"
SCRIPT = f"{ROOT}/assets/what-if.js"


def write(book: Book, study: Study) -> None:
    """Add the page, its list of pairs, and one file of trials a folder."""
    found = whatif.offers(study)
    sweeps = {offer.sweep.name: offer.sweep.folder.sweeps for offer in found}
    book.add(f"{FOLDER}/pairs.csv", whatif.pairs_csv(found).encode())
    book.add(f"{FOLDER}/quantiles.csv", whatif.quantiles_csv(found).encode())
    for name, mine in sorted(sweeps.items()):
        book.add(f"{FOLDER}/{whatif.data_name(name)}", whatif.trials_csv(mine).encode())
    linker = book.linker(PAGE)
    book.page(
        PAGE,
        "what-if.md.jinja",
        linker,
        pairs=linker.to(f"{FOLDER}/pairs.csv"),
        script=linker.to(SCRIPT),
        offered=(
            f"{numbers.count(len(found), 'pair').capitalize()} of "
            f"{numbers.count(len(sweeps), 'run')} may be chosen."
        ),
        some=bool(found),
    )
