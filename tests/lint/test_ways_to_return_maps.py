"""Ways to return a dict or a list of what a reentrant region computes, and flat tuples beside them."""

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

PYRAMID = """
from collections import OrderedDict
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

LEVELS = ("p3", "p4", "p5")

class Remat(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, *features):
        return checkpoint(self.inner, *features, use_reentrant=True)

class Pyramid(nn.Module):
    def __init__(self, widths, dim):
        super().__init__()
        self.lateral = nn.ModuleList(nn.Conv2d(w, dim, 1) for w in widths)
        self.smooth = nn.ModuleList(nn.Conv2d(dim, dim, 3, padding=1) for _ in widths)

    def forward(self, *features):
        maps = [conv(f) for conv, f in zip(self.lateral, features)]
        RETURN

class Detector(nn.Module):
    def __init__(self, widths=(64, 128, 256), dim=96):
        super().__init__()
        self.body = nn.ModuleList(nn.Conv2d(a, b, 4, stride=2) for a, b in zip((3, *widths), widths))
        self.neck, self.head = Remat(Pyramid(widths, dim)), nn.Conv2d(dim, 9, 3)

    def forward(self, image):
        features = []
        for stage in self.body:
            image = stage(image)
            features.append(image)
        return USED

model = Detector().cuda()
for image in torch.load("tiles.pt"):
    sum(out.mean() for out in model(image.cuda())).backward()
"""
TAKEN = "[self.head(m) for m in self.neck(*features).values()]"
LISTED = "[self.head(m) for m in self.neck(*features)]"
STRUCTURED = {
    "zipped generator": ("return dict(zip(LEVELS, (conv(m) for conv, m in zip(self.smooth, maps))))", TAKEN),
    "zipped list": ("return dict(zip(LEVELS, [conv(m) for conv, m in zip(self.smooth, maps)]))", TAKEN),
    "zipped name": ("return dict(zip(LEVELS, maps))", TAKEN),
    "zipped three": ('return dict(zip(["a", "b", "c"], [maps[0], maps[1], maps[2]]))', TAKEN),
    "ordered": (
        "outs = [conv(m) for conv, m in zip(self.smooth, maps)]\n        return OrderedDict(zip(LEVELS, outs))",
        TAKEN,
    ),
    "comprehension": ("return {k: conv(m) for k, conv, m in zip(LEVELS, self.smooth, maps)}", TAKEN),
    "mapped": ("return list(map(lambda conv, m: conv(m), self.smooth, maps))", LISTED),
    "reversed": ("return maps[::-1]", LISTED),
}
FLAT = {
    "tuple": ("return tuple(maps)", LISTED),
    "generator": ("return tuple(conv(m) for conv, m in zip(self.smooth, maps))", LISTED),
    "values of a dict": ("return tuple(dict(zip(LEVELS, maps)).values())", LISTED),
    "one of a dict": ('return dict(zip(LEVELS, maps))["p3"]', "[self.head(self.neck(*features))]"),
    "sizes beside a tensor": (
        "return maps[0], dict(zip(LEVELS, (m.shape for m in maps)))",
        "[self.head(self.neck(*features)[0])]",
    ),
}


def codes(returned, used):
    return [finding.code for finding in check_source(PYRAMID.replace("RETURN", returned).replace("USED", used))]


@pytest.mark.parametrize("way", STRUCTURED)
def test_what_is_inside_gets_no_gradient(way):
    assert "CKPT116" in codes(*STRUCTURED[way])


@pytest.mark.parametrize("way", FLAT)
def test_flat_tuples_are_right(way):
    assert "CKPT116" not in codes(*FLAT[way])
