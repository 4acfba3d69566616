"""Exports of a small selection and allocation: every column, the added ones, the settings beside them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from formats import artifacts, selection
from formats.data import open_dataset
from formats.errors import ArtifactError, DataChangedError, DataError, SettingError
from stages.export import export
from tests import tiny
from tests.stages.export import places
from tests.stages.train import plans
from tests.synthetic import Notes

ORDER = [0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15]
WEIGHTS = {3: 3.0, 8: 0.5}


def write_rows(path: Path) -> Path:
    """Little sums with columns of their own, two of which are called as those that are added."""
    rows = [
        {**row, "id": number, "level": {"grade": number / 4}, "weight": None, "größe": "ü"}
        for number, row in enumerate(tiny.questions(24))
    ]
    return tiny.write_jsonl(path, rows)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "data.jsonl")


@pytest.fixture
def plan(tmp_path: Path, data: Path) -> Path:
    return places.full(tmp_path, data)


def select(folder: Path, data: Path, rows: list[int]) -> Path:
    """A selection of these rows."""
    with open_dataset([str(data)]) as dataset:
        ids, reference = dataset.ids[rows], dataset.reference(folder)
    header = artifacts.Header(
        "selection",
        "k",
        {},
        [],
        {"selected": len(rows)},
        reference,
        {"rendering": {"max_length": 64}},
    )
    columns = {
        "row": np.array(rows),
        "id": ids,
        "cluster": np.array(rows) % 3,
        "weight": np.array([WEIGHTS.get(row, 1.0) for row in rows]),
        "similarity": np.ones(len(rows), np.float32),
        "tokens": np.full(len(rows), 20, np.int32),
    }
    selection.write_selection(folder / "selection.jsonl", header, columns)
    return folder / "selection.jsonl"


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def own(row: dict[str, Any]) -> dict[str, Any]:
    """The row as it was in the data."""
    back = {"original_id": "id", "original_weight": "weight"}
    names = ("question", "answer", "level", "größe", *back)
    return {back.get(name, name): row[name] for name in names}


def test_every_column_in_plan_order(plan: Path, data: Path, tmp_path: Path) -> None:
    notes = Notes()
    header = export(plan, tmp_path / "out.jsonl", to="messages", reporter=notes)
    rows, before = read(tmp_path / "out.jsonl"), read(data)
    assert [own(row) for row in rows] == [before[number] for number in ORDER]
    with open_dataset([str(data)]) as dataset:
        for row, number in zip(rows, ORDER, strict=True):
            assert row["messages"] == dataset[number].messages
            assert row["id"] == dataset[number].id.hex()
            assert (row["weight"], row["cluster"]) == (WEIGHTS.get(number, 1.0), number % 3)
    assert header.stats == {"rows": 16, "steps": 2, "exact_steps": 2}
    assert notes.warnings == []
    assert notes.messages == [
        f"{tmp_path / 'out.jsonl'}: 16 rows for messages",
        "the data's own column id is now original_id",
        "the data's own column weight is now original_weight",
    ]


def test_a_selection_keeps_the_data_s_order(data: Path, tmp_path: Path) -> None:
    chosen = select(tmp_path, data, [3, 8, 20])
    export(chosen, tmp_path / "trl", to="trl")
    assert [own(row)["id"] for row in read(tmp_path / "trl" / "train.jsonl")] == [3, 8, 20]
    settings = yaml.safe_load((tmp_path / "trl" / "sft_config.yaml").read_text())
    assert settings == {"packing": False, "max_length": 64}


SHAPE = {"gradient_accumulation_steps": 2}
PER_DEVICE = {"per_device_train_batch_size": 2, **SHAPE}


def test_trl(plan: Path, tmp_path: Path) -> None:
    notes = Notes()
    header = export(plan, tmp_path / "out", to="trl", reporter=notes)
    text = (tmp_path / "out" / "sft_config.yaml").read_text()
    assert "# The order is the plan's on 2 processes.\n" in text
    assert yaml.safe_load(text) == {
        "packing": False,
        "max_length": plans.MAX_LENGTH,
        **PER_DEVICE,
        "train_sampling_strategy": "sequential",
        "shuffle_dataset": False,
        "num_train_epochs": 1,
    }
    row = read(tmp_path / "out" / "train.jsonl")[1]
    assert row["prompt"] == [{"role": "user", "content": row["question"]}]
    assert row["completion"] == [{"role": "assistant", "content": row["answer"]}]
    assert notes.warnings == [
        "TRL drops the column weight: keep weights and plan with stages.export.trainer.PlanMixin, "
        "or repeat rows with --repeat"
    ]
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest == header.to_json()
    assert (manifest["format"], manifest["inputs"][0]["path"]) == ("cluster-cli/export", "full")


def test_axolotl(plan: Path, tmp_path: Path) -> None:
    notes = Notes()
    export(plan, tmp_path / "out", to="axolotl", reporter=notes)
    assert yaml.safe_load((tmp_path / "out" / "axolotl.yaml").read_text()) == {
        "datasets": [
            {
                "path": f"{tmp_path / 'out'}/train.jsonl",
                "ds_type": "json",
                "type": "chat_template",
                "field_messages": "messages",
                "roles_to_train": ["assistant"],
                "message_field_training": "weight",
            }
        ],
        "sample_packing": False,
        "sequence_len": plans.MAX_LENGTH,
        "micro_batch_size": 2,
        **SHAPE,
        "shuffle_merged_datasets": False,
        "curriculum_sampling": True,
        "group_by_length": False,
        "dataloader_drop_last": False,
        "val_set_size": 0,
        "num_epochs": 1,
    }
    assert notes.warnings == [
        "axolotl drops the column weight, and takes the weight of a message for true or false: "
        "repeat rows with --repeat"
    ]


def test_llamafactory(plan: Path, tmp_path: Path) -> None:
    notes = Notes()
    export(plan, tmp_path / "out", to="llamafactory", reporter=notes)
    assert json.loads((tmp_path / "out" / "dataset_info.json").read_text()) == {
        "cluster_cli": {
            "file_name": "train.jsonl",
            "formatting": "sharegpt",
            "columns": {"messages": "messages"},
            "tags": {
                "role_tag": "role",
                "content_tag": "content",
                "user_tag": "user",
                "assistant_tag": "assistant",
                "system_tag": "system",
                "observation_tag": "tool",
            },
        }
    }
    assert yaml.safe_load((tmp_path / "out" / "llamafactory.yaml").read_text()) == {
        "stage": "sft",
        "dataset_dir": str(tmp_path / "out"),
        "dataset": "cluster_cli",
        "packing": False,
        "cutoff_len": plans.MAX_LENGTH,
        **PER_DEVICE,
        "mask_history": True,
        "disable_shuffling": True,
        "val_size": 0.0,
        "num_train_epochs": 1.0,
    }
    assert notes.warnings == [
        "LLaMA-Factory drops the column weight, and its v1 trainer divides weights away: "
        "repeat rows with --repeat"
    ]


def test_repeated_rows_weigh_one(plan: Path, tmp_path: Path) -> None:
    notes = Notes()
    header = export(plan, tmp_path / "out", to="axolotl", repeat=True, seed=1, reporter=notes)
    rows = read(tmp_path / "out" / "train.jsonl")
    times = np.bincount([own(row)["id"] for row in rows], minlength=16)
    assert times[3] == 3
    assert times[8] in (0, 1)
    assert len(rows) == times.sum() == header.stats["rows"]
    assert {row["weight"] for row in rows} == {1.0}
    left_out = int((times == 0).sum())
    assert notes.warnings == []
    assert notes.messages[0] == (
        f"16 rows become {len(rows)}: {left_out} are left out, one comes 3 times; "
        "the plan's steps are not kept"
    )


def conversation(turns: list[tuple[str, str]], **last: Any) -> dict[str, Any]:
    messages: list[dict[str, Any]] = [{"role": r, "content": text} for r, text in turns]
    messages[-1] |= last
    return {"messages": messages}


TALK = conversation([("user", "a"), ("assistant", "b"), ("user", "c"), ("assistant", "d")])


def test_turns_that_are_not_learned(tmp_path: Path) -> None:
    """TRL cannot leave a single turn out; axolotl can, and is told to."""
    muted = conversation([("user", "e"), ("assistant", "f"), ("user", "g"), ("assistant", "h")])
    muted["messages"][1]["weight"] = 0
    muted["messages"].append({"role": "user", "content": "never answered"})
    data = tiny.write_jsonl(tmp_path / "data.jsonl", [TALK, muted])
    chosen = select(tmp_path, data, [0, 1])
    for to, warned in (("trl", True), ("llamafactory", True), ("axolotl", False)):
        notes = Notes()
        export(chosen, tmp_path / to, to=to, reporter=notes)
        said = f"1 rows have assistant turns of weight 0, which {to} learns all the same"
        assert notes.warnings == ([said] if warned else [])
        rows = read(tmp_path / to / "train.jsonl")
        assert rows[0]["messages"] == TALK["messages"]
        assert rows[1]["messages"] == muted["messages"][:-1]
        assert rows[1]["original_messages"] == muted["messages"]
    settings = yaml.safe_load((tmp_path / "trl" / "sft_config.yaml").read_text())
    assert settings["assistant_only_loss"] is True
    # The last turn alone is learned: then TRL and LLaMA-Factory can be told too.
    chosen = select(tmp_path, data, [1])
    notes = Notes()
    export(chosen, tmp_path / "trl", to="trl", reporter=notes)
    assert notes.warnings == []
    (row,) = read(tmp_path / "trl" / "train.jsonl")
    assert row["completion"] == [{"role": "assistant", "content": "h"}]
    assert len(row["prompt"]) == 3


def test_plain_text_and_tools(tmp_path: Path) -> None:
    rows = [{"text": "once"}, {"text": "twice"}, TALK]
    data = tiny.write_jsonl(tmp_path / "data.jsonl", rows)
    export(select(tmp_path, data, [0, 1]), tmp_path / "out", to="axolotl")
    (dataset,) = yaml.safe_load((tmp_path / "out" / "axolotl.yaml").read_text())["datasets"]
    assert dataset["type"] == "completion"
    assert [row["text"] for row in read(tmp_path / "out" / "train.jsonl")] == ["once", "twice"]
    with pytest.raises(DataError) as caught:
        export(select(tmp_path, data, [0, 2]), tmp_path / "out", to="axolotl")
    assert str(caught.value) == "1 rows are plain text, 1 conversations; export them apart"


def test_parquet_holds_any_columns(tmp_path: Path) -> None:
    import pyarrow.parquet

    extra: list[dict[str, Any]] = [
        {"n": 1, "mixed": 1, "deep": {"a": [1, 2]}, "empty": {}},
        {"n": 2.5, "mixed": "one", "deep": {"b": "x"}, "none": None},
        {"mixed": [1], "late": True},
    ]
    made = [{**row, **more} for row, more in zip(tiny.questions(3), extra, strict=True)]
    data = tiny.write_jsonl(tmp_path / "data.jsonl", made)
    notes = Notes()
    export(
        select(tmp_path, data, [0, 1, 2]), tmp_path / "out.parquet", to="parquet", reporter=notes
    )
    rows = pyarrow.parquet.read_table(tmp_path / "out.parquet").to_pylist()
    assert [row["n"] for row in rows] == [1.0, 2.5, None]
    assert [json.loads(row["mixed"]) for row in rows] == [1, "one", [1]]
    assert rows[0]["deep"] == {"a": [1, 2], "b": None}
    assert rows[1]["deep"] == {"a": None, "b": "x"}
    assert [row["late"] for row in rows] == [None, None, True]
    assert [row["question"] for row in rows] == [row["question"] for row in made]
    assert [row["weight"] for row in rows] == [1.0, 1.0, 1.0]
    assert "messages" not in rows[0]
    assert notes.messages[0] == ("without a type of their own, written as JSON text: mixed, empty")


def test_plans_with_gaps(data: Path, tmp_path: Path) -> None:
    gap = [*places.FULL, [[[16], []], [[17], []]]]
    once = plans.write_allocation(tmp_path / "once", data, gap)
    twice = plans.write_allocation(tmp_path / "twice", data, gap, epochs=2)
    notes = Notes()
    export(once, tmp_path / "out", to="trl", reporter=notes)
    assert (notes.warnings, notes.messages[0]) == (
        [],
        "step 2 of 3, the last, is partly filled; "
        "accelerate fills it up with rows from the beginning",
    )
    notes = Notes()
    export(twice, tmp_path / "out", to="trl", reporter=notes)
    assert notes.warnings == [
        "the plan's micro-batches have 2 rows up to step 2 of 6, behind it a sampler deals rows out "
        "otherwise"
    ]
    export(twice, tmp_path / "out", to="trl", epoch=1)
    assert len(read(tmp_path / "out" / "train.jsonl")) == 18


def test_data_that_are_elsewhere_or_others(plan: Path, data: Path, tmp_path: Path) -> None:
    moved = data.rename(tmp_path / "moved.jsonl")
    with pytest.raises(DataError) as caught:
        export(plan, tmp_path / "out", to="trl")
    assert str(caught.value) == (
        f"the data file {data} is missing; put it back, or say where it is now with --data"
    )
    export(plan, tmp_path / "out", to="trl", data=[moved])
    before = (tmp_path / "out" / "train.jsonl").read_bytes()
    with pytest.raises(SettingError) as caught_too:
        export(plan, tmp_path / "out", to="trl", data=[moved, moved])
    assert str(caught_too.value) == (
        "--data names 2 files, 1 were read; name them all, in the order given to `cluster-cli score`"
    )
    tiny.write_jsonl(moved, tiny.questions(23))
    with pytest.raises(DataChangedError) as changed:
        export(plan, tmp_path / "out", to="trl", data=[moved])
    assert str(changed.value) == (
        f"{moved} is no longer the file that was read before (its content has changed); "
        "restore it, or start again from score"
    )
    assert (tmp_path / "out" / "train.jsonl").read_bytes() == before
    assert not (tmp_path / "out.partial").exists()


def test_what_is_there_is_not_overwritten(plan: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").touch()
    with pytest.raises(ArtifactError, match=r"mine exists and was not made by cluster-cli"):
        export(plan, tmp_path / "mine", to="trl")
    (tmp_path / "mine.jsonl").write_text("precious")
    with pytest.raises(SettingError) as caught:
        export(plan, tmp_path / "mine.jsonl", to="messages")
    assert str(caught.value) == (
        f"{tmp_path / 'mine.jsonl'} exists; name another with -o, or add --force"
    )
    assert (tmp_path / "mine.jsonl").read_text() == "precious"
    export(plan, tmp_path / "mine.jsonl", to="messages", force=True)
    assert len(read(tmp_path / "mine.jsonl")) == 16


def test_settings_that_cannot_be(plan: Path, data: Path, tmp_path: Path) -> None:
    for arguments, message in (
        ({"to": "excel"}, "to is 'excel', it must be one of trl, axolotl, llamafactory, "),
        ({"to": "trl", "repeat": True, "copies": -1.0}, "copies is -1.0, it must be above 0"),
        ({"to": "trl", "epoch": 1}, "has no epoch 1; it has 1, from 0"),
    ):
        with pytest.raises(SettingError, match=message):
            export(plan, tmp_path / "out", **arguments)  # type: ignore[arg-type]
    with pytest.raises(SettingError, match="is a selection, it has no epochs; leave --epoch out"):
        export(select(tmp_path, data, [1]), tmp_path / "out", to="trl", epoch=0)
    with pytest.raises(ArtifactError, match=r"data\.jsonl is no artifact of cluster-cli"):
        export(data, tmp_path / "out", to="trl")
