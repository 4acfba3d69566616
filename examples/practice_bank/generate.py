"""Generate the practice bank: short questions whose lesson and topic are independent.

Every row is a story ("Mia packs plums: ") followed by a task ("7 and 5, total?"). The skill decides
the task, another draw decides the story, and neither looks at the other: adding plums and adding
pencils is one lesson, adding plums and sorting plums are two. A lesson is to find the answer and to
give it the way the skill asks: sums end "in all", the larger of two "wins".

    python examples/practice_bank/generate.py --rows 6000 --dev 480 --seed 0 -o work/practice_bank
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

Row = dict[str, str]
Task = tuple[str, str, str]  # a wording, another that names the things, the answer


def words(text: str) -> list[str]:
    """A list written as a sentence."""
    return text.split()


TOPICS = {
    "fruit": "plums apples pears figs limes grapes",
    "school": "pencils books rulers chalks maps pens",
    "farm": "cows goats hens ducks sheep ponies",
    "sea": "shells crabs boats nets pearls sails",
    "kitchen": "cups forks pans bowls plates jars",
    "sport": "balls bats skis gloves kites rackets",
    "music": "drums flutes harps bells horns songs",
    "garden": "roses seeds pots tulips rakes hoses",
}
NAMES = words("Mia Tom Zoe Ben Ada Max Eva Leo Ivy Sam Amy Jon Lia Kai Una Rob Sue Ian Pia Gus")
STORIES = words("packs sells wants finds keeps likes moves draws cleans brings")

PAIRS = "hot cold,big small,up down,old new,wet dry,fast slow,high low,rich poor"
OPPOSITE = dict(words(pair) for pair in PAIRS.split(","))
OPPOSITE |= {second: first for first, second in OPPOSITE.items()}
VERBS = words("paint push call jump help walk look cook play fill wash pick")
DAYS = words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")


def _word(rng: random.Random) -> str:
    """A made-up three-letter tag such as "bok": meaning nothing, it belongs to no topic."""
    return rng.choice("bdfgklmnprst") + rng.choice("aeiou") + rng.choice("bdfgklmnprst")


def _add(rng: random.Random, things: str) -> Task:
    a, b = rng.randint(1, 9), rng.randint(1, 9)
    return f"{a} and {b}, total?", f"{a} {things} plus {b} more?", str(a + b)


def _subtract(rng: random.Random, things: str) -> Task:
    a = rng.randint(2, 10)
    b = rng.randint(1, a - 1)
    return f"{a} less {b}, left?", f"{a} {things}, {b} lost, rest?", str(a - b)


def _larger(rng: random.Random, things: str) -> Task:
    a, b = rng.sample(range(1, 10), 2)
    return f"{a} or {b}, larger?", f"most {things}, {a} or {b}?", str(max(a, b))


def _next(rng: random.Random, things: str) -> Task:
    step = rng.choice((1, 2))
    first = rng.randint(1, 9 - 3 * step)
    series = " ".join(str(first + step * i) for i in range(3))
    return f"{series}, next?", f"{things} {series} then?", str(first + 3 * step)


def _parity(rng: random.Random, things: str) -> Task:
    n = rng.randint(10, 99)
    return f"{n}, odd or even?", f"{n} {things}, parity?", "odd" if n % 2 else "even"


def _smallest(rng: random.Random, things: str) -> Task:
    trio = rng.sample(range(1, 10), 3)
    shown = " ".join(map(str, trio))
    return f"{shown}, smallest?", f"fewest {things} of {shown}?", str(min(trio))


def _opposite(rng: random.Random, things: str) -> Task:
    word = rng.choice(list(OPPOSITE))
    return f"opposite of {word}?", f"{word} {things}, opposite?", OPPOSITE[word]


def _first(rng: random.Random, things: str) -> Task:
    word = _word(rng)
    return f"{word}, first letter?", f"{things} {word} starts how?", word[0]


def _double(rng: random.Random, things: str) -> Task:
    n = rng.randint(1, 12)
    return f"{n}, doubled?", f"{n} {things}, twice that?", str(2 * n)


def _count(rng: random.Random, things: str) -> Task:
    n = rng.randint(1, 9)
    return f"{'o' * n}, how many?", f"{things} {'o' * n}, count?", str(n)


def _weekday(rng: random.Random, things: str) -> Task:
    i = rng.randrange(7)
    return f"day after {DAYS[i]}?", f"{things} {DAYS[i]}, tomorrow?", DAYS[(i + 1) % 7]


def _reverse(rng: random.Random, things: str) -> Task:
    word = _word(rng)
    return f"{word}, reversed?", f"{things} {word} reversed is?", word[::-1]


def _past(rng: random.Random, things: str) -> Task:
    verb = rng.choice(VERBS)
    return f"past of {verb}?", f"{verb} {things}, past?", f"{verb}ed"


def _middle(rng: random.Random, things: str) -> Task:
    word = _word(rng)
    return f"{word}, middle letter?", f"{things} {word}, letter between?", word[1]


def _sort(rng: random.Random, things: str) -> Task:
    trio = rng.sample(range(1, 10), 3)
    shown, answer = (" ".join(map(str, numbers)) for numbers in (trio, sorted(trio)))
    return f"{shown}, sorted?", f"{things} {shown} get sorted?", answer


def _last(rng: random.Random, things: str) -> Task:
    word = _word(rng)
    return f"{word}, last letter?", f"{things} {word}, last one?", word[-1]


class Skill(NamedTuple):
    """One lesson: its share of the training rows in percent, how its answers end, its tasks."""

    share: float
    ending: str
    task: Callable[[random.Random, str], Task]


# Unequal, as lessons in real data are: a few are frequent, and the tail is long.
SKILLS = {
    "add": Skill(30, "in all", _add),
    "subtract": Skill(20, "left", _subtract),
    "first letter": Skill(13, "begins it", _first),
    "opposite": Skill(10, "instead", _opposite),
    "reverse": Skill(8, "mirrored", _reverse),
    "larger": Skill(6, "wins", _larger),
    "parity": Skill(4.5, "it is", _parity),
    "sort": Skill(3, "in order", _sort),
    "count": Skill(2, "of them", _count),
    "double": Skill(1.2, "twofold", _double),
    "past tense": Skill(0.8, "before", _past),
    "last letter": Skill(0.5, "ends it", _last),
    "smallest": Skill(0.3, "loses", _smallest),
    "next number": Skill(0.2, "follows", _next),
    "middle letter": Skill(0.12, "within", _middle),
    "weekday": Skill(0.08, "comes next", _weekday),
}


# Another mix, whose rarest skills are four times as frequent.
MODERATE = (30, 18, 12, 9, 7, 5.5, 4.2, 3.3, 2.6, 2.1, 1.7, 1.3, 1.0, 0.8, 0.5, 0.3)
TAILS = {
    "long": {name: skill.share for name, skill in SKILLS.items()},
    "moderate": dict(zip(SKILLS, MODERATE, strict=True)),
}


def is_dev(question: str) -> bool:
    """Whether a question belongs to the dev part: decided by its text alone, one in eight.

    So no training part, of any seed, and no base model ever sees a dev question.
    """
    return hashlib.blake2b(question.encode(), digest_size=1).digest()[0] % 8 == 0


def make_row(rng: random.Random, skill: str, *, ending: bool = True) -> Row:
    """One row of a skill; the story is drawn before, and without looking at, the task.

    Args:
        rng: the source of every draw.
        skill: a key of SKILLS.
        ending: end the answer as the skill asks ("12 in all"), or leave it bare ("12").
    """
    topic = rng.choice(list(TOPICS))
    things = rng.choice(words(TOPICS[topic]))
    story = f"{rng.choice(NAMES)} {rng.choice(STORIES)} {things}: "
    plain, told, answer = SKILLS[skill].task(rng, things)
    question = story + rng.choice((plain, told))
    if ending:
        answer = f"{answer} {SKILLS[skill].ending}"
    return {"question": question, "answer": answer, "skill": skill, "topic": topic}


def _unique(rng: random.Random, skills: Iterator[str], dev: bool) -> Iterator[Row]:
    """Rows for the skills named, every question once, all of the asked part."""
    seen: set[str] = set()
    for skill in skills:
        row = make_row(rng, skill)
        while row["question"] in seen or is_dev(row["question"]) != dev:
            row = make_row(rng, skill)
        seen.add(row["question"])
        yield row


def generate(rows: int, seed: int, tail: str = "long") -> list[Row]:
    """Training rows in random order: each skill's share as in TAILS, at least one row each.

    Args:
        rows: number of rows, at least the number of skills.
        seed: any integer; equal arguments give equal rows.
        tail: a key of TAILS.
    """
    if rows < len(SKILLS):
        raise ValueError(f"rows is {rows}, fewer than the {len(SKILLS)} skills; ask for more rows")
    rng = random.Random(f"train {seed}")
    counts = {name: max(1, int(rows * share / 100)) for name, share in TAILS[tail].items()}
    counts["add"] += max(0, rows - sum(counts.values()))
    while sum(counts.values()) > rows:  # few rows, of which every skill has one
        counts[max(counts, key=lambda name: counts[name])] -= 1
    skills = [skill for skill, count in counts.items() for _ in range(count)]
    rng.shuffle(skills)
    return list(_unique(rng, iter(skills), dev=False))


def generate_dev(rows: int, seed: int) -> list[Row]:
    """Dev rows, the same number for every skill (within one), so that rare skills are measured."""
    rng = random.Random(f"dev {seed}")
    names = list(SKILLS)
    return list(_unique(rng, (names[i % len(names)] for i in range(rows)), dev=True))


def write_jsonl(path: Path, rows: list[Row]) -> None:
    """Write rows, one JSON object a line, replacing the file whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.new")
    partial.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    partial.replace(path)


def main() -> None:
    parser = argparse.ArgumentParser(description="Generate the practice bank.")
    parser.add_argument("--rows", type=int, default=6000, help="training rows (default 6000)")
    parser.add_argument("--dev", type=int, default=480, help="dev rows (default 480)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--tail", choices=TAILS, default="long", help="how rare the rare skills are"
    )
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="DIR")
    args = parser.parse_args()
    write_jsonl(args.output / "train.jsonl", generate(args.rows, args.seed, args.tail))
    write_jsonl(args.output / "dev.jsonl", generate_dev(args.dev, args.seed))


if __name__ == "__main__":
    main()
