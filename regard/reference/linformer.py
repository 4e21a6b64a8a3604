"""Oracle of `linformer` (arXiv 2006.04768): every slot is a sum over the valid tokens, and each query attends to slots."""

from torch import Tensor

from regard.reference._rows import attend, heads, oracle


@oracle
def linformer(params, options, row):
    """-> (y [B T D], weights [B H T S]); global tokens change nothing where all see all."""

    def matrices(h: int, n: int) -> tuple[Tensor, Tensor]:
        """E and F [M n]"""
        if options["projection"] == "mean":
            M = options["num_slots"] or min(128, options["max_len"])
            of = [j * M // n for j in range(n)]  # the segment of each token
            E = row.x.new_tensor([[(s == c) / of.count(c) for s in of] for c in dict.fromkeys(of)])
            return E, E
        E = params["project.key"]
        F = params.get("project.value", E)
        head = h if options["sharing"] == "none" else 0
        return E[head, :, :n], F[head, :, :n]

    q, k, v = heads(params, row)
    of_heads = [matrices(h, row.S) for h in range(row.H)]

    def weigh(h, i):
        E, F = of_heads[h]
        P = (E @ k[:, h] @ q[i, h] * q.shape[-1] ** -0.5).softmax(0)
        return dict(enumerate(P @ F))

    return attend(params, row, v, weigh)
