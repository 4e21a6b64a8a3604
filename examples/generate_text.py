# # A language model of bytes
# Trains on a text file (this file, unless one is named) and goes on with a prompt: `python generate_text.py novel.txt`.

# %%
import os
import sys
from pathlib import Path

import torch

from regard.models import LanguageModelConfig

SMALL = "REGARD_SMALL" in os.environ
STEPS, LENGTH = (3, 32) if SMALL else (300, 128)
path = Path(sys.argv[1]) if sys.argv[1:] else Path(__file__)
data = torch.tensor(list(path.read_bytes())) + 1  # 0 is padding

# %%
torch.manual_seed(0)
config = LanguageModelConfig(
    vocab_size=257, dim=64, num_heads=4, num_layers=2, mixer="linear", max_len=1024
)
model = config.build()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(STEPS):
    starts = torch.randint(0, len(data) - LENGTH - 1, (16, 1))
    window = data[starts + torch.arange(LENGTH + 1)]
    logits = model(window[:, :-1])
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), window[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 100 == 0 or step == STEPS - 1:
        print(f"step {step}: {loss / 0.6931:.2f} bits a byte")

# %%
prompt = data[None, :20]
new = model.generate(prompt, max_new_tokens=20 if SMALL else 200, temperature=0.7)
text = bytes((torch.cat([prompt, new], 1)[0] - 1).clamp(min=0).tolist())
print(text.decode(errors="replace"))
