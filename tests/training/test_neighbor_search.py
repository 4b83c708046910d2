"""The search among keys that training has made."""

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from conftest import SMALL_RUN, configured
from csml.data import open_data
from csml.data.loading import fabric_for
from csml.methods import StepResult
from csml.runs.directory import RunDirectory
from csml.training.pretraining import Pretraining

ONLINE = ["--neighbors.features", "online"]
MEMORY = [
    "--contrast.memory", "true", "--views.neighbor_views", "false", "--views.mix", "none", "--model.stages", "[4]",
]  # fmt: skip
BYOL = ["--preset", "demo-csml-byol"]
QUEUE = ("--contrast.queue_length", "64")


@pytest.mark.parametrize(
    ("more", "shared"), [([], False), (MEMORY, True), (BYOL, False)], ids=["queue", "memory", "byol"]
)
def test_online_searches_the_newest_keys_of_which_there_is_one_copy(
    tmp_path: Path, generator: torch.Generator, more: list[str], shared: bool
) -> None:
    words = [word for word in SMALL_RUN[:-2] if more is not BYOL or word not in QUEUE]
    config = configured("pretrain", *words, *more, *ONLINE)
    data = open_data(config.data, config.images)
    task = Pretraining(config, data, RunDirectory(tmp_path), fabric_for(data.train, 0, config.hardware))
    assert (task.search.memory is task.network.memory) is shared
    assert (task.search.state_dict()["keys"] is None) is shared

    images = len(data.train)
    unseen = 7
    known = torch.tensor([i for i in range(images) if i != unseen])
    for _ in range(2):  # the second keys replace the first
        keys = F.normalize(torch.randn(images, config.model.dim, generator=generator), dim=1)
        by_stage = dict.fromkeys(config.model.stages, keys[known])
        task.after_backward([StepResult(torch.zeros(()), {}, [(by_stage, known)])])
    task.search.search(1, task.network.query_encoder.backbone, pytest.fail)  # it computes no features

    cosines = (keys @ keys.T).fill_diagonal_(-2)
    cosines[:, unseen] = -2
    found = task.search.neighbors_of(np.arange(images))
    best = cosines.gather(1, torch.from_numpy(found))
    torch.testing.assert_close(best[known], cosines.topk(found.shape[1]).values[known], atol=1e-3, rtol=0)
    assert (found[unseen] == unseen).all()


def test_the_keys_in_an_older_checkpoint_are_read(tmp_path: Path, generator: torch.Generator) -> None:
    config = configured("pretrain", *SMALL_RUN[:-2], *ONLINE)
    data = open_data(config.data, config.images)
    task = Pretraining(config, data, RunDirectory(tmp_path), fabric_for(data.train, 0, config.hardware))
    keys = torch.randn(len(data.train), config.model.dim, generator=generator).half()
    seen = torch.arange(len(data.train)) % 2 == 0
    state = {key: value for key, value in task.search.state_dict().items() if key != "keys"}
    task.search.load_state_dict({**state, "bank": {"keys": keys, "seen": seen}})
    assert task.search.memory is not None
    assert torch.equal(task.search.memory.keys(4), keys) and torch.equal(task.search.memory.is_empty(), ~seen)
