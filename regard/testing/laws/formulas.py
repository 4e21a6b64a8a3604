"""What a mixer is equal to: its oracle, itself in other blocks, and at a limit of its options another mechanism."""

import torch

from regard import MIXERS, Form
from regard.testing.subject import TINY, B, NotDeclared, Subject, T, require, require_same, results

BOUND = 1e-10  # float64, relative
PLAIN = Form("plain", tile=5, chunk=2)
ONE_SIDE = ("right padding", "left padding")  # the law on padding proves these equal to no padding


def reference(subject: Subject) -> None:
    """Outputs and all gradients equal the oracle's, for every declared mask and context, alone and together."""
    if subject.oracle is None:
        return subject.cannot_judge("outputs and gradients in float64: no oracle is given")
    mixer, x = subject.make(), subject.tokens(B, T).requires_grad_()
    for request in subject.requests():
        if not request.label.endswith(ONE_SIDE):
            y, _ = subject.consult(mixer, request, x)
            expected = results(mixer, y, x=x, context=request.context)
            require_same(request.results(mixer, x), expected, BOUND, request.label)


def fast(subject: Subject) -> None:
    """What replaces a plain form computes what it computes: outputs and gradients, for every request, in tiny tiles.

    The law of long sequences compares both at the tiles that users get. Without the option `impl` there is nothing to compare.
    """
    if not subject.takes_blocks:
        raise NotDeclared("the class has no option impl, or it names an implementation")
    mixer, plain = subject.make(blocks=TINY), subject.make(blocks=PLAIN)
    x = subject.tokens(B, T)
    for request in subject.requests():
        found, expected = (request.results(form, x) for form in (mixer, plain))
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
        own = subject.cls(**common | dict(own_options)).double().eval()
        other = MIXERS[name](**facts | dict(other_options)).double().eval()
        weights = own.state_dict()
        missing = other.state_dict().keys() - weights.keys()
        require(not missing, f"{name} has parameters that the limit cannot give it: {missing}")
        other.load_state_dict({key: weights[key] for key in other.state_dict()})
        for request in subject.requests():
            if request.context is None or other.capabilities.cross:
                x = subject.tokens(B, T)
                found, expected = ({"output": request(mixer, x)} for mixer in (own, other))
                require_same(found, expected, BOUND, f"{request.label}: limit {name}")
