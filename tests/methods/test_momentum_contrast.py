"""A whole step against the paper's equations written out in float64."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from csml.config import ContrastConfig
from csml.methods.contrast import MomentumContrast
from csml.models import Encoder, build_backbone
from csml.views import Views

B, S, N, DIM = 6, 16, 20, 8


def method(stages: tuple[int, ...] = (2, 3, 4), **settings: object) -> MomentumContrast:
    torch.manual_seed(0)
    encoder = Encoder(build_backbone("tiny"), stages, DIM, None)
    config = ContrastConfig(**{"bn_splits": 1, "momentum": 0.9, **settings})  # type: ignore[arg-type]
    return MomentumContrast(encoder, N, config).double()


def csml_views(lam: Tensor | None = None) -> Views:
    generator = torch.Generator().manual_seed(1)

    def images() -> Tensor:
        return torch.randn(B, 3, S, S, generator=generator, dtype=torch.float64)

    lam = torch.tensor(0.7, dtype=torch.float64) if lam is None else lam
    half = torch.tensor([0.5, 0.5], dtype=torch.float64)
    return Views(
        queries={"a": images(), "p": images(), "mixed": images()},
        groups={"a": 1, "p": 1, "mixed": 1},
        keys={"a": images(), "p": images()},
        weights={"a": half, "p": half, "mixed": torch.stack([lam, 1 - lam])},
        key_ids={"a": torch.arange(B), "p": torch.arange(B) + 50},
        known=torch.arange(B)[:, None],
    )


def moco_views() -> Views:
    views = csml_views()
    return Views(
        queries={"a": views.queries["a"]},
        groups={"a": 1},
        keys={"a": views.keys["a"]},
        weights={"a": torch.ones(1)},
        key_ids={"a": torch.arange(B)},
        known=views.known,
    )


def ell(q: Tensor, k: Tensor, queue: Tensor, tau: float) -> Tensor:
    """ℓ(q, k⁺) of docs/method.md#loss, mean over the batch."""
    pulled = torch.exp((q * k).sum(1) / tau)
    return -torch.log(pulled / (pulled + torch.exp(q @ queue.T / tau).sum(1))).mean()


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("stages", [(4,), (3, 4), (2, 3, 4)])
def test_the_loss_is_the_paper_s_sum_over_queries_and_levels(stages: tuple[int, ...], reduction: str) -> None:
    ours, views, tau = method(stages, reduction=reduction, temperature=0.3), csml_views(), 0.3
    f_q, f_k = copy.deepcopy(ours.query_encoder), copy.deepcopy(ours.key_encoder)
    result = ours(views, generator())

    q = {name: f_q(images) for name, images in views.queries.items()}
    k = {name: f_k(images) for name, images in views.keys.items()}
    total = torch.zeros((), dtype=torch.float64)
    for s in stages:
        n = ours.queue.keys(s)
        l_qa = 0.5 * ell(q["a"][s], k["a"][s], n, tau) + 0.5 * ell(q["a"][s], k["p"][s], n, tau)
        l_qp = 0.5 * ell(q["p"][s], k["p"][s], n, tau) + 0.5 * ell(q["p"][s], k["a"][s], n, tau)
        l_mixed = 0.7 * ell(q["mixed"][s], k["a"][s], n, tau) + 0.3 * ell(q["mixed"][s], k["p"][s], n, tau)
        total = total + (l_qa + l_qp + l_mixed) / (3 if reduction == "mean" else 1)
        torch.testing.assert_close(result.metrics[f"loss/stage{s}/mixed"], l_mixed.detach())
    torch.testing.assert_close(result.loss, total)

    result.loss.backward()
    total.backward()
    for (name, ours_p), theirs_p in zip(ours.query_encoder.named_parameters(), f_q.parameters(), strict=True):
        assert ours_p.grad is not None, name
        torch.testing.assert_close(ours_p.grad, theirs_p.grad, msg=name)


def test_moco_v2_is_torch_s_cross_entropy() -> None:
    ours, views = method((4,), temperature=0.2), moco_views()
    f_q, f_k = copy.deepcopy(ours.query_encoder), copy.deepcopy(ours.key_encoder)
    q, k = f_q(views.queries["a"])[4], f_k(views.keys["a"])[4]
    logits = torch.cat([(q * k).sum(1, keepdim=True), q @ ours.queue.keys(4).T], dim=1) / 0.2
    labels = torch.zeros(B, dtype=torch.long)
    result = ours(views, generator())
    torch.testing.assert_close(result.loss, F.cross_entropy(logits, labels))
    assert result.metrics["accuracy/stage4"].item() == pytest.approx(
        (logits.argmax(1) == labels).double().mean().item()
    )


def test_per_sample_lambdas_weigh_their_own_sample() -> None:
    lam = torch.linspace(0, 1, B, dtype=torch.float64)
    ours = method((4,), temperature=0.2)
    views = csml_views(lam)
    f_q, f_k, n = copy.deepcopy(ours.query_encoder), copy.deepcopy(ours.key_encoder), ours.queue.keys(4)
    result = ours(views, generator())
    q = f_q(views.queries["mixed"])[4]
    k = {name: f_k(images)[4] for name, images in views.keys.items()}
    each = [
        lam[b] * ell(q[b : b + 1], k["a"][b : b + 1], n, 0.2)
        + (1 - lam[b]) * ell(q[b : b + 1], k["p"][b : b + 1], n, 0.2)
        for b in range(B)
    ]
    torch.testing.assert_close(result.metrics["loss/stage4/mixed"], torch.stack(each).mean().detach())


def test_the_key_encoder_follows_by_momentum_and_gets_no_gradient() -> None:
    ours = method()
    with torch.no_grad():
        for parameter in ours.query_encoder.parameters():
            parameter.add_(torch.randn_like(parameter))
    before = [p.clone() for p in ours.key_encoder.parameters()]
    ours(csml_views(), generator()).loss.backward()
    for old, key, query in zip(before, ours.key_encoder.parameters(), ours.query_encoder.parameters(), strict=True):
        assert key.grad is None
        torch.testing.assert_close(key.detach(), 0.9 * old + 0.1 * query.detach())


@pytest.mark.parametrize(
    ("enqueue", "ids"), [("anchor", [0, 1, 2, 3, 4, 5]), ("all", [0, 1, 2, 3, 4, 5, *range(50, 56)])]
)
def test_keys_enter_the_queue_with_their_ids_after_backward(enqueue: str, ids: list[int]) -> None:
    ours = method(enqueue=enqueue)
    result = ours(csml_views(), generator())
    assert (ours.queue.ids == -1).all()
    ours.after_backward(result)
    assert ours.queue.ids[: len(ids)].tolist() == ids
    keys = result.fresh[0][0]
    torch.testing.assert_close(ours.queue.keys(2)[:B], keys[2])


def test_known_positives_are_not_pushed_away() -> None:
    losses = {}
    for held, mask in ((True, True), (True, False), (False, True), (False, False)):
        ours = method((4,), mask_known=mask)
        if held:
            ours.queue.ids[:B] = torch.arange(B)
        losses[held, mask] = ours(moco_views(), generator()).loss.item()
    assert losses[True, True] < losses[True, False]
    assert losses[False, True] == losses[False, False] == losses[True, False]


def test_keys_come_back_in_the_order_of_their_images() -> None:
    """In eval mode the shuffle of the key batch must leave no trace."""
    ours = method().eval()
    images = csml_views().keys["a"]
    shuffled = ours.encode_keys(images, generator(), len(images))
    for stage, expected in ours.key_encoder(images).items():
        torch.testing.assert_close(shuffled[stage], expected)


def test_running_statistics_of_the_key_encoder_follow_its_batches() -> None:
    ours, views = method(), moco_views()
    for _ in range(60):
        ours(views, generator())
    images = views.keys["a"]
    with torch.no_grad():
        trained = ours.key_encoder.train()(images)[4]
        evaluated = ours.key_encoder.eval()(images)[4]
    assert F.cosine_similarity(trained, evaluated).min() > 0.9


def test_an_empty_queue_repels_only_from_the_keys_it_holds() -> None:
    """The first step has no negative and no gradient; the second has those of the first, and no random vector."""
    tau, views = 0.2, moco_views()
    model = method((4,), empty_queue=True, momentum=0.0)
    first = model(views, torch.Generator().manual_seed(0))
    assert first.loss.item() == 0
    model.after_backward(first)
    keys = first.fresh[0][0][4]  # (B, D)
    second = model(views, torch.Generator().manual_seed(0))
    query = model.query_encoder(views.queries["a"])[4]
    torch.testing.assert_close(second.loss, ell(query, keys, keys, tau), rtol=1e-9, atol=0)
