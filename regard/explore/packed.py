"""Weights in few bytes: levels of the root of |w| / max, deflated head by head, so that a page unpacks one head at a time.

    level = round(levels * sqrt(|w| / max)),   w ~ sign * max * (level / levels)^2

As many levels are kept as fit the bytes there are: 255 (127 where there are signs), else 63, 15 or 3.
"""

import base64
import math
import zlib
from itertools import product
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from regard.core import OptionError
from regard.explore.inputs import Group
from regard.explore.statistics import head_divergence, head_statistics

Data = dict[str, Any]  # what the page holds as JSON
LEVELS = (255, 63, 15, 3)
THUMBNAIL = 32  # rows and columns at most
MOST_NUMBERS = 80_000_000  # weights that one page holds, whatever their bytes
COMPARED = 128  # queries, about, by which heads are compared
SIGN = 128  # added to the level of a negative weight


Window = tuple[slice, slice]
"""Rows and columns of the whole matrix."""


def windows(T: int, S: int, size: int, heads: int) -> list[Window]:
    """Windows of `size` queries and keys: all of them where that is not too much, else those along the diagonal."""
    rows, cols = ([slice(a, min(a + size, n)) for a in range(0, n, size)] for n in (T, S))
    if T * S * heads <= MOST_NUMBERS // 2 or T != S:
        return [*product(rows, cols)]
    return [*zip(rows, cols, strict=True)]


def pack(groups: list[Group], *, window: int, max_bytes: int) -> list[Data]:
    """The groups as JSON values of at most so many bytes. Raises OptionError where even three levels take more."""
    cut = [(g, windows(len(g.rows), len(g.cols), window, _heads(g))) for g in groups]
    numbers = sum(sheet.values[:, *w].numel() for g, ws in cut for sheet in g.sheets for w in ws)
    if numbers > MOST_NUMBERS:
        raise OptionError(
            f"page: {numbers:,} weights do not fit one page ({MOST_NUMBERS:,}). Give fewer inputs, a shorter one, or a smaller window."
        )
    room = max_bytes - sum(_heads(g) * (THUMBNAIL**2 + 400) for g in groups)
    for levels in LEVELS:
        packed = [_group(g, ws, levels) for g, ws in cut]
        if sum(map(_size, packed)) <= room:
            return packed
    raise OptionError(
        f"page: {numbers:,} weights take more than {max_bytes:,} bytes with {LEVELS[-1]} levels. "
        "Give fewer inputs, a smaller window, or a larger max_bytes."
    )


def _heads(group: Group) -> int:
    return sum(len(sheet.values) for sheet in group.sheets)


def _group(group: Group, ws: list[Window], levels: int) -> Data:
    sheets = []
    for sheet in group.sheets:
        heads = [[_squeezed(values[w], levels) for w in ws] for values in sheet.values]
        sheets.append(_about(sheet, group) | {"data": heads})
    thumbnails = torch.stack([_thumbnail(v) for s in group.sheets for v in s.values])
    return group._asdict() | {
        "levels": levels,
        "windows": [[r.start, r.stop, c.start, c.stop] for r, c in ws],
        "thumbnails": {"size": list(thumbnails.shape[1:]), "codes": _text(thumbnails.numpy())},
        "sheets": sheets,
    }


def _size(packed: Data) -> int:
    """Bytes of the levels, about."""
    heads = (head for sheet in packed["sheets"] for head in sheet["data"])
    return sum(len(part["codes"]) + 40 for head in heads for part in head)


def _about(sheet: Any, group: Group) -> Data:
    values = sheet.values[None, :, :, group.prefix :].float()
    found = head_statistics(values, cross=group.cross or values.shape[2] != values.shape[3])
    outside = None
    every = max(1, values.shape[2] // COMPARED)
    if group.prefix:
        total = sheet.values.abs().sum(-1)
        share = sheet.values[..., : group.prefix].abs().sum(-1) / total.clamp(min=1e-30)
        outside = _plain(
            share.sum(-1) / (total > 0).sum(-1).clamp(min=1)
        )  # of queries that see any
    return {
        "name": sheet.name,
        "mechanism": sheet.mechanism,
        "kind": sheet.kind,
        "external": outside,
        "statistics": {name: _plain(z[0]) for name, z in found._asdict().items()},
        "divergence": _plain(head_divergence(sheet.values[None, :, ::every])[0]),
    }


def _plain(z: Tensor) -> Any:
    """Nested lists of rounded numbers; None in the place of NaN."""
    if z.ndim:
        return [_plain(row) for row in z]
    return None if math.isnan(z.item()) else float(f"{z.item():.4g}")


def _squeezed(values: Float[Tensor, "t s"], levels: int) -> Data:
    """The largest magnitude, and the deflated levels."""
    z = values.detach().cpu().float()
    if not torch.isfinite(z).all():
        raise OptionError("page: the weights hold NaN or infinities, which cannot be shown")
    most = float(z.abs().max()) if z.numel() else 0.0
    signed = (z < 0).any()
    kept = min(levels, SIGN - 1) if signed else levels
    codes = (z.abs() / (most or 1.0)).sqrt().mul(kept).round().to(torch.uint8)
    if signed:
        codes += SIGN * (z < 0).to(torch.uint8)
    return {"max": -most if signed else most, "codes": _text(codes.numpy())}


def _thumbnail(values: Float[Tensor, "T S"]) -> Tensor:
    """[t s] levels from 0 to 255 of the largest magnitude in each cell."""
    size = tuple(min(n, THUMBNAIL) for n in values.shape)
    pooled = torch.nn.functional.adaptive_max_pool2d(values.abs()[None].float(), size)[0]
    return (pooled / pooled.max().clamp(min=1e-30)).sqrt().mul(255).round().to(torch.uint8)


def _text(codes: np.ndarray) -> str:
    return base64.b64encode(zlib.compress(codes.tobytes())).decode()
