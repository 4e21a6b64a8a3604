"""Transformer-XL: what it refuses; tests/models hold segments, memories and XLNet's two streams."""

import pytest
import torch

from regard import Mask, ShapeError, UnsupportedError
from regard.functional import relative_attention
from regard.functional.relative import Segments, Terms
from regard.mixers.transformer_xl import TransformerXL
from regard.testing.subject import normal
from tests.refused import assert_refused


def test_what_cannot_be_is_refused():
    plain, mixer = (TransformerXL(24, num_heads=3, segments=z).double() for z in (False, True))
    x, one, wrong = normal(2, 13, 24), torch.zeros(2, 13).long(), torch.zeros(2, 12).long()
    mask, said = Mask(valid=one == 0), r"key_segment must be integers \[2, 13\], got"
    assert_refused(
        (UnsupportedError, "streaming over a context", lambda: mixer.initial_state(2, context=x)),
        (UnsupportedError, "built without a segment term", lambda: plain.relate(x, one, one)),
        (UnsupportedError, "Hide what is absent by", lambda: mixer.relate(x, one, one, mask=mask)),
        (ShapeError, said, lambda: mixer.relate(x, one, wrong)),
    )


def test_segments_that_do_not_fit_are_named():
    q, s, b, one = normal(2, 3, 6, 4), normal(2, 3, 4), normal(3, 4), torch.zeros(2, 6).long()
    terms = Terms(normal(11, 3, 4), normal(3, 4), normal(3, 4), Segments(one, one, s, b))
    relative_attention(q, q, q, terms=terms)
    odd = [("key", one[:, 1:]), ("query", one[:1]), ("s", s[:1]), ("b", b[:, :1]), ("key", None)]
    for name, value in odd:
        segments = terms.segments._replace(**{name: value})
        with pytest.raises(ShapeError, match=f"segments: {name}"):
            relative_attention(q, q, q, terms=terms._replace(segments=segments))
