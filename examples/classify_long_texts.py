# # Classify long sequences
# The class of a sequence is whether its first token comes again. `linear` is trained beside softmax attention.

# %%
import os

import torch

from regard.models import ClassifierConfig

SMALL = "REGARD_SMALL" in os.environ
STEPS, LENGTH = (3, 32) if SMALL else (300, 256)


def batch(size: int = 32) -> tuple[torch.Tensor, torch.Tensor]:
    tokens = torch.randint(2, 50, (size, LENGTH))
    tokens[:, 0] = 50
    label = torch.randint(0, 2, (size,))
    place = torch.randint(1, LENGTH, (size,))
    tokens[torch.arange(size), place] = torch.where(label == 1, 50, tokens[:, 1])
    return tokens, label


# %%
for mixer in ("softmax", "linear"):
    torch.manual_seed(0)
    config = ClassifierConfig(
        vocab_size=51, num_classes=2, dim=32, num_heads=2, num_layers=2, mixer=mixer, max_len=LENGTH
    )
    model = config.build()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for _ in range(STEPS):
        tokens, label = batch()
        loss = torch.nn.functional.cross_entropy(model(tokens), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        tokens, label = batch(256)
        right = (model.eval()(tokens).argmax(-1) == label).float().mean()
    print(f"{mixer}: {right:.2f} of 256 unseen sequences")
