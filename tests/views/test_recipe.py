"""Which views there are, and who is pulled to whom (docs/method.md#loss)."""

import pytest
import torch

from csml.config import AugmentationConfig, ImagesConfig, PretrainConfig, ViewsConfig
from csml.views import Views, crop_specs, make_views

B, S = 6, 16


def views_of(settings: ViewsConfig, omega_width: int = 3) -> Views:
    config = PretrainConfig(views=settings, images=ImagesConfig(size=S))
    generator = torch.Generator().manual_seed(0)
    crops = {
        spec.name: torch.randint(0, 256, (B, 3, spec.size, spec.size), dtype=torch.uint8, generator=generator)
        for spec in crop_specs(config)
    }
    anchors = torch.arange(B)
    neighbors = anchors + 100 * torch.arange(1, settings.positives + 1)[:, None]  # (P, B)
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
    config = PretrainConfig(images=ImagesConfig(size=S))
    picture = torch.randint(0, 256, (B, 3, S, S), dtype=torch.uint8)
    crops = {spec.name: picture.clone() for spec in crop_specs(config)}
    ids = torch.arange(B)
    views = make_views(
        crops,
        ids,
        ids[None],
        ids[:, None][:, :0],
        ViewsConfig(),
        AugmentationConfig(),
        torch.Generator().manual_seed(0),
    )
    seen = [views.queries["a"], views.queries["p"], views.keys["a"], views.keys["p"]]
    assert all(not torch.equal(x, y) for i, x in enumerate(seen) for y in seen[:i])


def test_two_neighbors_are_two_queries_and_everyone_is_pulled_to_all_three() -> None:
    views = views_of(ViewsConfig(positives=2))
    assert list(views.queries) == ["a", "p", "p2", "mixed"]
    assert list(views.keys) == ["a", "p", "p2"]
    for name in ("a", "p", "p2"):
        torch.testing.assert_close(views.weights[name], torch.full((3,), 1 / 3))
    lam = views.weights["mixed"]
    assert lam[0] + lam[1] == pytest.approx(1.0)
    assert lam[2] == 0  # nothing of p2 is in the mixture
    assert views.key_ids["p2"].tolist() == [i + 200 for i in range(B)]


@pytest.mark.parametrize("cross_sample", [False, True])
def test_small_crops_of_all_sides_are_one_query_that_counts_for_each_side(cross_sample: bool) -> None:
    views = views_of(ViewsConfig(cross_sample=cross_sample, mix="none", small_crops=3, small_size=8))
    sides = 2 if cross_sample else 1
    assert list(views.queries) == [*(["a", "p"] if cross_sample else ["a"]), "small"]
    assert views.queries["small"].shape == (B * sides * 3, 3, 8, 8)
    assert views.groups == {**dict.fromkeys(views.keys, 1), "small": sides}
    assert views.weights["small"].tolist() == [1 / sides] * sides


def test_small_crops_of_an_anchor_lie_together() -> None:
    """Row b · V + v is crop v of anchor b, so that sub-batches of split BatchNorm hold whole anchors."""
    config = PretrainConfig(
        views=ViewsConfig(cross_sample=False, mix="none", small_crops=2, small_size=8), images=ImagesConfig(size=S)
    )
    flat = AugmentationConfig(flip=0, jitter=0, gray=0, blur=0)
    crops = {spec.name: torch.zeros(B, 3, spec.size, spec.size, dtype=torch.uint8) for spec in crop_specs(config)}
    for v in range(2):
        crops[f"small_a_{v}"] += (10 * v + torch.arange(B))[:, None, None, None].to(torch.uint8)
    ids, generator = torch.arange(B), torch.Generator().manual_seed(0)
    views = make_views(crops, ids, ids[None], ids[:, None][:, :0], config.views, flat, generator)
    shade = views.queries["small"][:, 0, 0, 0]
    expected = torch.tensor([10 * v + b for b in range(B) for v in range(2)]) / 255
    torch.testing.assert_close(shade, (expected - 0.485) / 0.229)


def test_symmetric_views_change_places() -> None:
    views = views_of(ViewsConfig(symmetric=True, small_crops=2, small_size=8))
    for side in ("a", "p"):
        assert torch.equal(views.queries[f"{side}_swapped"], views.keys[side])
        assert torch.equal(views.keys[f"{side}_swapped"], views.queries[side])
        assert views.weights[side].tolist() == [0.5, 0.5, 0, 0]
        assert views.weights[f"{side}_swapped"].tolist() == [0, 0, 0.5, 0.5]
        assert torch.equal(views.key_ids[f"{side}_swapped"], views.key_ids[side])
    assert views.weights["small"].tolist() == [0.25] * 4
    mixed, a, p = views.queries["mixed_swapped"], views.keys["a"], views.keys["p"]
    assert ((mixed == a) | (mixed == p)).all()
    assert views.weights["mixed_swapped"][:2].tolist() == [0, 0]


def test_a_blend_is_made_of_the_two_query_views_in_the_ratio_of_its_weights() -> None:
    views = views_of(ViewsConfig(mix="mixup", mix_per_sample=True))
    lam = views.weights["mixed"][0][:, None, None, None]
    torch.testing.assert_close(
        views.queries["mixed"], lam * views.queries["a"] + (1 - lam) * views.queries["p"], atol=1e-5, rtol=1e-5
    )


def test_key_views_can_be_augmented_otherwise() -> None:
    """BYOL: solarised keys, queries as they are."""
    config = PretrainConfig(views=ViewsConfig(cross_sample=False, mix="none"), images=ImagesConfig(size=S))
    settings = AugmentationConfig(flip=0, jitter=0, gray=0, blur=0, key_solarize=1.0)
    crops = {spec.name: torch.full((B, 3, S, S), 255, dtype=torch.uint8) for spec in crop_specs(config)}
    ids, generator = torch.arange(B), torch.Generator().manual_seed(0)
    views = make_views(crops, ids, ids[None], ids[:, None][:, :0], config.views, settings, generator)
    assert (views.queries["a"] > 2).all()
    assert (views.keys["a"] < 0).all()


@pytest.mark.parametrize(
    ("size", "small_crops", "scale", "small"), [(224, 0, 0.2, None), (224, 6, 0.14, 96), (32, 2, 0.14, 16)]
)
def test_sizes_and_scales_of_crops_are_the_paper_s(
    size: int, small_crops: int, scale: float, small: int | None
) -> None:
    config = PretrainConfig(views=ViewsConfig(small_crops=small_crops), images=ImagesConfig(size=size))
    specs = crop_specs(config)
    assert {(spec.size, spec.scale) for spec in specs if not spec.name.startswith("small")} == {(size, (scale, 1.0))}
    assert {(spec.size, spec.scale) for spec in specs if spec.name.startswith("small")} == (
        {(small, (0.05, 0.14))} if small_crops else set()
    )
    assert len(specs) == 4 + 2 * small_crops


@pytest.mark.parametrize(("mix", "queries"), [("cutmix", ["a", "mixed"]), ("none", ["a"])])
def test_without_neighbor_queries_the_neighbor_is_a_key_and_a_part_of_the_mixture(mix: str, queries: list[str]) -> None:
    views = views_of(ViewsConfig(neighbor_queries=False, mix=mix))  # type: ignore[arg-type]
    assert list(views.queries) == queries and list(views.keys) == ["a", "p"]
    assert views.weights["a"].tolist() == [0.5, 0.5]
    config = PretrainConfig(views=ViewsConfig(neighbor_queries=False, mix="none"))
    assert [spec.name for spec in crop_specs(config)] == ["query_a", "key_a", "key_p"]


def test_without_neighbor_queries_weights_cover_the_keys_of_all_neighbors() -> None:
    views = views_of(ViewsConfig(neighbor_queries=False, positives=3))
    assert list(views.queries) == ["a", "mixed"] and list(views.keys) == ["a", "p", "p2", "p3"]
    assert views.weights["a"].tolist() == [0.25] * 4 and len(views.weights["mixed"]) == 4
