# # A mechanism of your own
# Each token takes a learned share of the mean of those before it. The laws hold it to what it declares; then it is a layer of a model.

# %%
import os

import torch

import regard
from regard.core import Capabilities, Mixer, No
from regard.models import LanguageModelConfig

SMALL = "REGARD_SMALL" in os.environ


class MeanSoFar(Mixer):
    name = "mean_so_far"
    capabilities = Capabilities(
        causal=True,
        pairwise=No("a running mean takes all earlier tokens"),
        global_tokens=No("a running mean knows no chosen tokens"),
        cross=No("it averages one sequence"),
        streaming=No("left out for brevity; docs/adding.md shows one"),
        attention_map=No("left out for brevity; docs/adding.md shows one"),
        time="T D^2",
        memory="T D",
    )

    def __init__(self, dim: int):
        super().__init__(dim)
        self.value = torch.nn.Linear(dim, dim, bias=False)

    def mix(self, x, context, mask):
        here = x.new_ones(x.shape[:2]) if mask.valid is None else mask.valid.to(x.dtype)
        v = self.value(x) * here[..., None]
        if mask.causal:
            return v.cumsum(1) / here.cumsum(1).clamp(min=1)[..., None]
        mean = v.sum(1, keepdim=True) / here.sum(1).clamp(min=1)[:, None, None]
        return mean.expand_as(v)


# %%
laws = ("causality", "padding", "batch") if SMALL else "all"
print("laws that hold:", *regard.testing.check_mixer(lambda: MeanSoFar(dim=24), laws))

# %%
model = LanguageModelConfig(vocab_size=100, dim=32, num_layers=2, mixer=MeanSoFar).build()
print(model(torch.randint(1, 100, (2, 20))).shape)
