"""PatchClassifier: what its head reads, and the convolutions before its patches."""

import torch
import torch.nn.functional as F

from regard.models import PatchClassifierConfig
from regard.models.patches import PatchClassifier

STEM = ((5, 1), (6, 2))


def images() -> torch.Tensor:
    return torch.randint(0, 9, (3, 64), generator=torch.Generator().manual_seed(1))


def built(**options) -> PatchClassifier:
    torch.manual_seed(0)
    sizes = {"dim": 12, "num_heads": 2, "num_layers": 1, "num_classes": 3}
    return (
        PatchClassifierConfig(image_size=(8, 8), patch_size=4, vocab_size=9, **sizes, **options)
        .build()
        .double()
    )


def test_patches_are_cut_from_what_the_convolutions_make():
    model, cut = built(stem=STEM), []
    model.project.register_forward_hook(lambda module, given, made: cut.append(given[0]))
    model(images())
    p, x = dict(model.named_parameters()), images().double().view(3, 1, 8, 8) / 4 - 1
    for n, (_, stride) in zip((0, 3), STEM, strict=True):
        x = F.conv2d(x, p[f"stem.{n}.weight"], stride=stride, padding=1)
        mean, spread = x.mean((0, 2, 3), keepdim=True), x.var((0, 2, 3), False, keepdim=True)
        x = ((x - mean) / (spread + 1e-5).sqrt()).relu()
    assert x.shape == (3, 6, 4, 4)
    for row, patches in zip(x, cut[0], strict=True):
        for n, patch in enumerate(patches):
            y, across = 2 * (n // 2), 2 * (n % 2)
            wanted = row[:, y : y + 2, across : across + 2].permute(1, 2, 0).flatten()
            torch.testing.assert_close(patch, wanted, rtol=0, atol=1e-12)


def test_in_evaluation_a_picture_does_not_depend_on_the_others():
    model = built(stem=STEM, summary="max")
    model(images())
    model.eval()
    torch.testing.assert_close(model(images())[:1], model(images()[:1]), rtol=0, atol=1e-12)
