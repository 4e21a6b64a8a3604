"""At its limit parameter a mechanism *is* another entry of the catalogue (window >= T, one bucket, k = T)."""

import torch

from regard import MIXERS
from regard.testing.subject import TINY, B, Subject, T, require, require_close
from regard.testing.verdicts import NotDeclared


def law(subject: Subject) -> None:
    cls, limits = (
        subject.cls,
        vars(subject.cls).get("limits"),
    )  # a parent's speak of its own options
    if not limits:
        raise NotDeclared("no limit is declared by the class itself")
    for other_name, (own_options, other_options) in limits.items():
        torch.manual_seed(0)
        common = {
            key: value
            for key, value in subject.options.items()
            if key in ("dim", "num_heads", "max_len")
        }
        if subject.takes_blocks:
            common["impl"] = TINY
        own = cls(**common | dict(own_options)).double().eval()
        other_cls = MIXERS[other_name]
        facts = {"dim": subject.dim, "num_heads": subject.num_heads}
        other = other_cls(**facts | dict(other_options)).double().eval()
        weights = own.state_dict()
        missing = [key for key in other.state_dict() if key not in weights]
        require(
            not missing, f"{other_name} has parameters that the limit cannot give it: {missing}"
        )
        other.load_state_dict({key: weights[key] for key in other.state_dict()})
        for request in subject.requests():
            if request.context is not None and not other.capabilities.cross:
                continue
            x = subject.tokens(B, T)
            require_close(
                request(own, x), request(other, x), 1e-10, f"{request.label}: limit {other_name}"
            )
