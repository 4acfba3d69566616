"""Evaluating while training: the figures, early stopping, the best model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from formats import artifacts, runs
from formats.data import open_dataset
from formats.errors import SettingError
from formats.rendering import Renderer
from stages import models
from tests import tiny
from tests.stages.train.places import Place


def answer_losses(place: Place, data: Path) -> list[list[float]]:
    """The losses of each example's response tokens, one example at a time."""
    import torch

    torch.set_num_threads(1)
    files = models.find_model(place.model)
    model = models.load_model(files, dtype=torch.float32)
    render = Renderer(models.load_tokenizer(files), max_length=64)
    losses = []
    with open_dataset([str(data)]) as dataset, torch.no_grad():
        for example in dataset:
            one = render(example)
            ids = torch.tensor(one.input_ids, dtype=torch.int64)
            logits = model(input_ids=ids[None]).logits[0].log_softmax(-1)
            at = np.flatnonzero(one.supervised)
            losses.append([-float(logits[t - 1, ids[t]]) for t in at])
    return losses


def test_a_run_that_only_gets_worse(place: Place) -> None:
    """At this rate every step does harm: it stops early, and the best model is the first one."""
    files = [place.folder / "sums.jsonl", place.folder / "more.jsonl"]
    rows = tiny.questions(40)
    tiny.write_jsonl(files[0], rows[24:31])  # four batches of two, one of them a single example
    tiny.write_jsonl(files[1], rows[31:34])
    header = place.train(
        eval_data=files, eval_every=2, patience=2, keep_best=True, learning_rate=3.0
    )
    lines = list(runs.read_evaluations(place.folder / "run"))
    assert [line["step"] for line in lines] == [0, 2, 4]
    assert [line["step"] for line in runs.read_metrics(place.folder / "run")] == [0, 1, 2, 3]
    assert header.stats["steps"] == 4
    assert header.stats["eval"] == [{k: line[k] for k in ("step", "eval")} for line in lines]
    for file in files:
        losses = answer_losses(place, file)
        flat = [loss for example in losses for loss in example]
        got = lines[0]["eval"][file.name]
        assert got["loss"] == pytest.approx(np.mean([np.mean(each) for each in losses]), rel=1e-5)
        assert got["token_loss"] == pytest.approx(np.mean(flat), rel=1e-5)
        assert (got["examples"], got["tokens"]) == (len(losses), len(flat))
    name = "model.safetensors"
    kept = (place.folder / "run" / "model" / name).read_bytes()
    assert kept == (place.model / name).read_bytes()
    assert artifacts.read_header(place.folder / "run", "run").params["keep_best"] is True


def test_what_needs_evaluations(place: Place) -> None:
    with pytest.raises(SettingError) as caught:
        place.train(patience=3)
    assert str(caught.value) == (
        "eval_every, patience and keep_best need eval_data; patience needs eval_every"
    )
