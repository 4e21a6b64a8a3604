"""Embeddings of a table's fields: e [B M D], one row for each field (AutoInt, Song et al. 2019, arXiv 1810.11921, section 4.3).

    categorical: E[id]      sequence: mean of its E[id]      numeric: x v

Fields of one vocabulary share E. What is missing is zero, and not `present`.
"""

from collections.abc import Mapping
from typing import cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.core.fields import MISSING, Field, FieldBatch, Numeric, Sequence, vocabularies
from regard.core.shapes import check_positive
from regard.nn.starts import NormalRows, normal_rows


class FieldEmbedding(nn.Module):
    """batch -> e [B M D], present [B M]; rows start from N(0, std^2)."""

    def __init__(self, fields: tuple[Field, ...], dim: int, *, std: float = 0.01):
        check_positive(dim=dim)
        super().__init__()
        self.fields, self.dim = fields, dim
        self.tables = nn.ModuleDict(
            {f"of_{name}": NormalRows(size, dim) for name, size in vocabularies(fields).items()}
        )
        numeric = [field.name for field in fields if isinstance(field, Numeric)]
        self.vectors = nn.ParameterDict({f"of_{name}": torch.empty(dim) for name in numeric})
        self.std = std
        normal_rows(*(self.table(name) for name in vocabularies(fields)), std=std)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for vector in self.vectors.values():
            nn.init.normal_(vector, std=self.std)

    def forward(self, batch: FieldBatch) -> tuple[Float[Tensor, "B M D"], Bool[Tensor, "B M"]]:
        rows, present = zip(
            *(self._row(field, batch[field.name]) for field in self.fields), strict=True
        )
        return torch.stack(rows, 1), torch.stack(present, 1)

    def table(self, vocabulary: str) -> nn.Embedding:
        return cast(nn.Embedding, self.tables[f"of_{vocabulary}"])

    def look_up(self, vocabulary: str, ids: Int[Tensor, "*b"]) -> Float[Tensor, "*b D"]:
        """Rows of a vocabulary's table; zero where the id is that of a missing value."""
        rows = self.table(vocabulary)(ids)
        return torch.where((ids != MISSING)[..., None], rows, rows.new_zeros(()))

    def batch_l2(
        self, batch: FieldBatch, counts: Mapping[str, Int[Tensor, "V"]]
    ) -> Float[Tensor, ""]:
        """Mini-batch-aware L2 (Zhou et al. 2018, arXiv 1706.06978): sum of |E[j]|^2 / (2 n_j) over the ids j in the batch.

        `counts` holds n_j, how often id j occurs in the training data, for each vocabulary. Times lambda, the term's
        gradient is lambda E[j] / n_j for each id that occurs, however often, and zero for the others.
        """
        total = next(self.parameters()).new_zeros(())
        for vocabulary in vocabularies(self.fields):
            weight = self.table(vocabulary).weight
            occurs = torch.zeros(len(weight), dtype=torch.bool, device=weight.device)
            for field in self.fields:
                if not isinstance(field, Numeric) and _vocabulary(field) == vocabulary:
                    occurs = occurs.index_fill(0, batch[field.name].flatten(), True)
            occurs[MISSING] = False
            ids = occurs.nonzero()[:, 0]
            n = counts[vocabulary].to(weight.device)[ids].clamp(min=1)
            total = total + (weight[ids].square().sum(1) / n).sum() / 2
        return total

    def _row(self, field: Field, x: Tensor) -> tuple[Tensor, Tensor]:
        if isinstance(field, Numeric):
            vector = self.vectors[f"of_{field.name}"]
            present = ~x.isnan()
            x = torch.where(present, x, x.new_zeros(())).to(vector.dtype)
            return x[:, None] * vector, present
        rows, exists = self.look_up(_vocabulary(field), x), x != MISSING
        if not isinstance(field, Sequence):
            return rows, exists
        return rows.sum(1) / exists.sum(1, keepdim=True).clamp(min=1), exists.any(1)


def _vocabulary(field: Field) -> str:
    return field.of.name if isinstance(field, Sequence) else field.name
