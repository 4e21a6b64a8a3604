"""A state knows whose it is and whether it was given away; a mask is the caller's own and on the tokens' device."""

import copy
import io
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

import regard
from regard import Mask, ShapeError
from regard.core import Mixer, Streamed, as_state, tensors
from regard.models import LanguageModelConfig
from regard.models.generation import reorder
from tests.laws.catalogue import FACTS

B, N = 2, 3
X = torch.randn(B, N, 24)
STREAMS = [cls.name for cls in regard.MIXERS.values() if cls.capabilities.streaming]
make = partial(regard.build, **FACTS)


def saved(state):
    """The state, written and read again."""
    torch.save(state, written := io.BytesIO())
    written.seek(0)
    return torch.load(written, weights_only=True)


@pytest.mark.parametrize("name", STREAMS)
def test_a_state_of_another_width_batch_type_or_device_is_refused(name):
    mixer = make(name)
    mine = mixer.initial_state(B)
    with pytest.raises(ShapeError, match=f"^{name}: .*with dim=12, and this one has 24"):
        mixer.extend(X, make(name, dim=12).initial_state(B))
    with pytest.raises(ShapeError, match=f"^{name}: state has batch 3"):
        mixer.extend(X, mixer.initial_state(3))
    with pytest.raises(ShapeError, match=r"dtype torch\.float64, x torch\.float32"):
        mixer.extend(X, copy.deepcopy(mixer).double().initial_state(B))
    with pytest.raises(ShapeError, match="is on meta, x on cpu"):
        mixer.extend(X, tree_map(lambda field: field.to("meta"), mine))
    for document in (3, torch.zeros(1).long(), torch.zeros(B), torch.zeros(B).long().to("meta")):
        with pytest.raises(ShapeError, match=r"state\.document must be integers \[2\] on cpu, got"):
            mixer.extend(X, replace(mine, document=document))
    assert mixer.extend(X, mine)[0].shape == X.shape


def test_the_option_that_differs_is_named_and_harmless_ones_are_not():
    state = make("local", window_size=4).initial_state(B)
    with pytest.raises(ShapeError, match="with window_size=4, and this one has 8"):
        make("local", window_size=8).extend(X, state)
    assert make("local", window_size=4, impl="plain").extend(X, state)[0].shape == X.shape
    of_functions = dict(make("linear", feature_map=saved)._owner)["feature_map"]
    assert of_functions == f"{__name__}.saved"  # and no address, which is another in each process
    several = ([1] * 6 + last for last in ([1, 2], [2, 1]))  # a message shows the first six
    one, other = (make("longformer", num_heads=8, dilation=tuple(d)) for d in several)
    with pytest.raises(ShapeError, match="got one of a mixer with dilation="):
        other.extend(X, one.extend(X, one.initial_state(B))[1])


@torch.no_grad()
@pytest.mark.parametrize("name", STREAMS)
def test_a_state_that_was_given_away_is_refused(name):
    mixer = make(name).eval()
    first = mixer.initial_state(B, max_len=9)
    _, second = mixer.extend(X, first, donate=True)
    every = torch.arange(B)
    for again in (lambda s: s, lambda s: reorder(s, every), lambda s: tree_map(torch.clone, s)):
        with pytest.raises(ShapeError, match="was given away with donate=True"):
            mixer.extend(X, again(first))
    y, _ = mixer.extend(X, second)
    again, _ = mixer.extend(X, second, donate=True)
    assert torch.equal(y, again)
    with torch.inference_mode():
        third = mixer.extend(X, mixer.initial_state(B, max_len=9))[1]
    assert torch.equal(y, mixer.extend(X, third, donate=True)[0])


@torch.no_grad()
def test_copies_share_storage_and_what_became_of_it():
    mixer = make("softmax").eval()
    state = mixer.extend(X, mixer.initial_state(B, max_len=9))[1]
    copies = replace(state), copy.deepcopy(state), tree_map(torch.clone, state)
    mixer.extend(X, state, donate=True)
    with pytest.raises(ShapeError, match="was given away"):
        mixer.extend(X, copies[0])
    for own in copies[1:]:
        assert mixer.extend(X, own)[0].shape == X.shape


@torch.no_grad()
def test_a_bound_of_the_lengths_is_lost_with_the_fields_that_it_is_of():
    mixer = regard.build("gmlp", dim=24, max_len=8)
    state = mixer.extend(X, mixer.initial_state(B))[1]
    assert (state.most, replace(state).most, tree_map(torch.clone, state).most) == (3, None, None)
    longer = replace(state, length=state.length + 5)
    for _ in range(2):  # what was refused was not given away
        with pytest.raises(ShapeError, match="state length"):
            mixer.extend(X, longer, donate=True)


@torch.no_grad()
@pytest.mark.parametrize("name", STREAMS)
def test_a_mark_survives_copies_files_and_reordering(name):
    mixer, other = make(name).eval(), make("softmax" if name != "softmax" else "linear")
    _, state = mixer.extend(X, mixer.initial_state(B))
    rows = torch.tensor([1, 0])
    for twin in (copy.deepcopy(state), saved(state)):
        assert torch.equal(mixer.extend(X, twin)[0], mixer.extend(X, state)[0])
        with pytest.raises(ShapeError, match=f"state must come .* got one of {name}$"):
            other.extend(X, twin)
    with pytest.raises(ShapeError, match=f"got one of {name}"):
        other.extend(X, reorder(state, rows))
    for wrong in (rows + 1, rows - 1):
        with pytest.raises(ShapeError, match=f"name rows from 0 to {B - 1}"):
            reorder(state, wrong)


def test_a_state_without_a_mark_is_known_by_its_fields():
    mixer, rows = make("softmax"), torch.tensor([1, 0])
    made = [mixer.initial_state(B), make("linear").initial_state(B)]
    bare = [replace(tree_map(lambda f: f[rows], state), origin=None) for state in made]
    assert mixer.extend(X, bare[0])[0].shape == X.shape
    with pytest.raises(ShapeError, match="got one of other fields or widths: S"):
        mixer.extend(X, bare[1])
    for wrong in (None, 5, (1, 2), replace(bare[0], length=3), tree_leaves(bare[0])):
        with pytest.raises(ShapeError, match="state must come from"):
            mixer.extend(X, wrong)


def test_a_mask_is_where_the_tokens_are_and_what_the_mixer_fills_in_is_its_own():
    mixer, valid = make("softmax"), torch.ones(B, N, dtype=torch.bool)
    with pytest.raises(ShapeError, match=r"mask\.valid is on meta, the tokens on cpu"):
        mixer.initial_state(B, context=X, valid=valid.to("meta"))
    for mask in (Mask(valid=valid, compact=True), Mask(causal=True, shift=torch.zeros(B).long())):
        with pytest.raises(ShapeError, match=r"mask\.compact and mask\.shift are filled in by"):
            mixer(X, mask=mask)
    with pytest.raises(ShapeError, match=r"must be dense, got torch\.sparse_coo"):
        mixer(X.to_sparse())


@as_state
class _Sum(Streamed):
    total: Tensor  # [B]
    length: Tensor


class SumOfAll(Mixer):
    """y_t = the sum of all inputs up to t, in every channel; the state has one number a row."""

    name = "sum_of_all"
    capabilities = regard.MIXERS["linear"].capabilities.but(state="1")

    def mix(self, x, context, mask):
        raise NotImplementedError

    def _initial_state(self, batch_size, max_len, context, valid):
        return _Sum(torch.zeros(batch_size), torch.zeros(batch_size, dtype=torch.long))

    def _extend(self, x, state, valid, donate):
        sums = state.total[:, None] + x.sum(-1).cumsum(1)
        return sums[..., None].expand_as(x), _Sum(sums[:, -1], state.length + x.shape[1])


@pytest.mark.parametrize("rows", [0, 2, 3])
def test_a_state_with_one_number_a_row_is_known_for_any_number_of_rows(rows):
    mixer, x = SumOfAll(4), torch.randn(rows, 5, 4)
    _, state = mixer.extend(x[:, :3], mixer.initial_state(rows))
    y, _ = mixer.extend(x[:, 3:], replace(tree_map(torch.clone, state), origin=None))
    assert torch.allclose(y, x.sum(-1).cumsum(1)[:, 3:, None].expand(-1, -1, 4))


@pytest.mark.parametrize("name", STREAMS)
def test_a_state_prints_its_shapes_and_no_numbers(name):
    mixer = make(name)
    for state in (mixer.initial_state(B), mixer.extend(X, mixer.initial_state(B, max_len=9))[1]):
        for name, z in tensors(state).items():
            assert f"{name.rpartition('.')[2]}=[{' '.join(map(str, z.shape))}]" in repr(state)
        assert "tensor" not in repr(state) and "origin" not in repr(state)


def test_what_is_not_usual_is_printed_too():
    state = make("softmax").to("meta", torch.bfloat16).initial_state(B)
    assert repr(state).endswith("length=[2] meta)") and "k=[2 3 0 8] bfloat16 meta" in repr(state)
    assert repr(make("linear").observe(X)).startswith("Observation(q=[2 3 3 8], k=[2 3 3 8], v=[")
    assert repr(SumOfAll(4).initial_state(2)) == "_Sum(total=[2], length=[2])"
    config = LanguageModelConfig(vocab_size=9, dim=24, num_heads=3, num_layers=1, max_len=8)
    state = config.build().initial_state(B)
    assert repr(state) == f"State(blocks=({state.blocks[0]!r}), length=[2])"
    assert repr(saved(state)) == repr(state)
    pairwise = torch.ones(1, 1, 13, 13, dtype=torch.bool)
    assert repr(Mask()) == "Mask()"
    assert repr(Mask(causal=True, valid=pairwise[0, 0])) == "Mask(causal=True, valid=[13 13])"
    assert repr(Mask(pairwise=pairwise.to("meta"))) == "Mask(pairwise=[1 1 13 13] meta)"
