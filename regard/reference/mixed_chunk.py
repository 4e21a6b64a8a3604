"""Oracle of `mixed_chunk` (arXiv 2202.10447): per head, the sum of the two dense matrices, one pair at a time."""

from torch import Tensor

from regard.reference._gated import share
from regard.reference._rows import attend, heads, oracle, softmax


@oracle
def mixed_chunk(params, options, row):
    """-> (y [B T D], weights [B H T T]); global tokens change nothing where all see all."""
    C, T = options["chunk_size"], row.T
    q, k, v = heads(params, row, turn={"position": "rotary"})

    def normed(scores: dict[int, Tensor]) -> dict[int, Tensor]:
        if options["local_fn"] == "softmax":
            return softmax(scores)
        return {j: s.clamp(min=0) ** 2 / len(scores) for j, s in scores.items()}

    def weigh(h, i):
        seen = [j for j in range(T) if not row.causal or j <= i]
        score = {j: q[i, h] @ k[j, h] / q.shape[-1] ** 0.5 for j in seen}
        near = normed({j: score[j] for j in seen if j // C == i // C})
        found = {}
        for j in seen:
            w = row.x.new_zeros(())
            if options["parts"] != "global" and j in near:
                w = w + near[j]
            if options["parts"] != "local" and (not row.causal or j // C < i // C):
                w = w + share(options, row, i) * score[j]
            found[j] = w
        return found

    return attend(params, row, v, weigh)
