"""Packed documents where no law looks: bad calls, sizes beyond max_len, buckets, tracing, and models of states."""

from functools import partial
from inspect import signature
from types import SimpleNamespace

import pytest
import torch

import regard
from regard import OptionError, ShapeError, UnsupportedError, functional
from regard.core.documents import documents_of
from regard.testing.laws.streaming import feed
from tests.refused import assert_refused

X = torch.randn(1, 12, 24, generator=torch.Generator().manual_seed(0))
DOCUMENTS = torch.tensor([[0] * 5 + [1] * 4 + [2] * 3])
SOFTMAX = regard.build("softmax", dim=24, num_heads=3).eval()


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32])
def test_both_ways_of_writing_documents_give_the_same_mask(dtype):
    offsets = regard.Mask.packed(cu_seqlens=torch.tensor([0, 5, 9, 12], dtype=dtype), causal=True)
    places = torch.cat([torch.arange(5), torch.arange(4), torch.arange(3)])[None].to(dtype)
    counted = regard.Mask.packed(position_ids=places, causal=True)
    expected = SOFTMAX(X, mask=regard.Mask(causal=True, documents=DOCUMENTS))
    for mask in (offsets, counted):
        assert mask.causal
        assert torch.equal(SOFTMAX(X, mask=mask), expected)


def mixed(documents=DOCUMENTS, call=SOFTMAX, **context):
    return call(X, mask=regard.Mask(documents=documents), **context)


def extended(documents=DOCUMENTS, mixer=SOFTMAX, **context):
    return mixer.extend(X, mixer.initial_state(1, **context), documents=documents)


def offsets(*numbers, **kind):
    return lambda: regard.Mask.packed(cu_seqlens=torch.tensor(numbers, **kind))


def places(*numbers):
    return lambda: regard.Mask.packed(position_ids=torch.tensor(numbers))


OFFSETS = [0, 5, 4], [1, 5], [0], [0, 2**63 - 1, -(2**63)]
NESTED = torch.nested.nested_tensor([torch.zeros(12)])
NO_NUMBERS = DOCUMENTS.float(), DOCUMENTS.bool(), DOCUMENTS[0], [[0] * 12], NESTED
NO_DOCUMENTS = [
    (torch.tensor([[0] * 5 + [1] * 4 + [0] * 3]), "number 0 again after a gap in row 0"),
    (DOCUMENTS[:, :11], r"must have shape \[1, 12\]"),
    *((wrong, "must be an integer tensor") for wrong in NO_NUMBERS),
]


def test_a_packing_that_is_none_and_documents_that_do_not_fit_are_refused():
    context, made = "documents with a context", partial(regard.build, dim=24, num_heads=3)
    one_by_one = torch.func.vmap(lambda numbers: mixed(numbers[None]))
    assert_refused(
        (OptionError, "one of cu_seqlens and position_ids", regard.Mask.packed),
        *((ShapeError, "must rise from 0", offsets(*z)) for z in OFFSETS),
        (ShapeError, "integer", offsets(0, 5, dtype=torch.uint16)),
        (OptionError, "one row", offsets(0, 10**15)),
        (ShapeError, "meta device", offsets(0, 5, device="meta")),
        (ShapeError, r"integer tensor \[N \+ 1\]", lambda: regard.Mask.packed(cu_seqlens=[0, 5])),
        (ShapeError, r"integer tensor \[B, S\]", places(0, 1)),
        *((ShapeError, "must count 0, 1, 2", places(row)) for row in ([0, 2], [3, 4])),
        (ShapeError, "integer tensor", places([0.0, 0.0])),
        *((ShapeError, words, partial(mixed, z)) for z, words in NO_DOCUMENTS),
        *((ShapeError, words, partial(extended, z)) for z, words in NO_DOCUMENTS),
        (UnsupportedError, context, partial(mixed, context=X)),
        *((UnsupportedError, context, partial(extended, mixer=made(name), context=X))
          for name in ("softmax", "efficient", "linear")),
        (UnsupportedError, "documents under vmap", partial(one_by_one, DOCUMENTS)),
        (UnsupportedError, "plan is of rows", partial(mixed, call=SOFTMAX.plan)),
    )  # fmt: skip


def test_max_len_bounds_a_document_and_not_its_row():
    mixer = regard.build("synthesizer_random", dim=24, num_heads=3, max_len=5).eval()
    y = mixer(X, mask=regard.Mask(documents=DOCUMENTS))
    assert torch.allclose(y[:, 5:9], mixer(X[:, 5:9]), atol=1e-6)
    with pytest.raises(regard.ShapeError, match="length"):
        mixer(X, mask=regard.Mask(documents=torch.zeros_like(DOCUMENTS)))
    _, state = feed(mixer, X, mixer.initial_state(1), (3, 4, 5), documents=DOCUMENTS)
    assert state.length.tolist() == [3]
    with pytest.raises(regard.ShapeError, match="number 2 again after a gap in row 0"):
        mixer.extend(X[:, :2], state, documents=torch.tensor([[7, 2]]))


def test_rows_without_tokens_give_zeros_and_absent_tokens_have_no_number():
    absent = torch.zeros(1, 12, dtype=torch.bool)
    assert not SOFTMAX(X, mask=regard.Mask(valid=absent, documents=DOCUMENTS)).any()
    assert SOFTMAX(X[:0], mask=regard.Mask(documents=DOCUMENTS[:0])).shape == (0, 12, 24)
    y, state = SOFTMAX.extend(X, SOFTMAX.initial_state(1), valid=absent, documents=DOCUMENTS)
    assert y.abs().max() == 0 and state.length.tolist() == [0]
    with torch.autocast("cpu", torch.bfloat16):
        for valid in (None, ~absent, absent):
            y, _ = SOFTMAX.extend(X, SOFTMAX.initial_state(1), valid=valid, documents=DOCUMENTS)
            assert y.dtype == SOFTMAX(X).dtype == torch.bfloat16
    # A number that comes again behind a gap of padding is the same document.
    valid = torch.arange(12)[None] != 3
    documents = DOCUMENTS.masked_fill(~valid, 77)
    y = SOFTMAX(X, mask=regard.Mask(valid=valid, documents=documents))
    assert torch.equal(y, SOFTMAX(X, mask=regard.Mask(valid=valid, documents=DOCUMENTS)))


def test_beams_of_a_packed_stream_are_reordered_and_saved_with_their_documents(tmp_path):
    x = torch.cat([X, X.flip(1)])
    documents = torch.tensor([[0] * 4, [3] * 4])
    _, state = SOFTMAX.extend(x[:, :4], SOFTMAX.initial_state(2), documents=documents)
    swapped = torch.utils._pytree.tree_map(lambda z: z[[1, 0]], state)
    assert swapped.document.tolist() == [3, 0]
    torch.save(swapped, tmp_path / "state.pt")
    again = torch.load(tmp_path / "state.pt")
    more = torch.tensor([[3, 4], [0, 0]])
    y, _ = SOFTMAX.extend(x[[1, 0], 4:6], again, documents=more)
    alone, _ = SOFTMAX.extend(x[1:, 5:6], SOFTMAX.initial_state(1))
    assert torch.allclose(y[:1, 1:], alone, atol=1e-6)


@pytest.mark.parametrize(
    "lengths", [[128] * 64, [4096, *[16] * 256], [700, 690, 600, 300, 299, 3, 2, 1]]
)
def test_padding_adds_little_to_documents_of_like_length(lengths):
    documents = torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))[None]
    mask = regard.Mask(documents=documents)
    buckets = documents_of(SOFTMAX, mask).buckets
    cells = sum(bucket.tokens.numel() for bucket in buckets)
    assert len(buckets) <= 4
    assert cells <= max(1.125 * sum(lengths), sum(lengths) + 512 * len(buckets))
    unpadded = SimpleNamespace(name="test", capabilities=SimpleNamespace(padding=False))
    exact = documents_of(unpadded, mask).buckets
    assert sum(bucket.tokens.numel() for bucket in exact) == sum(lengths)
    assert all(bucket.mask.valid is None for bucket in exact)


@pytest.mark.filterwarnings("ignore")
def test_compiled_documents_run_between_graphs_and_exported_ones_are_refused():
    mask = regard.Mask(causal=True, documents=DOCUMENTS)
    compiled = torch.compile(SOFTMAX, backend="eager")
    assert torch.allclose(compiled(X, mask=mask), SOFTMAX(X, mask=mask), atol=1e-6)
    with pytest.raises(Exception, match="does not export documents"):
        torch.export.export(SOFTMAX, (X,), {"mask": mask}, strict=False)


BETWEEN = torch.tensor([[True, False, True, True]])
MASKED = [n for n in functional.__all__ if "mask" in signature(getattr(functional, n)).parameters]
OF_SUMS = ("linear", "favor", "efficient", "compressed", "random_feature", "sinkhorn")
IGNORED = [(name, "documents", DOCUMENTS) for name in MASKED]
IGNORED += [(f"{name}_attention", "pairwise", BETWEEN[None, None]) for name in OF_SUMS]
IGNORED += [(f"{name}_attention", "global_tokens", BETWEEN) for name in ("routed", "sinkhorn")]


@pytest.mark.parametrize("name, field, value", [*IGNORED, ("fourier_mixing", "causal", True)])
def test_functions_refuse_the_masks_that_they_would_ignore(name, field, value):
    with pytest.raises(regard.UnsupportedError, match=f"{name} does not support {field}"):
        getattr(functional, name)(mask=regard.Mask(**{field: value}))


def test_tokens_that_do_not_come_first_are_refused_where_they_must():
    x, between = torch.randn(1, 1, 4, 6), regard.Mask(valid=BETWEEN)
    softmax = partial(functional.softmax_attention, x, x, x)
    nystrom = partial(functional.nystrom_attention, num_landmarks=2)
    sorting = torch.rand(1, 1, 2, 2)
    sinkhorn = partial(functional.sinkhorn_attention, x, x, x, sorting=sorting, block_size=2)
    marked = regard.Mask(causal=True, global_tokens=torch.ones(1, x.shape[2]).bool())
    first, ordered = "needs valid tokens to come first", regard.Mask(causal=True)
    assert_refused(
        (UnsupportedError, first, partial(sinkhorn, mask=between)),
        (UnsupportedError, first, partial(functional.fourier_mixing, x[0], mask=between)),
        (ShapeError, "window is without global tokens", partial(softmax, window=2, mask=marked)),
        (ShapeError, "sort_cut has no causal order", partial(sinkhorn, mask=ordered, sort_cut=1)),
        (ShapeError, "need cross=True", partial(nystrom, x, *2 * [x[:, :, 1:]])),
    )
