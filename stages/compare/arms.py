"""What can be compared: an arm is the user's chain with a few settings changed."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from formats import artifacts
from formats.errors import ArtifactError, SettingError
from stages.savings import train_seconds

Changes = Mapping[str, Mapping[str, Any]]  # section, setting, value; as they stand in the TOML file

FULL, RANDOM = "full", "random"


@dataclass(frozen=True)
class Arm:
    """One method.

    Attributes:
        name: as the user calls it.
        what: in a few words.
        changes: to the chain, by section and setting.
        costs: the stages whose time is the price of selecting this way. An arm that looks at no
            signature pays nothing, although our chain computes them for it.
        equal_steps: trained for as many steps as all rows are, in more epochs.
        before: seconds of training that had to be done before anything could be scored; None where
            nobody knows, so that no saving is claimed.
    """

    name: str
    what: str
    changes: Changes = field(default_factory=dict)
    costs: tuple[str, ...] = ("score", "cluster", "select")
    equal_steps: bool = False
    before: float | None = 0.0


def _select(**changes: Any) -> Changes:
    return {"select": changes}


_FREE: tuple[str, ...] = ()
_SCORED = ("score", "select")

ARMS = {
    arm.name: arm
    for arm in (
        Arm(FULL, "all rows", _select(method="all"), _FREE),
        Arm(RANDOM, "drawn at random", _select(method="random"), _FREE),
        Arm(
            "balanced-random",
            "at random, equal from every cluster",
            _select(method="balanced-random"),
        ),
        Arm("proportional", "at random, in proportion", _select(method="proportional")),
        Arm("loss", "highest loss", _select(method="loss"), _SCORED),
        Arm("loss-mid", "middle loss", _select(method="loss-mid"), _SCORED),
        Arm("norm", "largest gradient", _select(method="norm"), _SCORED),
        Arm("k-centre", "k-centre greedy", _select(method="k-centre"), _SCORED),
        Arm("facility", "facility location", _select(method="facility"), _SCORED),
        Arm("tagcos", "orthogonal matching pursuit in clusters", _select(method="tagcos")),
        Arm(
            "embedding",
            "clusters of mean hidden states",
            {"score": {"kind": "embedding"}, "select": {"method": "embedding"}},
        ),
        Arm(
            "s2l",
            "clusters of loss trajectories",
            {"score": {"kind": "trajectory"}, "select": {"method": "s2l"}},
        ),
        Arm("cluster", "the method, as the file has it", _select(method="cluster")),
        Arm(
            "cluster-published",
            "as published: equal quotas, farthest but for 1 % of outliers, weighted",
            _select(quota="equal", within="farthest", weights=True, trim=0.01),
        ),
        Arm("cluster-head", "forward-only signatures", {"score": {"kind": "head"}}),
        Arm("cluster-gradient", "gradient signatures", {"score": {"kind": "gradient"}}),
        Arm("cluster-warm", "scored after a warm-up on 5 %", {"score": {"warmup_fraction": 0.05}}),
        Arm("cluster-proxy", "scored with another model", {}),
        Arm("cluster-no-centre", "mean direction left in", {"cluster": {"centre": False}}),
        Arm("cluster-proportional", "quotas by size", _select(quota="proportional")),
        Arm("cluster-mild", "quotas by size to the power 0.75", _select(quota=0.75)),
        Arm("cluster-equal", "equal quotas", _select(quota="equal")),
        Arm("cluster-neyman", "quotas by size times spread", _select(quota="neyman")),
        Arm("cluster-weighted", "weighted by the clusters' shares", _select(weights=True)),
        Arm(
            "cluster-farthest",
            "the least typical within clusters, but for 1 % of outliers",
            _select(within="farthest", trim=0.01),
        ),
        Arm("cluster-trimmed", "1 % of outliers set aside", _select(trim=0.01)),
        Arm("cluster-nearest", "the most typical within clusters", _select(within="nearest")),
        Arm("cluster-diverse", "k-centre within clusters", _select(within="diverse")),
        Arm(
            "cluster-random-allocation",
            "rows dealt to ranks at random",
            {"allocate": {"strategy": "random"}},
        ),
        Arm(
            "cluster-balanced-order",
            "every batch like the whole selection",
            {"allocate": {"strategy": "balanced"}},
        ),
    )
}

SEEDED = ("cluster", "select", "allocate", "train")  # scoring is shared by all seeds


def find_arms(
    names: Sequence[str],
    custom: Sequence[str],
    proxy: str | None = None,
    checkpoints: Sequence[str] = (),
) -> list[Arm]:
    """The arms by their names, and those the user makes up.

    Args:
        names: of ``ARMS``.
        custom: ``NAME=section.key=value,section.key=value``; changes to the method.
        proxy: the model of ``cluster-proxy``.
        checkpoints: the models of ``s2l``, in training order.

    Raises:
        SettingError: a name is unknown or stands twice, or a made-up arm cannot be read; all problems
            are named at once.
    """
    problems: list[str] = []
    arms = []
    for name in names:
        arm = ARMS.get(name)
        if arm is None:
            close = difflib.get_close_matches(name, ARMS, n=1)
            hint = f" (did you mean {close[0]!r}?)" if close else ""
            problems.append(f"there is no arm {name!r}{hint}; arms are {', '.join(ARMS)}")
        elif name == "cluster-proxy" and not proxy:
            problems.append("the arm cluster-proxy needs --proxy MODEL")
        elif name == "s2l" and len(checkpoints) < 2:
            problems.append("the arm s2l needs --checkpoint EARLIER --checkpoint LATER")
        else:
            arms.append(_with_models(arm, proxy, checkpoints))
    arms += [arm for text in custom if (arm := _made_up(text, problems))]
    seen = [arm.name for arm in arms]
    problems += [
        f"the arm {name!r} stands twice" for name in sorted({n for n in seen if seen.count(n) > 1})
    ]
    if problems:
        raise SettingError("; ".join(problems), problems=problems)
    return arms


def merge(*changes: Changes) -> dict[str, dict[str, Any]]:
    """Several changes as one; later ones win."""
    result: dict[str, dict[str, Any]] = {}
    for change in changes:
        for section, values in change.items():
            result.setdefault(section, {}).update(values)
    return result


def seeded(seed: int) -> Changes:
    """Everything that is drawn at random for one seed, the same for every arm: seeds are paired."""
    return {section: {"seed": seed} for section in SEEDED}


def with_equal_steps(arms: Sequence[Arm]) -> list[Arm]:
    """The arms, and each but the full one again with as many steps as the full one takes."""
    again = [
        replace(
            arm,
            name=f"{arm.name}+steps",
            what=f"{arm.what}, as many steps as all rows",
            equal_steps=True,
        )
        for arm in arms
        if arm.name != FULL
    ]
    return [*arms, *again]


def _with_models(arm: Arm, proxy: str | None, checkpoints: Sequence[str]) -> Arm:
    """The arm, with the models that only the user can name."""
    if arm.name == "cluster-proxy":
        return replace(arm, what=f"scored with {proxy}", changes={"score": {"proxy": proxy}})
    if arm.name == "s2l":
        changes = merge(arm.changes, {"score": {"checkpoints": list(checkpoints)}})
        return replace(arm, changes=changes, before=_trained(checkpoints))
    return arm


def _trained(checkpoints: Sequence[str]) -> float | None:
    """Seconds that training the checkpoints took, where they all lie in runs of ours."""
    runs: dict[Path, float] = {}
    for checkpoint in checkpoints:
        folder = Path(checkpoint).absolute()
        for place in (folder, *list(folder.parents)[:2]):  # run/model, run/checkpoints/step
            try:
                runs[place] = train_seconds(place, artifacts.read_header(place, "run"))
                break
            except ArtifactError:
                continue
        else:
            return None
    return sum(runs.values())


def _made_up(text: str, problems: list[str]) -> Arm | None:
    name, equals, rest = text.partition("=")
    changes: dict[str, dict[str, Any]] = {}
    for assignment in filter(None, rest.split(",")):
        target, sign, value = assignment.partition("=")
        section, dot, key = target.strip().partition(".")
        if not (sign and dot and section and key):
            problems.append(f"--arm {text!r}: {assignment!r} is not of the form section.key=value")
            return None
        changes.setdefault(section, {})[key.replace("-", "_")] = _value(value.strip())
    if not equals or not name or not changes:
        problems.append(f"--arm {text!r} is not of the form NAME=section.key=value")
        return None
    return Arm(name, rest, changes)


def _value(text: str) -> Any:
    """A TOML value where it is one, else the text itself."""
    import tomllib

    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
