"""Global tokens (Ainslie et al. 2020, arXiv 2004.08483; Beltagy et al. 2020, arXiv 2004.05150).

    i sees j  if  i or j is in G,  or i = j                                                    (j <= i when causal)

Internal global tokens are the first `num_global` tokens of every row and those of `Mask.global_tokens`. External ones
are `num_external` learned tokens before the sequence, whose keys and values all queries see; they are dropped after the
layer, so they carry nothing between tokens. When causal, a global token sums up its past and serves later tokens.

Cost: T G (K + V) per head; T^2 where the mask gives global tokens, for any token may be one. State: the keys and values
of the first `num_global` tokens. The output projection has no bias.

Args:
    num_global: first tokens of a row that see all and are seen by all, if the mask names none
    num_external: learned tokens that every query sees, beside those of the input
"""

from regard.core import Count, No
from regard.functional.patterns import First, Window
from regard.functional.rows import Impl
from regard.mixers._base import Options
from regard.mixers._patterned import PatternMixer


class Global(PatternMixer):
    __doc__ = __doc__
    name = "global"
    paper = "Ainslie et al. 2020, arXiv 2004.08483"
    capabilities = PatternMixer.capabilities.but(
        cross=No("global tokens are tokens of the sequence itself"), time="T M H K", state="M H K"
    )
    variants = {
        "several": {"num_global": 3},
        "external": {"num_global": 2, "num_external": 3, "num_kv_heads": 1},
        "mask_only": {"num_global": 0},
        "rotary": {"num_global": 2, "position": "rotary"},
    }
    limits = {"softmax": ({"num_global": 64}, {})}

    def __init__(
        self,
        dim: int,
        *,
        num_heads: int,
        num_global: Count = 1,
        num_external: Count = 0,
        num_kv_heads: int | None = None,
        position: str | None = None,
        position_options: Options | None = None,
        impl: Impl = "auto",
    ):
        super().__init__(dim, num_heads, num_kv_heads, impl, position, position_options, alike=True)
        self._add_external(num_external)
        oneself = Window(0, 0)
        self.pattern = oneself | First(num_global) if num_global else oneself
