"""Which views there are, and who is pulled to whom (METHOD §2)."""

import pytest
import torch

from csml.config.schema import AugmentationConfig, PretrainConfig, ViewsConfig
from csml.views import Views, crop_specs, make_views

B, S = 6, 16


def views_of(settings: ViewsConfig, omega_width: int = 3) -> Views:
    config = PretrainConfig(views=settings)
    config.images.size = S
    generator = torch.Generator().manual_seed(0)
    crops = {
        spec.name: torch.randint(0, 256, (B, 3, S, S), dtype=torch.uint8, generator=generator)
        for spec in crop_specs(config)
    }
    anchors, neighbors = torch.arange(B), torch.arange(B) + 100
    omega = torch.arange(B * omega_width).view(B, omega_width) + 1000
    return make_views(crops, anchors, neighbors, omega, settings, AugmentationConfig(), generator)


def test_moco_v2_is_one_query_and_one_key() -> None:
    views = views_of(ViewsConfig(cross_sample=False, mix="none"))
    assert list(views.queries) == list(views.keys) == ["a"]
    assert views.weights["a"].tolist() == [1.0]


def test_csml_pulls_each_query_to_both_keys() -> None:
    views = views_of(ViewsConfig())
    assert list(views.queries) == ["a", "p", "mixed"]
    assert list(views.keys) == ["a", "p"]
    assert views.weights["a"].tolist() == views.weights["p"].tolist() == [0.5, 0.5]
    assert views.weights["mixed"].sum().item() == pytest.approx(1.0)
    assert views.key_ids["a"].tolist() == list(range(B))
    assert views.key_ids["p"].tolist() == [i + 100 for i in range(B)]


def test_without_mixing_there_are_two_queries() -> None:
    assert list(views_of(ViewsConfig(mix="none")).queries) == ["a", "p"]


@pytest.mark.parametrize("per_sample", [False, True])
def test_the_mixed_query_is_made_of_the_two_query_views_in_the_share_of_its_weights(per_sample: bool) -> None:
    views = views_of(ViewsConfig(mix_per_sample=per_sample))
    mixed, a, p = views.queries["mixed"], views.queries["a"], views.queries["p"]
    from_a, from_p = (mixed == a).all(1), (mixed == p).all(1)  # (B, S, S)
    assert (from_a | from_p).all()
    share = from_a.float().mean(dim=(1, 2))  # (B,)
    torch.testing.assert_close(share, views.weights["mixed"][0].expand(B), atol=0.01, rtol=0)


def test_known_ids_are_the_anchor_and_its_neighborhood() -> None:
    views = views_of(ViewsConfig())
    assert views.known[2].tolist() == [2, 1006, 1007, 1008]


def test_every_view_draws_its_own_augmentation() -> None:
    config = PretrainConfig()
    config.images.size = S
    picture = torch.randint(0, 256, (B, 3, S, S), dtype=torch.uint8)
    crops = {spec.name: picture.clone() for spec in crop_specs(config)}
    ids = torch.arange(B)
    views = make_views(
        crops, ids, ids, ids[:, None][:, :0], ViewsConfig(), AugmentationConfig(), torch.Generator().manual_seed(0)
    )
    seen = [views.queries["a"], views.queries["p"], views.keys["a"], views.keys["p"]]
    assert all(not torch.equal(x, y) for i, x in enumerate(seen) for y in seen[:i])
