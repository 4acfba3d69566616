"""Which rule finds the number of planted lessons? ``python tests/benchmarks/auto_clusters.py --help``

Rows around known directions, of several kinds: few and many lessons, equal and very unequal ones, close
sisters, weak ones, and some hidden among rows that teach nothing in common. Each rule sees the same curves:

* ``information``: the smallest K that keeps 98 % of the most information, this project's second rule;
* ``stability``: the largest K whose two maps agree within 0.02 of the best (Ben-Hur et al. 2002);
* ``0.9 of stability``: the largest whose agreement is at least 0.9 of the best;
* ``auto``: the rule of ``stages.cluster.auto``.

A rule's error is |log2(K / planted)|: 1 means twice too many or too few. ``agreement`` is the adjusted Rand
index of the map with that K and the planted lessons; ``planted`` is a map with the true K, and ``k-means``
one made by k-means alone.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from stages.cluster import auto  # noqa: E402
from stages.cluster.assign import labels  # noqa: E402
from stages.cluster.fit import centre_rows, fit, mean_direction  # noqa: E402
from stages.cluster.join import fit_joined  # noqa: E402


@dataclass(frozen=True)
class Scene:
    """Made-up lessons.

    Attributes:
        noise: length of what a row adds to its lesson's direction.
        unequal: sizes fall like rank to the minus this.
        diffuse: share of rows without a lesson.
        families: so many groups of lessons that resemble each other; 0 for none.
    """

    name: str
    lessons: int
    rows: int
    noise: float = 2.0
    unequal: float = 0.0
    diffuse: float = 0.0
    families: int = 0


SCENES = (
    Scene("few", 4, 2000),
    Scene("some", 16, 3000),
    Scene("many", 64, 4000, noise=1.5),
    Scene("very many", 200, 6000, noise=1.2),
    Scene("small data", 10, 300, noise=1.5),
    Scene("weak", 16, 3000, noise=3.0),
    Scene("unequal", 12, 3000, unequal=1.0),
    Scene("many unequal", 50, 5000, noise=1.5, unequal=1.0),
    Scene("diffuse noise", 8, 2000, noise=1.5, diffuse=0.3),
    Scene("unequal, diffuse", 32, 4000, noise=1.5, unequal=0.5, diffuse=0.3),
    Scene("families", 30, 4000, noise=1.5, families=6),
)


def plant(scene: Scene, dims: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Centred unit rows (S, D) float32, and the lesson of each, -1 for none."""
    random = np.random.default_rng(seed)
    direction_LD = _unit(random.normal(size=(scene.lessons, dims)))
    if scene.families:
        family = np.arange(scene.lessons) % scene.families
        direction_LD = _unit(
            direction_LD + _unit(random.normal(size=(scene.families, dims)))[family]
        )
    share = np.arange(1, scene.lessons + 1) ** -scene.unequal
    lesson = random.choice(scene.lessons, scene.rows, p=share / share.sum())
    noise_SD = random.normal(size=(scene.rows, dims)) / np.sqrt(dims)
    lost = random.random(scene.rows) < scene.diffuse
    lesson[lost] = -1
    row_SD = np.where(lost[:, None], 0, direction_LD[lesson]) + scene.noise * noise_SD
    row_SD = (_unit(row_SD) + 0.7 * _unit(random.normal(size=(1, dims)))).astype(np.float32)
    row_SD = _unit(row_SD).astype(np.float32)
    centre_rows(row_SD, mean_direction(row_SD, np.ones(scene.rows)))
    return row_SD, lesson


def _unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def informed(curve: list[dict[str, Any]], kept: float = 0.98) -> int:
    """The smallest K that keeps nearly all the information, this project's second rule."""
    enough = kept * auto.most_information(curve)
    return next(at for at, point in enumerate(curve) if point["information"] >= enough)


def agreed_best(curve: list[dict[str, Any]]) -> int:
    """The largest K within 0.02 of the best agreement."""
    agreement = np.array([point["agreement"] for point in curve])
    return int(np.flatnonzero(agreement >= agreement.max() - 0.02)[-1])


def agreed_well(curve: list[dict[str, Any]]) -> int:
    """The largest K whose agreement is at least 0.9 of the best."""
    agreement = np.array([point["agreement"] for point in curve])
    return int(np.flatnonzero(agreement >= 0.9 * agreement.max())[-1])


RULES: dict[str, Callable[[list[dict[str, Any]]], int]] = {
    "information": informed,
    "stability": agreed_best,
    "0.9 of stability": agreed_well,
    "auto": auto.decide,
}


def trial(scene: Scene, dims: int, seed: int) -> dict[str, Any]:
    """What each rule chooses for one made-up dataset."""
    from sklearn.metrics import adjusted_rand_score

    row_SD, lesson = plant(scene, dims, seed)
    weight_S, taught = np.ones(len(row_SD)), lesson >= 0
    curve = auto.measure(row_SD, weight_S, seed)
    found = {name: curve[rule(curve)]["clusters"] for name, rule in RULES.items()}

    def agreement(clusters: int) -> float:
        label_S = labels(row_SD, fit_joined(row_SD, weight_S, clusters, seed))
        return round(float(adjusted_rand_score(lesson[taught], label_S[taught])), 4)

    def plain() -> float:
        label_S = labels(row_SD, fit(row_SD, weight_S, scene.lessons, seed, tries=4))
        return round(float(adjusted_rand_score(lesson[taught], label_S[taught])), 4)

    agreed = {clusters: agreement(clusters) for clusters in {scene.lessons, *found.values()}}
    return {
        "clusters": found,
        "agreement": {name: agreed[clusters] for name, clusters in found.items()}
        | {"planted": agreed[scene.lessons], "k-means": plain()},
    }


def table(results: list[dict[str, Any]]) -> str:
    """The chosen numbers and the mean error and agreement of each rule, for people."""
    lines = [f"{'lessons':<18}{'planted':>8}" + "".join(f"{name:>18}" for name in RULES)]
    for result in results:
        chosen = [
            " ".join(str(t["clusters"][name]) for t in result["trials"]).rjust(18) for name in RULES
        ]
        lines.append(f"{result['name']:<18}{result['lessons']:>8}" + "".join(chosen))
    for title, figure in (("mean error", error), ("mean agreement", agreed)):
        lines.append(f"{title:<26}" + "".join(f"{figure(results, name):>18.2f}" for name in RULES))
    lines.append(f"mean agreement with the planted number: {agreed(results, 'planted'):.2f}")
    lines.append(f"the same, k-means alone: {agreed(results, 'k-means'):.2f}")
    return "\n".join(lines)


def error(results: list[dict[str, Any]], rule: str) -> float:
    """Mean |log2(K / planted)|."""
    off = [
        abs(np.log2(trial["clusters"][rule] / result["lessons"]))
        for result in results
        for trial in result["trials"]
    ]
    return float(np.mean(off))


def agreed(results: list[dict[str, Any]], rule: str) -> float:
    """Mean adjusted Rand index with the planted lessons."""
    return float(np.mean([t["agreement"][rule] for result in results for t in result["trials"]]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dims", type=int, default=256)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", help="scenes whose name contains this")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    results = []
    for scene in SCENES:
        if options.only and options.only not in scene.name:
            continue
        trials = [trial(scene, options.dims, seed) for seed in range(options.seeds)]
        results.append({**asdict(scene), "trials": trials})
        print(f"{scene.name}: {[t['clusters'] for t in trials]}", file=sys.stderr, flush=True)
    print(table(results))
    if options.output:
        summary = {
            rule: {
                "error": round(error(results, rule), 4),
                "agreement": round(agreed(results, rule), 4),
            }
            for rule in RULES
        }
        record = {
            "dims": options.dims,
            "seeds": options.seeds,
            "rules": summary,
            "results": results,
        }
        options.output.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
