# # First steps
# One interface for every mechanism: a name, a mask, a stream, and a refusal with its reason.

# %%
import torch

import regard

torch.manual_seed(0)
print("Mechanisms:", ", ".join(regard.MIXERS.names()[:6]), "...")

# %%
# Padding is as if absent: the outputs of 80 tokens are those of the 80 tokens alone.
mixer = regard.build("linear", dim=64, num_heads=4)
x = torch.randn(2, 100, 64)
valid = torch.arange(100) < torch.tensor([[100], [80]])
y = mixer(x, mask=regard.Mask(causal=True, valid=valid))
alone = mixer(x[1:, :80], mask=regard.Mask(causal=True))
print("largest difference:", f"{(y[1:, :80] - alone).abs().max():.0e}")

# %%
# The same as a stream, in two pieces.
state = mixer.initial_state(batch_size=2)
first, state = mixer.extend(x[:, :60], state, valid=valid[:, :60])
rest, state = mixer.extend(x[:, 60:], state, valid=valid[:, 60:])
torch.testing.assert_close(torch.cat([first, rest], dim=1), y)
print("state after 100 tokens:", state)

# %%
# What a mechanism cannot do it refuses, and says what can.
try:
    regard.build("linformer", dim=64, num_heads=4, max_len=100)(x, mask=regard.Mask(causal=True))
except regard.UnsupportedError as error:
    print(error)
