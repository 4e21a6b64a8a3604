"""What a mixer equals, its oracle, itself in other blocks, and at a limit another mechanism, and that it shows what it uses."""

import torch
from torch import Tensor, nn

from regard import MIXERS, Form
from regard.core import Mixer, OptionError
from regard.testing.subject import (
    TINY,
    B,
    NotDeclared,
    Request,
    S,
    Subject,
    T,
    require,
    require_close,
    require_same,
    results,
)

BOUND = 1e-10  # float64, relative
PLAIN = Form("plain", tile=5, chunk=2)


def reference(subject: Subject) -> None:
    """Outputs and all gradients equal the oracle's, for every declared mask and context, alone and together."""
    if not subject.oracle:
        return subject.cannot_judge("outputs and gradients in float64: no oracle is given")
    mixer = subject.make()
    x = subject.x.requires_grad_()
    for request in subject.requests():
        y, _ = subject.consult(mixer, request, x)
        expected = results(mixer, y, x=x, context=request.context)
        require_same(request.results(mixer, x), expected, BOUND, request.label)


def fast(subject: Subject) -> None:
    """What replaces a plain form computes what it computes: outputs and gradients, for every request, in tiny tiles.

    The law of long sequences compares both at the tiles that users get. Without the option `impl` there is nothing to compare.
    """
    if not subject.takes_blocks:
        raise NotDeclared("the class has no option impl, or it names an implementation")
    forms = [subject.make(blocks=form) for form in (TINY, PLAIN)]
    x = subject.x
    for request in subject.requests():
        found, expected = (request.results(form, x) for form in forms)
        require_same(found, expected, BOUND, request.label)


def limit(subject: Subject) -> None:
    """At its limit parameter a mechanism *is* another entry of the catalogue (window >= T, one bucket, k = T)."""
    limits = vars(subject.cls).get("limits")  # a parent's speak of its own options
    if not limits:
        raise NotDeclared("no limit is declared by the class itself")
    common = {k: v for k, v in subject.options.items() if k in ("dim", "num_heads", "max_len")}
    if subject.takes_blocks:
        common["impl"] = TINY
    facts = {"dim": subject.dim, "num_heads": subject.num_heads}
    for name, (own_options, other_options) in limits.items():
        torch.manual_seed(0)
        try:
            own = subject.cls(**common | dict(own_options)).double().eval()
        except OptionError as error:
            subject.cls(
                **common | {"dim": 24, "num_heads": 3} | dict(own_options)
            )  # where its limits must hold
            raise NotDeclared(f"of other sizes than these: {error}") from error
        other = MIXERS[name](**facts | dict(other_options)).double().eval()
        weights = own.state_dict()
        missing = other.state_dict().keys() - weights.keys()
        require(not missing, f"{name} has parameters that the limit cannot give it: {missing}")
        other.load_state_dict({key: weights[key] for key in other.state_dict()})
        for request in subject.requests():
            if request.context is None or other.capabilities.cross:
                x = subject.x
                require_close(
                    request(own, x), request(other, x), BOUND, f"{request.label}: limit {name}"
                )


@torch.no_grad()
def map(subject: Subject) -> None:
    """The attention map holds the weights really used: the oracle's, through which the oracle computes its output."""
    subject.require_declared("attention_map")
    if not subject.oracle:
        subject.cannot_judge("the weights themselves: no oracle is given")
    mixer = subject.make()
    x = subject.x
    half = subject.make(torch.bfloat16).attention_map(x.bfloat16(), mask=subject.mask)
    require(half.isfinite().all(), "bfloat16: the map is not finite")
    for request in subject.requests():
        weights = request(mixer.attention_map, x)
        keys = T if request.context is None else S
        label = request.label
        shape = [*weights.shape]
        # Learned keys come first.
        fits = len(shape) == 4 and shape[0] == B and shape[2] == T and shape[3] >= keys
        require(fits, f"{label}: the map has shape {shape}, not [{B}, H, {T}, {keys}]")
        require(weights.isfinite().all(), f"{label}: the map is not finite")
        outside = ~request.mask.dense(T, keys).expand(B, shape[1], T, keys)
        leaks = weights[..., -keys:][outside].any()
        require(not leaks, f"{label}: the map gives weight to a pair that is not allowed")
        if subject.oracle:
            _, expected = subject.consult(mixer, request, x)
            require(expected is not None, "a map is declared and the oracle has none")
            require_close(weights, expected, BOUND, f"{label}: map")


@torch.no_grad()
def observed(subject: Subject) -> None:
    """Values and head outputs are observed together, alike with and without the weights, whether or not there is a map.

    Head outputs are those that a forward projects: what lies between heads and output, such as a gate, is in them.
    """
    mixer = subject.make()
    x = subject.x
    for request in subject.requests():
        whole, without = (request(mixer.observe, x, weights=kept) for kept in (True, False))
        what = f"{request.label}: observe"
        require(without.weights is None, f"{what}(weights=False) gives weights")
        alone = "head outputs" if whole.v is None else "values"
        require((whole.v is None) == (whole.heads is None), f"{what} gives {alone} alone")
        for name in ("v", "heads"):
            one = getattr(without, name)
            other = getattr(whole, name)
            both = f"{what}: {name} without the weights"
            same = (one is None) == (other is None)
            require(same, f"{both} is given, or with them, and not both")
            if one is not None:
                require_close(one, other, BOUND, both)
        reached = _projected(mixer, request, x)
        if reached is not None and whole.heads is not None and request.mask.valid is None:
            beside = whole.heads.transpose(1, 2).flatten(2)
            require_close(beside, reached, BOUND, f"{what}: heads, and what forward projects")


def _projected(mixer: Mixer, request: Request, x: Tensor) -> Tensor | None:
    """What forward gives to the projection after its heads, if there is one."""
    out = getattr(getattr(mixer, "heads", None), "out", None)
    if not isinstance(out, nn.Module):
        return None
    seen = []
    with out.register_forward_pre_hook(lambda _, args: seen.append(args[0])):
        request(mixer, x)
    return seen[0]
