"""Same seed, same result; evaluation leaves the global generator alone; recomputation is identical; forward is pure."""

import torch
from torch.utils.checkpoint import checkpoint

from regard.core import Mask
from regard.testing.subject import B, Subject, T, gradients, require


def law(subject: Subject) -> None:
    mixer, twin = subject.make(seed=3), subject.make(seed=3)
    mask = Mask(causal=not subject.can.bidirectional)
    x = subject.tokens(B, T)
    y = mixer(x, mask=mask)
    require(torch.equal(y, twin(x, mask=mask)), "two mixers of one seed differ")
    require(torch.equal(y, mixer(x, mask=mask)), "evaluation gives two results for one input")
    before = torch.get_rng_state()
    mixer(x, mask=mask)
    require(torch.equal(before, torch.get_rng_state()), "evaluation moves the global generator")
    _pure(mixer, x, mask)
    _recomputation(subject, mixer, mask)


def _pure(mixer, x, mask) -> None:
    for mode in (False, True):
        mixer.train(mode)
        before = {name: value.clone() for name, value in mixer.state_dict().items()}
        mixer(x, mask=mask)
        after = mixer.state_dict()
        changed = [name for name in before if not torch.equal(before[name], after[name])]
        require(not changed, f"forward changes {changed}; only after_step may")
    mixer.eval()


def _recomputation(subject: Subject, mixer, mask) -> None:
    mixer.train()
    results = []
    for recompute in (False, True):
        torch.manual_seed(9)
        x = subject.tokens(B, T).requires_grad_()
        call = lambda x: mixer(x, mask=mask)  # noqa: E731
        y = checkpoint(call, x, use_reentrant=False) if recompute else call(x)
        results.append([y, *gradients(y, [x, *mixer.parameters()])])
    mixer.eval()
    for plain, recomputed in zip(*results, strict=True):
        require(torch.equal(plain, recomputed), "gradient checkpointing changes a result")
