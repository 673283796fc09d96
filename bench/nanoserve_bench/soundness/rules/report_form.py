"""The form of a folder: what the reader refuses (REP001 to REP009), and rows that form no runs."""

from __future__ import annotations

from nanoserve_bench.faults import RESTORE
from nanoserve_bench.soundness.rule import Rule

READ_RULES = (
    Rule(
        code="REP001",
        name="files-readable",
        sentence="Every file of the contract is there, regular, plain UTF-8 text and whole.",
        rationale=(
            "A byte-order mark, a carriage return, a zero byte, a truncated last line or a link "
            "out of the folder means that something other than the sweep wrote the file."
        ),
        remedy=RESTORE,
    ),
    Rule(
        code="REP002",
        name="schema-known",
        sentence="Plan and manifest are of a schema version that this release knows.",
        rationale="Columns of another version may mean something else under the same name.",
        remedy="Read the folder with the release that wrote it.",
    ),
    Rule(
        code="REP003",
        name="columns-as-declared",
        sentence="Every file has exactly the columns of the contract, in its order.",
        rationale="A missing, renamed, doubled or extra column shifts what a value means.",
        remedy=RESTORE,
    ),
    Rule(
        code="REP004",
        name="values-of-their-type",
        sentence="Every value has its column's type; NaN and infinity are no numbers.",
        rationale="A float among integer stamps, or an empty cell read as 0, enters a mean unseen.",
        remedy="Leave the cell empty where a value does not exist, or measure again.",
    ),
    Rule(
        code="REP005",
        name="keys-unique",
        sentence="No row stands twice.",
        rationale="A doubled request counts its tokens twice.",
        remedy=RESTORE,
    ),
    Rule(
        code="REP006",
        name="tokens-match-digest",
        sentence="Every token list has the digest that stands beside it.",
        rationale="Outputs are compared by digest: a list under a false one agrees with anything.",
        remedy=RESTORE,
    ),
    Rule(
        code="REP007",
        name="files-match-manifest",
        sentence="Every file has the sha256, the length and the row count that the manifest gives.",
        rationale="The manifest is written last, so it tells a file that was edited afterwards.",
        remedy=RESTORE,
    ),
    Rule(
        code="REP008",
        name="references-resolve",
        sentence="Whatever a row names is declared: launches, cells, arms, prompts, outputs.",
        rationale="A row that belongs to nothing is a row whose cell was taken away.",
        remedy=RESTORE,
    ),
    Rule(
        code="REP009",
        name="sweep-complete",
        sentence="The sweep ran until its stopping rule was met.",
        rationale="A sweep that is judged half-way was stopped by whoever liked its numbers.",
        remedy="Start the same sweep again; it goes on where it stopped.",
    ),
)

ASSEMBLES = Rule(
    code="REP015",
    name="rows-form-runs",
    sentence="The rows of the folder can be put together into runs.",
    rationale=(
        "A launch of an unknown shape, or a figure that cannot be computed although no other rule "
        "says why, leaves nothing to judge."
    ),
    remedy=RESTORE,
)

PAGES = Rule(
    code="REP014",
    name="page-numbers-backed",
    sentence="Every number on a page comes from a run or a comparison that is sound.",
    rationale=(
        "The report renders from the verdict, in which a refused cell or comparison has no number; "
        "a template that reaches for one fails the build. The rule is applied by nanoserve-report."
    ),
    remedy="Let the page show the hole and its reason.",
)
