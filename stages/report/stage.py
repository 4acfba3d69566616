"""The report stage: a run or a comparison in, one page or one comment out."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

from formats import artifacts
from formats.comparison import KIND, NAME, Comparison
from formats.errors import ArtifactError, SettingError
from formats.kinds import artifact_path, find_kind
from stages.report import markdown, page
from stages.report.document import Report
from stages.report.of_comparison import of_comparison
from stages.report.of_run import of_run
from stages.report.subject import Subject
from stages.reporting import Reporter, Silent

FORMATS = {"html": page.page, "md": markdown.markdown}
STDOUT: Literal["-"] = "-"
_LOOKED = 1_000  # characters in which a report says that it is one


def report(
    source: Path,
    output: Path | Literal["-"],
    *,
    form: str = "html",
    evaluation: Path | None = None,
    full: Path | None = None,
    by: str | None = None,
    force: bool = False,
    reporter: Reporter = Silent(),
) -> None:
    """Writes a report that needs nothing but itself.

    The same artifacts give the same bytes: no time and no machine stands in it. What a run's chain lacks is
    said in its place.

    Args:
        source: a run or a comparison: its folder, ``run.json`` or ``comparison.json``.
        output: the file to write, or "-" for stdout.
        form: ``html``, a page; or ``md``, a short text for a pull request.
        evaluation: an ``evaluation.json`` of the run.
        full: a run on everything, to say what was saved.
        by: a column of the data that tells its sources apart; ``stages.inspect.mix`` finds one otherwise.
        force: replace a file that is no report.
        reporter: where messages go.

    Raises:
        SettingError: an unknown form, something that a comparison has no use for, an evaluation of
            another model, or a column that no row has.
        DataError: a column is asked for, but the data are not there.
        ArtifactError: the source, the evaluation or the full run cannot be read, or the output cannot
            be written or is no report.
    """
    if form not in FORMATS:
        raise SettingError(f"there is no format {form!r}", fix=f"use {' or '.join(FORMATS)}")
    if output != STDOUT:
        _check(Path(output), force)
    text = FORMATS[form](_made(Path(source), evaluation, full, by))
    if output == STDOUT:
        sys.stdout.write(text)
        return
    output = Path(output)
    output.parent.mkdir(parents=True, exist_ok=True)
    with artifacts.atomic_file(output) as stream:
        stream.write(text)
    reporter.message(f"{output}: {len(text.encode()) / 1000:,.0f} kB")


def _made(source: Path, evaluation: Path | None, full: Path | None, by: str | None) -> Report:
    if _is_comparison(source):
        if evaluation or full or by:
            raise SettingError(
                f"{source} is a comparison: it has evaluations, full runs and groups of its own",
                fix="drop --evaluation, --full and --by",
            )
        return of_comparison(Comparison.open(source))
    run = artifact_path(source)
    kind = find_kind(run)
    if kind != "run":
        raise ArtifactError(
            f"{source} is {kind}; a report is made of a run or a comparison",
            fix=f"give the output of `cluster-cli train` or `cluster-cli compare`, or look at it with "
            f"`cluster-cli inspect {source}`",
        )
    return of_run(Subject.open(run, evaluation, full, by))


def _is_comparison(source: Path) -> bool:
    if source.is_dir():
        return (source / NAME).is_file()
    return source.is_file() and source.name not in ("run.json",) and find_kind(source) == KIND


def _check(output: Path, force: bool) -> None:
    """Whether nothing is lost when the output is written.

    Raises:
        ArtifactError: a folder or a file that is no report stands there.
    """
    if output.is_dir():
        raise ArtifactError(f"{output} is a folder", fix="name a file, such as report.html")
    if force or not output.exists():
        return
    try:
        with open(output, encoding="utf-8", errors="replace") as stream:
            start = stream.read(_LOOKED)
    except OSError as error:
        raise ArtifactError(f"cannot read {output}: {error.strerror}") from error
    if start and not any(mark in start for mark in (page.MARK, markdown.MARK)):
        raise ArtifactError(
            f"{output} exists and is no report", fix="choose another output, or add --force"
        )
