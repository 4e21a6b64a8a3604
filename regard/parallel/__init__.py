"""One sequence over several ranks: each holds its part, and mixers exchange what they need of the others.

    with sequence(model, group):              # the same model on every rank
        loss = loss_of(model(x_local))        # rank r's part of model(x); parts are in the order of the ranks
        loss.backward()                       # on every rank; gradients of parameters are to be summed over the group

Parts may be of any lengths; a rank without tokens gives one that is not `valid`. Three ways, which `way_of` chooses from:

    "state"      causal, where streams are exact: a rank begins with the state in which the one before ends. Ranks compute a layer one
                 after the other, and unlike layers at the same time.
    "context"    in any order, where a query reads nothing of a context but sums, or keys and values, which are exchanged.
    "tokens"     all else: every rank mixes the whole sequence and keeps its own rows, which is the work of all on each.
"""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from regard.core import OPEN, Mask, Mixer, OptionError, ShapeError, UnsupportedError
from regard.core.request import check_request
from regard.core.states import stamped
from regard.models.tokens import Places, places
from regard.nn.centroids import Centroids
from regard.parallel.exchange import extend, gathered, summed
from regard.parallel.ranks import Ranks

Way = Literal["state", "context", "tokens"]

SUMS, KEYS = {"linear", "rfa"}, {"softmax", "latent", "differential"}
"""Mixers whose ContextState is a sum over tokens, and those whose ContextState has an entry for each and no position."""

FIELDS = ("pairwise", "global_tokens", "documents")


def way_of(mixer: Mixer, mask: Mask = OPEN, *, cross: bool = False) -> Way:
    """How ranks exchange for such requests; cross: with a context, which is cut as well.

    Raises UnsupportedError where no way gives what one process gives.
    """
    if mixer.training and any(isinstance(part, Centroids) for part in mixer.modules()):
        raise UnsupportedError(
            f"{mixer.name} does not support training on parts of a sequence: its centroids would count a token once for "
            "each rank. Call eval(), or give whole sequences."
        )
    can = mixer.capabilities
    if mask.pairwise is None and mask.global_tokens is None and can.streaming == "exact":
        if mask.causal and not cross:
            return "state"
        if can.cross and not mask.causal and mask.documents is None and mixer.name in SUMS | KEYS:
            return "context"
    return "tokens"


class Sharded(ExitStack):
    """A model whose mixers exchange with other ranks, until `remove()` or the end of the block."""

    remove = ExitStack.close


def sequence(model: nn.Module, group: Any = None) -> Sharded:
    """Let model(x_local) be this rank's part of model(x).

    group: a torch.distributed.ProcessGroup, None (all processes), or an object with the methods of `regard.parallel.ranks.Ranks`.
    Masks are cut as x is: `pairwise` along the queries alone. All ranks give the same fields, but for `valid`.

    Raises OptionError for a group that this process is not part of, and for a model that has no mixer or is cut already.
    """
    ranks = group if hasattr(group, "receive") else Ranks(group)
    mixers = _outer_mixers(model)
    if not mixers or any("forward" in vars(mixer) for mixer in mixers):
        why = "its mixers have a forward of their own already" if mixers else "it has no mixer"
        raise OptionError(f"regard.parallel.sequence cannot cut {type(model).__name__}: {why}")
    sharded = Sharded()
    for mixer in mixers:
        vars(mixer)["forward"] = _forward(mixer, ranks, mixer.forward)
        sharded.callback(vars(mixer).pop, "forward")
    for module in model.modules():
        if isinstance(module, Places):
            hook = module.register_forward_hook(lambda _, given, at: _placed(ranks, *given))
            sharded.callback(hook.remove)
    return sharded


def _outer_mixers(module: nn.Module) -> list[Mixer]:
    """A mixer inside another is called with what the outer one has gathered."""
    if isinstance(module, Mixer):
        return [module]
    found = [mixer for child in module.children() for mixer in _outer_mixers(child)]
    return list(dict.fromkeys(found))


def _placed(
    ranks: Ranks, tokens: Tensor, valid: Tensor | None, documents: Tensor | None = None
) -> Tensor:
    """Positions of this rank's tokens in the whole sequence."""
    lengths = ranks.facts(tokens.shape[1])
    valid = torch.ones_like(tokens, dtype=torch.bool) if valid is None else valid
    valid = ranks.gather(valid, 1, lengths)
    documents = documents if documents is None else ranks.gather(documents, 1, lengths)
    place = places(valid, valid, documents)
    return place.narrow(1, sum(lengths[: ranks.rank]), lengths[ranks.rank])


def _forward(mixer: Mixer, ranks: Ranks, whole: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def forward(x: Tensor, *, context: Tensor | None = None, mask: Mask = OPEN) -> Tensor:
        check_request(mixer, x, context, replace(mask, pairwise=None))
        way = way_of(mixer, mask, cross=context is not None)
        if way == "state":
            state = None if ranks.rank else mixer.initial_state(len(x))
            tokens = {"valid": mask.valid, "documents": mask.documents}
            return extend(mixer, ranks, x, state, **tokens)[0]
        if way == "context":
            return _by_context(mixer, ranks, x, context, mask.valid)
        return _by_tokens(whole, ranks, x, context, mask)

    return forward


def _by_context(
    mixer: Mixer, ranks: Ranks, x: Tensor, context: Tensor | None, valid: Tensor | None
) -> Tensor:
    source = x if context is None else context
    own = mixer.initial_state(len(x), context=source, valid=valid)
    if mixer.name in SUMS:
        kept = tuple(summed(ranks, z) for z in own.kept)
    else:
        lengths = ranks.facts(source.shape[1])
        kept = tuple(gathered(ranks, z, 2 if z.dim() == 4 else 1, lengths) for z in own.kept)
    answered = ranks.gather(own.answered, 1, [1] * ranks.size).any(1, keepdim=True)
    state = stamped(replace(own, kept=kept, answered=answered), mixer._owner, 0)
    return mixer.extend(x, state, valid=valid if context is None else None)[0]


def _by_tokens(
    whole: Callable[..., Tensor], ranks: Ranks, x: Tensor, context: Tensor | None, mask: Mask
) -> Tensor:
    source = x if context is None else context
    fields: dict[str, Any] = {n: z for n in FIELDS if (z := getattr(mask, n)) is not None}
    facts = ranks.facts((x.shape[1], source.shape[1], mask.valid is not None, [*fields]))
    lengths, keys, padded, names = zip(*facts, strict=True)
    if any(others != [*fields] for others in names):
        raise ShapeError(
            f"regard.parallel: all ranks must give the same fields of a mask, got {names}"
        )
    if any(padded):
        every = torch.ones(source.shape[:2], dtype=torch.bool, device=x.device)
        fields["valid"] = every if mask.valid is None else mask.valid
    for name, z in fields.items():
        fields[name] = gathered(ranks, z, *((2, lengths) if name == "pairwise" else (1, keys)))
    if context is not None:
        context = gathered(ranks, context, 1, keys)
    y = whole(gathered(ranks, x, 1, lengths), context=context, mask=Mask(mask.causal, **fields))
    return y.narrow(1, sum(lengths[: ranks.rank]), lengths[ranks.rank])


__all__ = ["Ranks", "Sharded", "extend", "sequence", "way_of"]
