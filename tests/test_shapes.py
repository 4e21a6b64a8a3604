"""Shapes in signatures are checked here, and only here: every mixer runs once under jaxtyping and beartype."""

import subprocess
import sys

import pytest

pytest.importorskip("beartype")

PARTS = ["core.request", "core.mask", "core.mixer", "functional", "nn", "positions", "mixers"]
HOOKED = f"""
import sys
import types

import jaxtyping
from beartype import BeartypeConf, beartype

checker = sys.modules["checker"] = types.ModuleType("checker")
checker.check = beartype(conf=BeartypeConf(is_pep484_tower=True))  # an int will do for a float
jaxtyping.install_import_hook({[f"regard.{part}" for part in PARTS]}, "checker.check")
"""
RUN_ALL = """
import torch
import regard
from regard import Mask

ran = []
for cls in regard.MIXERS.values():
    for options in ({}, *cls.variants.values()):
        options = {"dim": 24, "num_heads": 3, "max_len": 64} | dict(options)
        mixer = regard.build(cls.name, **options)
        can = mixer.capabilities
        x, context = torch.randn(2, 13, 24), torch.randn(2, 7, 24)
        causal = not can.bidirectional
        valid = torch.arange(13) < torch.tensor([[13], [9]])
        masks = [Mask(causal=causal)]
        masks += [Mask(causal=causal, valid=valid)] if can.padding else []
        masks += [Mask(causal=True)] if can.causal else []
        if can.pairwise:
            heads = getattr(mixer, "num_heads", 1)
            masks.append(Mask(causal=causal, pairwise=torch.rand(2, heads, 13, 13) > 0.3))
        if can.global_tokens:
            masks.append(Mask(causal=causal, global_tokens=torch.rand(2, 13) > 0.7))
        for mask in masks:
            assert mixer(x, mask=mask).shape == x.shape
            if can.attention_map:  # the weights that are observed
                queries, keys = mixer.attention_map(x, mask=mask).shape[-2:]
                assert queries == 13 and keys >= 13  # learned tokens come first
            else:
                mixer.observe(x, mask=mask)
        if can.cross:
            for causal in {causal, bool(can.causal)}:
                mixer(x, context=context, mask=Mask(causal=causal))
        if can.streaming:
            state = mixer.initial_state(2)
            for chunk, exists in zip(x.split(5, dim=1), valid.split(5, dim=1)):
                y, state = mixer.extend(chunk, state, valid=exists if can.padding else None)
                assert y.shape == chunk.shape
            if can.cross and can.streaming == "exact":
                mixer.extend(x, mixer.initial_state(2, context=context))
        ran.append(cls.name)
print("ran", *ran)

from regard.functional.softmax import softmax_attention

try:
    softmax_attention(torch.randn(2, 3, 5, 4), torch.randn(2, 3, 7, 4), torch.randn(2, 3, 6, 4))
except Exception as error:
    print("wrong", type(error).__name__)
"""


def test_every_mixer_keeps_the_shapes_in_its_signatures_and_a_wrong_one_is_noticed():
    import regard

    done = subprocess.run([sys.executable, "-c", HOOKED + RUN_ALL], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    ran, wrong = done.stdout.splitlines()
    assert set(ran.split()[1:]) == set(regard.MIXERS.names())
    assert wrong == "wrong TypeCheckError"
