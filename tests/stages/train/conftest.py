"""What costs a launch and is shared by several files of tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.stages.train.places import Place


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """The run nobody interrupts, with a checkpoint every 5 of its 60 steps; only to be looked at."""
    place = Place(tmp_path_factory.mktemp("trained"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")  # sums over several threads have other last digits
        place.train(learning_rate=1e-3, checkpoint_every=5)
    return place


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A place of one's own; what runs there has one thread, as the run nobody interrupts."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return Place(tmp_path)
