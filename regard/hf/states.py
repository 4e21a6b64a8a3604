"""StateCache: streaming states where Transformers passes its caches of keys and values."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import Cache

from regard.core import ShapeError, UnsupportedError, checked
from regard.models.generation import reorder, require_exact_streams
from regard.models.tokens import Tokens, Valid


class StateCache(Cache):
    """One streaming state for each layer, of the mechanism's own size: `past_key_values` of our causal models.

    `generate` makes one; one that a caller made, `StateCache()`, can be passed to several calls.
    """

    is_compileable = False
    is_croppable = False
    is_linear = [False]  # `generate` then passes the tokens behind those of the cache alone

    def __init__(self):
        super().__init__(layers=[])
        self.reset()

    def reset(self) -> None:
        self.state: Any = None
        self.columns = 0  # tokens so far, padding among them

    def extend(self, model: Any, tokens: Tokens, valid: Valid) -> Float[Tensor, "B N _"]:
        """What `model.extend` gives for the next tokens; its states replace those before, whose storage is used up outside of autograd."""
        if self.state is None:
            require_exact_streams(model.streamed)
            self.state = model.initial_state(len(tokens))
        y, self.state = model.extend(
            tokens, self.state, valid=valid, donate=not torch.is_grad_enabled()
        )
        self.columns += tokens.shape[1]
        return y

    def lengths(self, rows: int) -> Int[Tensor, "B 1"] | int:
        """Valid tokens of each row so far. Raises ShapeError where the states are of another number of rows."""
        if self.batch_size not in (-1, rows):
            raise ShapeError(
                f"StateCache holds states of {self.batch_size} rows, and {rows} are given: call batch_repeat_interleave first"
            )
        return 0 if self.state is None else self.state.length[:, None]

    def __len__(self) -> int:
        return 0 if self.state is None else len(self.state.blocks)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.columns

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        return self.columns + query_length, 0

    def get_max_length(self, layer_idx: int | None = None) -> int:
        return -1

    @property
    def batch_size(self) -> int:
        return -1 if self.state is None else len(self.state.length)

    @checked
    def reorder_cache(self, beam_idx: Int[Tensor, "b"]) -> None:
        if self.state is not None:
            self.state = reorder(self.state, beam_idx.to(self.state.length.device))

    batch_select_indices = reorder_cache  # type: ignore[assignment]

    @checked
    def batch_repeat_interleave(self, repeats: int) -> None:
        self.reorder_cache(torch.arange(max(self.batch_size, 0)).repeat_interleave(repeats))

    def crop(self, tokens_to_remove: int) -> None:
        """Raises UnsupportedError, always."""
        raise UnsupportedError(
            "StateCache does not support crop: a state holds sums over all tokens, and none can be taken back. Generate "
            "without assisted decoding."
        )

    def activate_past_recording(self) -> None:
        """Called before tokens are taken back."""
        self.crop(0)
