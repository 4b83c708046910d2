"""The online bank remembers the newest key of each image."""

import torch
import torch.nn.functional as F

from csml.search.bank import OnlineBank


def test_the_newest_key_of_an_image_counts() -> None:
    bank = OnlineBank(4, 2, torch.device("cpu"))
    bank.add(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([2, 0]))
    bank.add(torch.tensor([[0.0, -1.0]]), torch.tensor([2]))
    assert bank.seen.tolist() == [True, False, True, False]
    assert bank.keys[2].tolist() == [0.0, -1.0]
    assert bank.keys[0].tolist() == [0.0, 1.0]


def test_half_precision_keeps_cosines() -> None:
    keys = F.normalize(torch.randn(100, 128, generator=torch.Generator().manual_seed(0)), dim=1)
    bank = OnlineBank(100, 128, torch.device("cpu"))
    bank.add(keys, torch.arange(100))
    torch.testing.assert_close(bank.keys.float() @ bank.keys.float().T, keys @ keys.T, atol=1e-3, rtol=0)
