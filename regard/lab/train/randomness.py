"""The state of every random generator that training may draw from, as plain JSON values."""

import random
from base64 import b64decode, b64encode
from typing import Any

import numpy as np
import torch
from torch import Tensor


def capture() -> dict[str, Any]:
    version, words, gauss = random.getstate()
    numbers = np.random.get_state(legacy=False)
    numbers["state"] = {
        "key": numbers["state"]["key"].tolist(),
        "pos": int(numbers["state"]["pos"]),
    }
    return {
        "torch": _encode(torch.get_rng_state()),
        "cuda": [_encode(state) for state in torch.cuda.get_rng_state_all()]
        if torch.cuda.is_available()
        else [],
        "python": [version, list(words), gauss],
        "numpy": numbers,
    }


def restore(state: dict[str, Any]) -> None:
    torch.set_rng_state(_decode(state["torch"]))
    if torch.cuda.is_available() and len(state["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all([_decode(device) for device in state["cuda"]])
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))
    numbers = dict(state["numpy"])
    numbers["state"] = {
        "key": np.array(numbers["state"]["key"], np.uint32),
        "pos": numbers["state"]["pos"],
    }
    np.random.set_state(numbers)


def _encode(state: Tensor) -> str:
    return b64encode(state.numpy().tobytes()).decode()


def _decode(text: str) -> Tensor:
    return torch.frombuffer(bytearray(b64decode(text)), dtype=torch.uint8)
