"""Logistic regression by scikit-learn on one-hot ids and scaled numbers: what a model of a table has to beat."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from regard.core.fields import MISSING
from regard.lab.data.records import Ragged
from regard.lab.data.rows import Rows


def linear_scores(
    train: Rows, test: Rows, names: Sequence[str], labels: Float[Tensor, "n K"]
) -> Float[NDArray, "m K"]:
    """Log-odds of the test rows; training rows without a label are left out."""
    from sklearn.linear_model import LogisticRegression

    features, asked = (
        _features(rows, names, _widths((train, test), names)) for rows in (train, test)
    )
    found = []
    for label in labels.T:
        known = ~label.isnan().numpy()
        model = LogisticRegression(max_iter=200)
        model.fit(features[known], label.numpy()[known])
        found.append(model.decision_function(asked))
    return np.stack(found, 1)


def _features(rows: Rows, names: Sequence[str], widths: dict[str, int]) -> Any:
    """A sparse matrix: a column for each id of a field, its share in a sequence; a number and whether it is missing."""
    from scipy.sparse import csr_matrix, hstack

    n, blocks = len(rows), []
    for name in names:
        column = rows.columns[name]
        if not isinstance(column, Ragged) and np.issubdtype(column.dtype, np.floating):
            numbers = np.stack([np.nan_to_num(column), np.isnan(column)], 1)
            blocks.append(csr_matrix(numbers.astype(np.float64)))
            continue
        if isinstance(column, Ragged):
            row, ids = np.repeat(np.arange(n), column.lengths), column.values
            share = 1 / np.maximum(1, column.lengths)[row]
        else:
            row, ids, share = np.arange(n), column, np.ones(n)
        exists = ids != MISSING
        content = (share[exists], (row[exists], ids[exists]))
        blocks.append(csr_matrix(content, shape=(n, widths[name])))
    return hstack(blocks, format="csr")


def _widths(parts: Sequence[Rows], names: Sequence[str]) -> dict[str, int]:
    """Name -> ids that a field takes."""
    widths = {}
    for name in names:
        columns = [rows.columns[name] for rows in parts]
        values = [c.values if isinstance(c, Ragged) else c for c in columns]
        if np.issubdtype(values[0].dtype, np.integer):
            widths[name] = 1 + int(max(v.max(initial=0) for v in values))
    return widths
