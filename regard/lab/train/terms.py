"""Terms of the training loss beside the task's: what mixers and embeddings bring, for any model that has them.

    loss - disagreement_weight * mean over mixers of disagreement(kind)      Li et al. 2018, arXiv 1810.10183
         + commitment * sum over mixers of the commitment loss               Roy et al. 2020, arXiv 2003.05997
         + auxiliary * sum over mixers of `Mixer.auxiliary_loss`             DeepSeek-AI 2025, arXiv 2512.02556
         + batch_l2 * mini-batch-aware L2 of the ids in the batch            Zhou et al. 2018, arXiv 1706.06978

The first observes each mixer once more, on what it was called with: about twice the time of the attention.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from torch import Tensor, nn

from regard.core import Mixer, OptionError, Scalar, UnsupportedError
from regard.lab.tasks import Batch, Splits
from regard.lab.train.config import TrainConfig
from regard.nn.disagreement import disagreement
from regard.nn.recorded import Call, recorded


def has_own_loss(cls: type[Mixer]) -> bool:
    """True for a mixer with a part that no task's loss teaches, as the index of indexed."""
    return cls.auxiliary_loss is not Mixer.auxiliary_loss


class Terms:
    """Raises OptionError where the model or the data have nothing that a term is of."""

    def __init__(self, model: nn.Module, config: TrainConfig, splits: Splits):
        self.config = config
        self.model = model
        who = type(model).__name__.lower()
        mixers = [module for module in model.modules() if isinstance(module, Mixer)]

        def having(term: str, fits: Callable[[Any], bool], what: str) -> list:
            if not getattr(config, term):
                return []
            found = [m for m in mixers if fits(m)]
            if not found:
                raise OptionError(f"{term}: {who} has no mixer with {what}")
            return found

        self.routed = having(
            "commitment",
            lambda m: getattr(m, "routed", hasattr(m, "commitment_loss")),
            "centroids. Mixers that do: routing, head_groups",
        )
        self.selecting = having(
            "auxiliary", lambda m: has_own_loss(type(m)), "an auxiliary loss. indexed has"
        )
        self.headed = having(
            "disagreement", lambda m: getattr(m, "num_heads", 1) > 1, "several heads"
        )
        if config.disagreement == "position":
            for mixer in self.headed:
                mixer.require("attention_map")
        self.counts = None
        if config.batch_l2:
            self.counts = getattr(getattr(splits, "schema", None), "counts", None)
            if not hasattr(model, "batch_l2") or self.counts is None:
                raise OptionError(f"batch_l2 is DIN's on a table, and the model is {who}")

    def watching(self) -> AbstractContextManager[list[Call]]:
        """The calls of the mixers that a term is of, in the list, while open."""
        return recorded(self.model, {*self.headed, *self.routed, *self.selecting})

    def of(self, calls: list[Call], batch: Batch) -> Tensor | float:
        """The term added to this batch's loss, in units of the loss. Raises UnsupportedError where a gradient cannot pass."""
        config = self.config
        total: Tensor | float = 0.0
        found = []
        for call in calls:
            mixer: Any = call.mixer
            if not call.x.requires_grad:
                raise UnsupportedError(
                    f"{mixer.name} was called without gradients, so that no term can be of it. Use residual='plain'."
                )
            given = {"context": call.context, "mask": call.mask}
            if mixer in self.headed:
                found.append(self._disagreement(call))
            if mixer in self.routed:
                total = total + (config.commitment or 0.0) * mixer.commitment_loss(call.x, **given)
            if mixer in self.selecting:
                total = total + (config.auxiliary or 0.0) * mixer.auxiliary_loss(call.x, **given)
        if found:
            total = total - config.disagreement_weight * sum(found) / len(found)
        if self.counts is not None:
            model: Any = self.model
            total = total + (config.batch_l2 or 0.0) * model.batch_l2(batch["fields"], self.counts)
        return total

    def _disagreement(self, call: Call) -> Scalar:
        _, _, mixer, x, context, mask, _ = call
        kind = self.config.disagreement
        assert kind is not None
        seen = mixer.observe(x, context=context, mask=mask, weights=kind == "position")
        own = context is None or kind == "subspace"  # the tokens that valid is of
        return disagreement(seen, kind, valid=mask.valid if own else None)
