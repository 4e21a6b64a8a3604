"""head_groups: what no law covers, its commitment loss and centroids."""

import pytest
import torch

from regard import UnsupportedError, build
from regard.mixers import HeadGroup
from regard.nn import after_step

ROUTED = HeadGroup("routing", 2, {"num_clusters": 3, "window_size": 4, "seed": 0})


def make(*groups, **options):
    torch.manual_seed(0)
    return build("head_groups", dim=12, num_heads=3, groups=groups or None, **options).double()


def test_the_commitment_loss_is_that_of_the_heads_with_centroids():
    x = torch.randn(2, 9, 12).double()
    mixer = make(HeadGroup("local", 1), ROUTED)
    routing = build("routing", dim=12, num_heads=3, **ROUTED.options).double()
    for name in ("query", "key", "value"):
        getattr(routing.heads, name).weight.data = getattr(mixer.heads, name).weight.data
    routing.centroids.value[1:] = mixer.groups[1].centroids.value
    alone = make(HeadGroup("routing", 3, ROUTED.options))
    state = routing.state_dict().items()
    alone.load_state_dict({n.replace("centroids", "groups.0.centroids"): z for n, z in state})
    torch.testing.assert_close(alone.commitment_loss(x), routing.commitment_loss(x))
    loss = mixer.commitment_loss(x)
    (gradient,) = torch.autograd.grad(loss, mixer.heads.query.weight)
    assert (gradient[:4] == 0).all() and (gradient[4:] != 0).any()
    with pytest.raises(UnsupportedError, match="none of its groups has centroids"):
        make().commitment_loss(x)


def test_centroids_move_after_a_step():
    mixer = make(HeadGroup("local", 1), ROUTED).train()
    before = mixer.groups[1].centroids.value.clone()
    mixer(torch.randn(2, 9, 12).double()).sum().backward()
    after_step(mixer)
    assert not torch.equal(mixer.groups[1].centroids.value, before)
