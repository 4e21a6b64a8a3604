"""Target-query pooling: DIN's local activation (Zhou et al. 2018, KDD, arXiv 1706.06978).

    v_U(A) = sum_j a(e_j, v_A) e_j,    a = MLP([e_j ; interaction(e_j, v_A) ; v_A])

The query v_A is the candidate, the set its user's history. There is no softmax in the paper, so that the sum of
weights keeps how strong the interest is; `normalise=True` puts one in (the authors' demo, which divides the scores by
sqrt(D) first: scale=D**-0.5). The MLP is the activation unit of SCORES, its options are described there; Dice takes its
statistics over the valid pairs of the batch. Cost: Q S D F, and no more memory for the outer product than for the others.

Args:
    interaction: products of key and query that the network reads
    activation: activation of the network's hidden layers
    hidden_dims: channels of each hidden layer of the network
    normalise: True: a softmax over the weights
    scale: factor of q . k before the normaliser, or the name of its rule; None: 1 / sqrt(K)
"""

from regard.core import Pool
from regard.functional.scored import Interaction, Normaliser, normalise
from regard.nn.scores import ActivationUnit, UnitActivation


class TargetQuery(Pool):
    name = "target_query"
    paper = "Zhou et al. 2018, arXiv 1706.06978"

    def __init__(
        self,
        dim: int,
        *,
        interaction: Interaction = "outer",
        activation: UnitActivation = "dice",
        hidden_dims: tuple[int, ...] = (36,),
        normalise: bool = False,
        scale: float = 1.0,
    ):
        super().__init__(dim, query_dim=dim)
        self.score = ActivationUnit(
            dim, interaction=interaction, activation=activation, hidden_dims=hidden_dims
        )
        self.normaliser: Normaliser = "softmax" if normalise else "none"
        self.scale = scale

    def weigh(self, x, query, valid):
        scores = self.scale * self.score.pairs(query, x, valid[:, None])
        return normalise(scores, valid[:, None], self.normaliser).type_as(x)
