"""Running what is not up to date."""

from __future__ import annotations

from pathlib import Path

from formats import artifacts
from formats.artifacts import Header
from formats.errors import SettingError
from stages import workers
from stages.pipeline.chain import LINKS, Pipeline, Upstream
from stages.pipeline.states import INCOMPLETE, State, accepted, judge, window
from stages.reporting import Reporter, Silent


def run(
    pipeline: Pipeline,
    *,
    since: str | None = None,
    until: str | None = None,
    force: bool = False,
    reporter: Reporter = Silent(),
) -> list[State]:
    """Runs the stages whose output is not what they would make now, in order.

    A stage that fails ends the run; what was there before stays, and the next run goes on from it.

    Args:
        pipeline: the chain.
        since: the first stage to look at; those before it are taken as they are.
        until: the last stage to look at.
        force: run these stages whatever their state.
        reporter: where messages and progress go.

    Returns:
        The state every stage was found in, before it ran.

    Raises:
        SettingError: there is no such stage; or this is one rank of a launch, where every rank would run
            the chain.
        ClusterCliError: whatever a stage raises.
    """
    if workers.inside_launch():
        raise SettingError(
            "run starts its ranks itself, but this is one rank of many",
            fix="call it outside of torchrun, srun or deepspeed, or call a single stage",
        )
    names = window(pipeline, since, until)
    before = accepted(pipeline, since)
    found: list[State] = []
    for name in names:
        state = judge(pipeline, name, before)
        if state.fresh and not force:
            artifacts.touch(state.output, LINKS[name].kind)
            reporter.message(f"{name}: {state.output} is up to date")
        else:
            why = "forced" if state.fresh else "; ".join(state.reasons)
            again = state.state == INCOMPLETE and not force
            reporter.message(f"{name}: {f'going on with {why}' if again else why}")
            call_stage(pipeline, state, before.path if before else None, force, reporter)
        found.append(state)
        header = artifacts.read_header(state.output, LINKS[name].kind)
        before = Upstream(state.output, header.key, header)
    return found


def call_stage(
    pipeline: Pipeline, state: State, source: Path | None, force: bool, reporter: Reporter
) -> Header:
    """Runs one stage on its input; a half-done training goes on from its last checkpoint.

    Raises:
        ClusterCliError: whatever the stage raises.
    """
    arguments = dict(pipeline.arguments[state.stage])
    if state.stage == "train" and state.state == INCOMPLETE and not force:
        arguments["resume"] = True
    return LINKS[state.stage].call(arguments, source, state.output, force=force, reporter=reporter)
