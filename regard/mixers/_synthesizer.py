"""Base class of the Synthesizers: values alone are mixed, by the softmax of logits that no key has a part in."""

from regard.core import No
from regard.functional.rows import Impl
from regard.functional.synthesizer import synthesizer_attention
from regard.mixers._base import ALL
from regard.mixers._cached import CachedMixer
from regard.nn.heads import Values
from regard.nn.logits import PositionLogits


class ValuesMixer(CachedMixer):
    """A CachedMixer whose heads are values alone; q and k are its own."""

    values: Values

    def _merge(self, x, mixed):
        return self.values.merge(mixed)

    def _shown(self, x, context):
        return None, None, self.values.split(x)


class SynthesizerMixer(ValuesMixer):
    """y = concat_h( softmax(B_h) v_h ) W_out; a mechanism sets `logits`, which makes B (`regard.nn.logits`)."""

    family = "score-free"
    paper = "Tay et al. 2020, arXiv 2005.00743"
    operations = ("synthesizer",)
    capabilities = ALL.but(
        cross=No("its weights are made for positions of one sequence"), time="T^2 H V"
    )
    logits: PositionLogits

    def __init__(self, dim: int, num_heads: int, max_len: int | None, impl: Impl):
        super().__init__(dim, impl, max_len=max_len)
        self.num_heads = num_heads
        self.values = Values(dim, num_heads)

    def mix(self, x, context, mask):
        how = {"T": x.shape[1], "mask": mask, "impl": self.impl}
        logits = self.logits(x, None, self.logits.keys(x))
        return self.values.merge(synthesizer_attention(logits, self.values.split(x), **how))

    def _split(self, x, context, at=None):
        v, keys = self.values.split(x), self.logits.keys(x, at)
        return x, v[..., :0] if keys is None else keys, v

    def _attend(self, q, k, v, mask, query=None, key=None):
        logits = self.logits(q, query, k)
        return synthesizer_attention(logits, v, T=q.shape[1], mask=mask, impl=self.impl)
