"""The state of every random generator that training may draw from, as plain JSON values."""

import json
import random
from base64 import b64decode, b64encode
from typing import Any

import numpy as np
import torch
from torch import Tensor


def capture() -> dict[str, Any]:
    version, words, gauss = random.getstate()
    numbers = np.random.get_state(legacy=False)
    devices = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    return {
        "torch": _encode(torch.get_rng_state()),
        "cuda": list(map(_encode, devices)),
        "python": [version, list(words), gauss],
        "numpy": json.loads(json.dumps(numbers, default=np.ndarray.tolist)),
    }


def restore(state: dict[str, Any]) -> None:
    torch.set_rng_state(_decode(state["torch"]))
    if torch.cuda.is_available() and len(state["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(list(map(_decode, state["cuda"])))
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))
    np.random.set_state(state["numpy"])


def _encode(state: Tensor) -> str:
    return b64encode(state.numpy().tobytes()).decode()


def _decode(text: str) -> Tensor:
    return torch.frombuffer(bytearray(b64decode(text)), dtype=torch.uint8)
