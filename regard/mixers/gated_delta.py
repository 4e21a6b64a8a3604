"""Gated DeltaNet (Yang et al. 2024, arXiv 2412.06464), and DeltaNet (arXiv 2406.06484), which has no decay.

    S_t = a_t S_(t-1) + k_t u_t^T,   u_t = b_t (v_t - a_t S_(t-1)^T k_t),   o_t = S_t^T q_t / sqrt(K),   y = W_out (norm(o) silu(W_g x))
    q, k = unit(silu(conv(W x))),   v = silu(conv(W x)),   b = sigmoid(W x),   a = exp(-exp(A) softplus(W x + c))

Each token erases what the state holds under its key, and writes its value there. Cost: T K V a head, and T C (K + V) in chunks of C = 64;
state: K V a head, and the convolutions' last inputs. Values have 2 K channels in the released code; here dim / num_heads, unless
`value_dim` says otherwise. `decay=False` is DeltaNet. `negative_eigenvalues` doubles b, so that a token may turn the state's sign under its
key (arXiv 2411.12537).

Args:
    num_key_heads: heads of queries and keys; None: as many as values have
    key_dim: channels of a query and of a key; None: dim / num_heads
    value_dim: channels of a value; None: dim / num_heads
    conv_size: tokens that the short convolution sees; None: there is none
    decay: False: nothing decays
    negative_eigenvalues: True: b goes from 0 to 2
    gate: False: no output gate
"""

from regard.functional.rows import ranged
from regard.mixers._scan import ScanMixer, units_of
from regard.nn.recurrent import Decay
from regard.nn.starts import projection


class GatedDelta(ScanMixer):
    __doc__ = __doc__
    name = "gated_delta"
    paper = "Yang et al. 2024, arXiv 2412.06464"
    variants = {
        "deltanet": {"decay": False, "gate": False},
        "negative": {"negative_eigenvalues": True, "conv_size": None},
        "grouped": {"num_key_heads": 1, "value_dim": 10},
    }

    def __init__(
        self,
        dim: int,
        *,
        num_heads: int,
        num_key_heads: int | None = None,
        key_dim: int | None = None,
        value_dim: int | None = None,
        conv_size: int | None = 4,
        decay: bool = True,
        negative_eigenvalues: bool = False,
        gate: bool = True,
    ):
        super().__init__(
            dim, num_heads, key_dim, value_dim, conv_size, num_key_heads=num_key_heads, gate=gate
        )
        self.strength = 2.0 if negative_eigenvalues else 1.0
        self.write = projection(dim, num_heads)
        self.decay = Decay(dim, num_heads) if decay else None

    def _terms(self, x, q, k, v, after):
        b = self.strength * ranged(self.write(x))[0].sigmoid().mT
        return *units_of(x, q, k), v, b, None if self.decay is None else self.decay(x)[0][..., 0]
