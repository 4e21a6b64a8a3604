"""A small table: fields, a batch with values missing, and embeddings looked up one at a time."""

import torch
from torch.nn.functional import linear

from regard.nn.fields import Categorical, Numeric, Sequence

ITEM, SHOP, USER = Categorical("items", 9), Categorical("shop", 5), Categorical("user", 7)
FIELDS = (ITEM, Numeric("age"), Sequence("history", ITEM), SHOP, Sequence("shops", SHOP), USER)
BATCH = {
    "items": torch.tensor([3, 0, 8, 1]),
    "age": torch.tensor([0.5, -1.5, float("nan"), 2.0]).double(),
    "history": torch.tensor([[2, 3, 3, 8], [5, 0, 7, 0], [0, 0, 0, 0], [4, 0, 0, 0]]),
    "shop": torch.tensor([2, 4, 1, 3]),
    "shops": torch.tensor([[2, 2, 4, 1], [3, 0, 1, 0], [0, 0, 0, 0], [1, 0, 0, 0]]),
    "user": torch.tensor([1, 2, 3, 6]),
}
B = 4


def rows(batch, index):
    return {name: x[index] for name, x in batch.items()}


def padded(batch, left, right):
    """The same histories, with more room."""
    pad = torch.nn.functional.pad
    return {n: pad(x, (left, right)) if x.dim() == 2 else x for n, x in batch.items()}


def embedded(params, prefix, fields, batch, b):
    """One embedding for each field of row b, None where it is missing."""
    found = []
    for field in fields:
        x = batch[field.name][b]
        if isinstance(field, Numeric):
            found.append(None if x.isnan() else x * params[f"{prefix}.vectors.of_{field.name}"])
            continue
        of = field.of.name if isinstance(field, Sequence) else field.name
        table = params[f"{prefix}.tables.of_{of}.weight"]
        ids = [i for i in x.reshape(-1).tolist() if i != 0]
        found.append(sum(table[i] for i in ids) / len(ids) if ids else None)
    return found


def dense(params, name, x):
    return linear(x, params[f"{name}.weight"], params.get(f"{name}.bias"))


def roused(model):
    """Parameters far from their small start, so that nothing is zero by luck; buffers too."""
    generator = torch.Generator().manual_seed(3)
    for tensor in (*model.parameters(), *model.buffers()):
        tensor.data.uniform_(0.1, 1.0, generator=generator)
    for parameter in model.parameters():
        parameter.data.sub_(0.5)
    return model
