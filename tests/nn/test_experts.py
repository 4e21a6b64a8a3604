import torch

from regard.nn.dnn import Experts


def test_each_expert_is_its_own_network():
    torch.manual_seed(0)
    experts, x = Experts(5, 3, (4, 2)).double(), torch.randn(7, 5).double()
    y = experts(x)
    assert y.shape == (7, 3, 2)
    for i in range(3):
        hidden = x
        for weight, bias in zip(experts.weights, experts.biases, strict=True):
            hidden = (hidden @ weight[i] + bias[i]).relu()
        torch.testing.assert_close(y[:, i], hidden)
