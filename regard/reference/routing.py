"""Oracle of `routing` (arXiv 2003.05997): clusters from given assignments, one cluster and one query at a time."""

from torch import Tensor
from torch.nn.functional import layer_norm

from regard.reference._rows import attend, heads, oracle, softmax


@oracle
def routing(params, options, row):
    """-> (y [B T D], weights [B H T S]); positions in the plan are those among the tokens that are present.

    Self-mixing: query_members, key_members [B H N W], or, causal, clusters [B H T]. With a context: query_clusters
    [B H T] and key_members, or, causal, key_clusters [B H S].
    """
    W = options["window_size"]
    if W is None:
        clusters = options["num_clusters"] or max(1, round(options["max_len"] ** 0.5 / 2))
        W = -(-options["max_len"] // clusters)
    here = [{name: z[row.index, h].tolist() for name, z in row.plan.items()} for h in range(row.H)]

    def clusters_of(plan: dict[str, list], i: int) -> list[list[int]]:
        """The keys in each cluster of the query, before masks."""
        if row.is_cross:
            mine = plan["query_clusters"][i]
            if not row.causal:
                return [plan["key_members"][mine]]
            past = range(i + row.S - row.T + 1)
            return [[j for j in past if plan["key_clusters"][j] == mine][-W:]]
        if row.causal:
            own = plan["clusters"]
            return [[*[j for j in range(i) if own[j] == own[i]][-W:], i]]
        sides = zip(plan["query_members"], plan["key_members"], strict=True)
        return [keys for queries, keys in sides if i in queries]

    q, k, v = heads(params, row)
    if not options["attend_raw"]:
        k = q if options["shared_qk"] else k
        q, k = (layer_norm(z, z.shape[2:]) for z in (q, k))
    k = k * (q.shape[2] ** -0.5 if options["scale"] is None else options["scale"])

    def weigh(h, i):
        used = []
        query = q[i, h]
        tokens = k[:, h].unbind()
        for cluster in clusters_of(here[h], i):
            keys = [j for j in cluster if j >= 0 and row.allowed[h][i][j]]
            if options["published_causal"]:
                keys = [j for j in keys if j <= i]
            if not options["allow_self"] and not row.is_cross and any(j != i for j in keys):
                keys = [j for j in keys if j != i]
            if keys:
                used.append(softmax({j: tokens[j] @ query for j in keys}))
        total = dict[int, Tensor]()
        for weights in used:
            for j, w in weights.items():
                total[j] = total.get(j, 0) + w / len(used)
        return total

    return attend(params, row, v, weigh)
