"""What the transfers of a device keep. On a CPU there is no side stream, so what left is put in by hand."""

from __future__ import annotations

import weakref

import torch

from hf_ckpt.engine.offloading.transfers import Leaving, give_back, transfers_of


def test_what_an_interrupted_forward_sent_goes_with_the_model() -> None:
    transfers, tensor = transfers_of(torch.device("cpu")), torch.ones(3)
    leaving = Leaving()
    leaving._tensors.append(tensor)
    transfers._leaving.append(leaving)
    alive = weakref.ref(tensor)
    del leaving, tensor
    give_back()
    assert alive() is None
