"""Transformer-XL: what it refuses, and how a row forgets; tests/models hold segments, memories and XLNet's two streams."""

from dataclasses import replace

import pytest
import torch

from regard import Mask, ShapeError, UnsupportedError
from regard.functional import relative_attention
from regard.functional.relative import Segments, Terms
from regard.mixers.transformer_xl import TransformerXL
from regard.testing.subject import normal
from tests.models.small import language_model, prompts

X = normal(2, 13, 24)


def make(**options):
    return TransformerXL(24, num_heads=3, **options).double()


def test_a_row_whose_length_is_zero_has_forgotten():
    mixer = make(mem_len=13)
    _, state = mixer.extend(X[:, :6], mixer.initial_state(2))
    y, _ = mixer.extend(X[:, 6:], replace(state, length=torch.tensor([0, 6])))
    torch.testing.assert_close(y[0], mixer(X[:, 6:], mask=Mask(causal=True))[0])
    torch.testing.assert_close(y[1], mixer(X, mask=Mask(causal=True))[1, 6:])


def test_what_cannot_be_is_refused():
    one, mixer = torch.zeros(2, 13, dtype=torch.long), make(segments=True)
    with pytest.raises(UnsupportedError, match="streaming over a context"):
        mixer.initial_state(2, context=X)
    with pytest.raises(UnsupportedError, match="does not support generate"):
        language_model(mixer=TransformerXL, position="none").generate(prompts(), max_new_tokens=2)
    with pytest.raises(UnsupportedError, match="built without a segment term"):
        make().relate(X, one, one)
    with pytest.raises(UnsupportedError, match="Hide what is absent by"):
        mixer.relate(X, one, one, mask=Mask(valid=one == 0))
    with pytest.raises(ShapeError, match=r"key_segment must be integers \[2, 13\], got"):
        mixer.relate(X, one, one[:, 1:])


def test_segments_that_do_not_fit_are_named():
    q, s, b, one = normal(2, 3, 6, 4), normal(2, 3, 4), normal(3, 4), torch.zeros(2, 6).long()
    terms = Terms(normal(11, 3, 4), normal(3, 4), normal(3, 4), Segments(one, one, s, b))
    relative_attention(q, q, q, terms=terms)
    odd = [("key", one[:, 1:]), ("query", one[:1]), ("s", s[:1]), ("b", b[:, :1]), ("key", None)]
    for name, value in odd:
        segments = terms.segments._replace(**{name: value})
        with pytest.raises(ShapeError, match=f"segments: {name}"):
            relative_attention(q, q, q, terms=terms._replace(segments=segments))
