"""`nanoserve-report`: build the pages and the site, check them, publish a version, begin anew.

Exit codes: 0 everything is sound and in place; 1 something unsound is not acknowledged (the site is
built all the same and shows it), or a check failed; 2 the command could not do its work; 130
interrupted.
"""

from __future__ import annotations

import sys
from itertools import groupby
from pathlib import Path
from textwrap import indent

import click

from nanoserve_bench.errors import BenchError
from nanoserve_report import llms
from nanoserve_report import site as sites
from nanoserve_report.book import ROOT, Book, BookError
from nanoserve_report.pages import compose
from nanoserve_report.picture import PICTURE
from nanoserve_report.picture import draw as draw_picture
from nanoserve_report.publish import PublishError, build_site
from nanoserve_report.publish import publish as publish_version
from nanoserve_report.scaffold import RESULTS, ScaffoldError, lay
from nanoserve_report.study import Study, load

MOST_LINES, MOST_PLACES = 20, 12
MOST_BYTES = 255_000
"""Of a generated page; the theme adds less than 45,000 to it, and a published page has 300,000."""
DEFAULT_RESULTS, DEFAULT_DOCS = Path(RESULTS), Path("docs")
EXIT_UNSOUND, EXIT_FAILED, EXIT_INTERRUPTED = 1, 2, 130

_results = click.argument(
    "results", type=click.Path(path_type=Path), default=DEFAULT_RESULTS, required=False
)
_docs = click.option(
    "--docs", type=click.Path(path_type=Path, file_okay=False, exists=True), default=DEFAULT_DOCS,
    show_default=True, help="The folder of the site's pages; mkdocs.yml stands beside it.",
)  # fmt: skip


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="nanoserve-report")
def cli() -> None:
    """From judged results to a published, versioned site."""


@cli.command()
@_results
@_docs
@click.option(
    "--site", type=click.Path(path_type=Path, file_okay=False), default=Path("site"),
    show_default=True, help="Where the finished site goes.",
)  # fmt: skip
@click.option("--pages-only", is_flag=True, help="Write docs/results/ and leave the site alone.")
def build(results: Path, docs: Path, site: Path, pages_only: bool) -> None:
    """Judge RESULTS (default bench/results), write docs/results/, build the site strictly.

    What is refused is shown as a hole with its reason. The exit code is 1 when anything is
    unsound and was not acknowledged in its plan, or when there is nothing to show.
    """
    if not pages_only:
        site.mkdir(parents=True, exist_ok=True)  # said now, and not by mkdocs after the judging
    study, book = _compose(results, docs, _kept(docs))
    book.write(docs)
    click.echo(f"{len(book.files)} files written below {docs / 'results'}")
    if not pages_only:
        build_site(docs.resolve().parent, site, study)
        click.echo(f"site built: {site / 'index.html'}")
    _stop_if_unsound(study, "The pages were built and show it.")


@cli.command()
@_results
@_docs
def check(results: Path, docs: Path) -> None:
    """Regenerate everything in memory; fail on what is unsound, stale, missing or unlinked.

    Pages are compared with docs/results/ where that exists. Every link and anchor of the generated
    pages has to lead somewhere, every figure has to have its data, and every page has to be small.
    """
    study, book = _compose(results, docs)  # everything is drawn, whatever an earlier build kept
    problems = [
        f"{link.page}: links to {link.target}{f'#{link.anchor}' if link.anchor else ''}, which "
        "does not exist"
        for link in dict.fromkeys(book.broken_links(docs))
    ]
    problems += [
        f"{name}: the figure has no data beside it"
        for name in sorted(book.files)
        if name.startswith(f"{ROOT}/figures/")
        and name.endswith(".svg")
        and len(book.files.get(f"{name[:-4]}.csv", b"").splitlines()) < 2
    ]
    problems += [
        f"{name} has {len(content):,} bytes, and a page stays below {MOST_BYTES:,}"
        for name, content in sorted(book.files.items())
        if name.endswith(".md") and len(content) >= MOST_BYTES
    ]
    if (docs / "results").is_dir():
        problems += [f"{line}: run nanoserve-report build" for line in book.differences(docs)]
    for problem in problems[:MOST_LINES]:
        click.echo(problem, err=True)
    if len(problems) > MOST_LINES:
        click.echo(f"and {len(problems) - MOST_LINES} more", err=True)
    _stop_if_unsound(study, "")
    if problems:
        sys.exit(EXIT_UNSOUND)
    click.echo(f"{len(book.files)} files are as they should be")


@cli.command()
@click.argument("version")
@click.argument("aliases", nargs=-1)
@_docs
@click.option(
    "--results", type=click.Path(path_type=Path), default=DEFAULT_RESULTS, show_default=True,
    help="The folder that holds the results folders.",
)  # fmt: skip
def publish(version: str, aliases: tuple[str, ...], docs: Path, results: Path) -> None:
    """Commit the site as VERSION (with ALIASES, such as latest) to the branch gh-pages.

    Everything is judged and written again first; an unsound study is not published. Nothing is
    pushed.
    """
    study, book = _compose(results, docs, _kept(docs))
    _stop_if_unsound(study, "Nothing was published.")
    book.write(docs)
    click.echo(publish_version(docs.resolve().parent, study, version, aliases))


@cli.command()
@_results
@click.option(
    "--to", type=click.Path(path_type=Path, dir_okay=False), default=PICTURE, show_default=True,
    help="The file to write, an SVG that follows the reader's colour scheme.",
)  # fmt: skip
def picture(results: Path, to: Path) -> None:
    """Draw the picture of a README: the speedups of the study in RESULTS that leads the site."""
    drawn = draw_picture(load(results))
    to.parent.mkdir(parents=True, exist_ok=True)
    to.write_text(drawn.svg, encoding="utf-8")
    click.echo(f"wrote {to}: {drawn.alt}")


@cli.command()
@click.argument("repository", type=click.Path(path_type=Path), default=Path())
def init(repository: Path) -> None:
    """Lay what judging and publishing need into another REPOSITORY (default: this folder).

    That is the site's configuration and first page, a folder for results, a workflow and a
    pre-commit hook. Nothing that is there is overwritten: if a file is in the way, nothing is done.
    """
    laid = lay(repository)
    for path in laid.written:
        click.echo(f"wrote {repository / path}")
    for path, lines in laid.left:
        click.echo(f"left {repository / path} as it is; add to it:\n{indent(lines, '    ')}")
    click.echo(
        f"Next: put a results folder into {repository / RESULTS} (nanoserve-bench sweep writes "
        "one there), then run there: nanoserve-report build"
    )


def _kept(docs: Path) -> Path:
    """Where figures are kept between builds; may be deleted at any time."""
    return docs.resolve().parent / "build" / "drawings"


def _compose(results: Path, docs: Path, drawings: Path | None = None) -> tuple[Study, Book]:
    # The default root is made by the first sweep: before that it is empty, not a mistake.
    nothing_yet = results == DEFAULT_RESULTS and not results.exists()
    study = Study(folders=()) if nothing_yet else load(results)
    book = compose(study, drawings)
    about = sites.read(docs.resolve().parent)
    book.add(llms.NAME, llms.text(book, study, docs, about).encode())
    return study, book


def _stop_if_unsound(study: Study, consequence: str) -> None:
    message = unsound_message(study)
    if message:
        click.echo(f"{message}\n{consequence}".rstrip(), err=True)
        sys.exit(EXIT_UNSOUND)


def unsound_message(study: Study) -> str:
    """What is unsound and not acknowledged, rule by place, and the first thing to do."""
    if not study.folders:
        return (
            "nothing to show: there is no results folder.\n"
            "First: measure with `nanoserve-bench sweep`."
        )
    calibrations = [
        f"calibration {item.name}: {problem}"
        for item in study.refused_calibrations
        for problem in item.problems
    ]
    if study.bare and not calibrations and not any(f.refusing for f in study.folders):
        return (
            f"nothing to show: none of {len(study.folders)} results folder(s) has a sound cell.\n"
            "First: measure with `nanoserve-bench sweep`."
        )
    found = [(folder, finding) for folder in study.folders for finding in folder.refusing]
    if not found:
        return "\n".join(calibrations)
    lines = [*calibrations, f"{len(found)} finding(s) that no plan acknowledges:"]
    said = [
        f"  {name}: {rule} {_places([finding.place for _, finding in alike])}: {message}"
        for (name, rule, message), alike in groupby(
            found, key=lambda pair: (pair[0].name, pair[1].rule, pair[1].message)
        )
    ]
    lines += said[:MOST_LINES]
    if len(said) > MOST_LINES:
        lines.append(f"  and {len(said) - MOST_LINES} more, all on the page of refusals")
    folder, first = found[0]
    hint = first.hint or "Read what the rule demands."
    return "\n".join(
        [
            *lines,
            f"First: {hint} ({folder.name}, {first.place})",
            f"`nanoserve-bench explain {first.rule}` says why.",
        ]
    )


def _places(places: list[str]) -> str:
    """Where one thing is wrong, in a line that can still be read."""
    more = len(places) - MOST_PLACES
    return ", ".join(places[:MOST_PLACES]) + (f" and {more} more" if more > 0 else "")


def main() -> None:
    """Run the command line; what is raised on purpose ends as a message without a traceback.

    So does what the file system refuses: a full disk, a page that must not be written.
    """
    try:
        code = cli.main(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except click.Abort:
        click.echo("interrupted", err=True)
        code = EXIT_INTERRUPTED
    except (BenchError, BookError, PublishError, ScaffoldError, OSError) as error:
        click.echo(str(error), err=True)
        code = EXIT_FAILED
    sys.exit(code)
