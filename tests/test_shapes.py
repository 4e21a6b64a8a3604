"""Shapes in signatures are checked here, and only here: every mixer runs once under jaxtyping and beartype."""

import pytest

import regard
from tests.command import python

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
from regard.testing.laws.streaming import feed
from regard.testing.subject import Subject
from tests.laws.catalogue import VARIANTS, factory

for name, _, options in VARIANTS:
    subject = Subject(factory(name, options))
    mixer, x, can = subject.factory(), subject.x.float(), subject.can
    for request in subject.requests(dtype=torch.float32):
        assert request(mixer, x).shape == x.shape
        request(mixer.observe, x)
    if can.streaming:
        valid = torch.arange(13) < torch.tensor([[13], [9]]) if can.padding else None
        y, _ = feed(mixer, x, mixer.initial_state(2), (5, 5, 3), valid=valid)
        assert y.shape == x.shape
        if can.cross and can.streaming == "exact":
            mixer.extend(x, mixer.initial_state(2, context=torch.randn(2, 7, 24)))
    print(name)

from regard.functional.softmax import softmax_attention

try:
    softmax_attention(torch.randn(2, 3, 5, 4), torch.randn(2, 3, 7, 4), torch.randn(2, 3, 6, 4))
except Exception as error:
    print("wrong", type(error).__name__)
"""


def test_every_mixer_keeps_the_shapes_in_its_signatures_and_a_wrong_one_is_noticed():
    done = python("-c", HOOKED + RUN_ALL)
    assert done.returncode == 0, done.stderr[-3000:]
    *ran, wrong = done.stdout.splitlines()
    assert set(ran) == set(regard.MIXERS.names())
    assert wrong == "wrong TypeCheckError"
