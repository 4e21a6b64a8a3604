"""Random matrices of feature maps: drawn from a seed that is stored with them, so that a run that goes on redraws the same."""

import torch
from torch import Tensor, nn

from regard.functional.features import gaussian_rows


class RandomProjection(nn.Module):
    """w [P M K]: P matrices with M rows w ~ N(0, I), independent or orthogonal in blocks of K rows.

    `tick` counts steps; `generator` is a fresh one for the step that it has reached. All of it is in the state dict.
    """

    seed: Tensor
    step: Tensor
    w: Tensor

    def __init__(self, num_matrices: int, num_features: int, dim: int, *, orthogonal: bool):
        super().__init__()
        self.orthogonal = orthogonal
        self.register_buffer("seed", torch.empty((), dtype=torch.long))
        self.register_buffer("step", torch.empty((), dtype=torch.long))
        self.register_buffer("w", torch.empty(num_matrices, num_features, dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """A seed from torch's generator, and its matrices of step 0."""
        self.seed.random_(2**62)
        self.step.zero_()
        if not self.w.is_meta:
            self.redraw()

    def tick(self) -> int:
        self.step += 1
        return int(self.step)

    def generator(self) -> torch.Generator:
        return torch.Generator().manual_seed(int(self.seed) + int(self.step))

    @torch.no_grad()
    def redraw(self) -> None:
        """New matrices for the step that has been reached."""
        P, M, K = self.w.shape
        generator = self.generator()
        rows = [
            gaussian_rows(M, K, orthogonal=self.orthogonal, generator=generator) for _ in range(P)
        ]
        self.w.copy_(torch.stack(rows))
