"""Oracle of `fnet` (arXiv 2105.03824) in real arithmetic: y = C_n x C_D - S_n x S_D, cosine and sine matrices."""

import math

from torch import Tensor

from regard.reference._rows import oracle


@oracle
def fnet(params, options, row):
    """-> (y [B T D], None)"""

    def waves(n: int) -> tuple[Tensor, Tensor]:
        angle = [[2 * math.pi * (j * k % n) / n for j in range(n)] for k in range(n)]
        angles = row.x.new_tensor(angle)
        return angles.cos(), angles.sin()

    D = row.x.shape[1]
    (c_n, s_n), (c_d, s_d) = waves(row.T), waves(D)
    y = c_n @ row.x @ c_d - s_n @ row.x @ s_d
    return (y / (row.T * D) ** 0.5 if options["norm"] == "ortho" else y), None
