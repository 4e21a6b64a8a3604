# # Which is fast here?
# Seconds of one forward pass, the best of three, beside fused softmax attention. `regard bench` does this with more care.

# %%
import os
import time

import torch

import regard

SMALL = "REGARD_SMALL" in os.environ
LENGTHS = (128, 256) if SMALL else (512, 1024, 2048, 4096)
NAMES = ("softmax", "local", "linear", "reformer")


def seconds(name: str, length: int) -> float:
    mixer = regard.build(name, dim=256, num_heads=4, max_len=length).eval()
    x, found = torch.randn(1, length, 256), []
    with torch.no_grad():
        for _ in range(3):
            began = time.perf_counter()
            mixer(x)
            found.append(time.perf_counter() - began)
    return min(found)


# %%
times = {name: [seconds(name, length) for length in LENGTHS] for name in NAMES}
print(f"{'tokens':>10}" + "".join(f"{length:>10}" for length in LENGTHS))
for name, row in times.items():
    print(f"{name:>10}" + "".join(f"{1e3 * t:>7.1f} ms" for t in row))

# %%
# The growth between the last two lengths: 2 is in proportion to the tokens, 4 is quadratic.
for name, row in times.items():
    print(f"{name:>10}: {row[-1] / row[-2]:.1f} times as long at twice the length")
