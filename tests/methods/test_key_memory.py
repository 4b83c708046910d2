"""The memory of keys: what it holds, and the loss in which an anchor is pulled to all its neighbours."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from conftest import configured
from csml.data.sampling import generator_for
from csml.errors import CsmlError
from csml.losses import Neighbors, info_nce
from csml.methods import StepResult
from csml.methods.key_memory import KeyMemory, neighbor_weights
from csml.training.build import build_method
from csml.views import Views

MEMORY = [
    "--preset", "demo", "--model.backbone", "nano", "--contrast.memory", "true", "--views.neighbor_views", "false",
    "--views.mix", "none", "--model.stages", "[4]", "--contrast.bn_splits", "1",
]  # fmt: skip
N, B = 12, 4


def test_it_holds_the_newest_key_of_every_image() -> None:
    memory = KeyMemory({4: 2}, 5)
    memory.enqueue({4: torch.tensor([[1.0, 0.0], [0.0, 1.0]])}, torch.tensor([3, 1]))
    memory.enqueue({4: torch.tensor([[0.6, 0.8]])}, torch.tensor([3]))
    assert memory.is_empty().tolist() == [True, False, True, False, True]
    assert memory.keys(4)[3].tolist() == pytest.approx([0.6, 0.8])
    assert memory.keys(4)[1].tolist() == [0, 1]


def test_half_precision_keeps_cosines(generator: torch.Generator) -> None:
    keys = F.normalize(torch.randn(100, 128, generator=generator), dim=1)
    memory = KeyMemory({4: 128}, 100, torch.float16)
    memory.enqueue({4: keys}, torch.arange(100))
    held = memory.keys(4).float()
    torch.testing.assert_close(held @ held.T, keys @ keys.T, atol=1e-3, rtol=0)


def test_what_it_holds_is_found_by_id() -> None:
    found = KeyMemory({4: 2}, 5).holds(torch.tensor([[0, 2], [4, 4]]))
    assert found.tolist() == [[True, False, True, False, False], [False, False, False, False, True]]


@given(st.integers(0, 1000), st.floats(0, 1))
def test_the_weights_of_neighbours_are_equal_and_sum_to_their_share(seed: int, share: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    known, empty = torch.randint(6, (5, 4), generator=generator), torch.rand(6, generator=generator) < 0.3
    weights = neighbor_weights(known, empty, share)
    for row, (own, *neighbors) in zip(weights.T.tolist(), known.tolist(), strict=True):
        real = [place for place, id in enumerate(neighbors) if id != own and not empty[id]]
        expected = [share / len(real) if place in real else 0 for place in range(len(neighbors))]
        assert row == pytest.approx(expected, abs=1e-6)


def written_out(q: Tensor, own: Tensor, memory: Tensor, known: list[list[int]], share: float, tau: float) -> Tensor:
    """docs/method.md#memory with loops; a neighbour that fills several places counts several times."""
    losses = []
    for b, (anchor, *neighbors) in enumerate(known):
        logits = [q[b] @ memory[i] / tau for i in range(len(memory)) if i != anchor]
        everything = torch.stack([q[b] @ own[b] / tau, *logits]).exp().sum().log()
        real = [i for i in neighbors if i != anchor]
        beta = share if real else 0.0
        pull = sum((q[b] @ memory[i] / tau for i in real), torch.zeros(())) / max(1, len(real))
        losses.append(everything - (1 - beta) * (q[b] @ own[b]) / tau - beta * pull)
    return torch.stack(losses)


KNOWN = [[0, 3, 4, 3], [5, 5, 5, 5], [7, 1, 2, 11], [11, 0, 7, 0]]


def test_the_loss_is_the_formula_written_out(generator: torch.Generator) -> None:
    q, own, memory = (
        F.normalize(torch.randn(rows, 8, generator=generator, dtype=torch.float64), dim=1) for rows in (B, B, N)
    )
    q.requires_grad_()
    known = torch.tensor(KNOWN)
    held = KeyMemory({4: 8}, N)
    weights = neighbor_weights(known, torch.zeros(N, dtype=torch.bool), 0.7).double()
    neighbors = Neighbors(memory[known[:, 1:].T], weights)
    loss = info_nce(q, own[None], torch.ones(1), memory, 0.1, held.holds(known[:, :1]), None, neighbors).loss
    expected = written_out(q, own, memory, KNOWN, 0.7, 0.1)
    torch.testing.assert_close(loss, expected)
    ours, theirs = (torch.autograd.grad(each.sum(), q, retain_graph=True)[0] for each in (loss, expected))
    torch.testing.assert_close(ours, theirs)


def test_a_step_of_the_method_is_the_formula(generator: torch.Generator) -> None:
    config = configured("pretrain", *MEMORY)
    method = build_method(config, N)
    anchors = torch.tensor([row[0] for row in KNOWN])
    memory = F.normalize(torch.randn(N, config.model.dim, generator=generator), dim=1)
    method.after_backward(method_result(memory))
    query, key = torch.rand(B, 3, 32, 32, generator=generator), torch.rand(B, 3, 32, 32, generator=generator)
    views = Views({"a": query}, {"a": 1}, {"a": key}, {"a": torch.ones(1)}, {"a": anchors}, torch.tensor(KNOWN))
    result = method(views, generator_for(0))
    q, own = method.query_encoder(query)[4], method.encoder("key")(key)[4]
    expected = written_out(q, own, memory, KNOWN, config.contrast.neighbor_share, config.contrast.temperature)
    torch.testing.assert_close(result.loss, expected.mean(), rtol=1e-4, atol=1e-4)


def method_result(memory: Tensor) -> StepResult:
    """What a step leaves that has encoded every image."""
    return StepResult(torch.zeros(()), {}, [({4: memory}, torch.arange(len(memory)))])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--views.neighbor_views", "false", "--views.mix", "none"], r"views\.neighbor_views: .*contrast\.memory"),
        (["--contrast.memory", "true"], r"contrast\.memory: .*model\.stages \[4\]"),
        (["--views.neighbor_views", "false"], r"views\.mix: .*views\.mix none"),
        (["--neighbors.features", "start"], r"neighbors\.features: start needs weights"),
    ],
)
def test_settings_that_do_not_go_together_are_refused_in_one_line(words: list[str], message: str) -> None:
    with pytest.raises(CsmlError, match=message):
        configured("pretrain", "--preset", "demo", *words)


def test_moco_v2_without_a_memory_needs_no_views_of_neighbours() -> None:
    words = ["--views.neighbor_views", "false", "--views.cross_sample", "false", "--views.mix", "none"]
    assert not configured("pretrain", "--preset", "demo", *words).contrast.memory
