import pytest
import torch

import regard
from regard.models import TransformerXLConfig
from tests.models.small import STREAMING, VOCAB, language_model, prompts, ragged, transformer


@pytest.mark.parametrize("position", ["learned", "axial", "none"])
@pytest.mark.parametrize("mixer", STREAMING)
def test_greedy_is_the_argmax_of_the_whole_forward_with_any_padding(mixer, position):
    model, text, valid = language_model(mixer=mixer, position=position), prompts(), ragged()
    together = model.generate(text.masked_fill(~valid, -7), valid=valid, max_new_tokens=9)
    for row in range(3):
        alone = text[row : row + 1, valid[row]]
        for n in range(9):
            alone = torch.cat([alone, model(alone)[:, -1:].argmax(-1)], dim=1)
            assert alone[0, -1] == together[row, n]


def test_rows_end_at_eos_and_the_call_with_the_last():
    model = language_model()
    free = model.generate(prompts(), max_new_tokens=12)
    eos = int(free[0, 2])
    ended = model.generate(prompts(), max_new_tokens=12, eos=eos)
    for row, whole in zip(ended.tolist(), free.tolist(), strict=True):
        stop = whole.index(eos) if eos in whole else len(whole) - 1
        assert row[: stop + 1] == whole[: stop + 1][: len(row)]
        assert all(token == eos for token in row[stop + 1 :])
    alone = model.generate(prompts()[:1], max_new_tokens=12, eos=eos)
    assert alone.shape[1] == free[0].tolist().index(eos) + 1


def test_sampling_is_seeded_and_leaves_the_global_generator_alone():
    model = language_model()
    before = torch.get_rng_state()
    draws = [
        model.generate(
            prompts(),
            max_new_tokens=8,
            temperature=1.0,
            top_k=9,
            top_p=0.9,
            generator=torch.Generator().manual_seed(seed),
        )
        for seed in (3, 3, 4)
    ]
    assert torch.equal(draws[0], draws[1]) and not torch.equal(draws[0], draws[2])
    assert torch.equal(torch.get_rng_state(), before)
    greedy = model.generate(prompts(), max_new_tokens=8)
    assert torch.equal(
        model.generate(prompts(), max_new_tokens=8, temperature=2.0, top_k=1), greedy
    )
    assert torch.equal(
        model.generate(prompts(), max_new_tokens=8, temperature=2.0, top_p=1e-9), greedy
    )


def test_dropout_is_off_and_modes_are_left_as_they_were():
    model = language_model(dropout=0.5)
    calm = model.generate(prompts(), max_new_tokens=6)
    model.train()
    model.encoder.blocks[0].eval()
    modes = [module.training for module in model.modules()]
    assert torch.equal(model.generate(prompts(), max_new_tokens=6), calm)
    assert [module.training for module in model.modules()] == modes


@pytest.mark.parametrize(
    "change, error, said",
    [
        ({"max_new_tokens": 0}, regard.OptionError, "max_new_tokens"),
        ({"temperature": -1.0}, regard.OptionError, "temperature"),
        ({"temperature": float("nan")}, regard.OptionError, "temperature"),
        ({"top_k": 0}, regard.OptionError, "top_k"),
        ({"top_p": 0.0}, regard.OptionError, "top_p"),
        ({"top_p": 1.5}, regard.OptionError, "top_p"),
        ({"eos": VOCAB}, regard.OptionError, "eos"),
        (
            {"valid": torch.zeros(3, 7, dtype=torch.bool)},
            regard.ShapeError,
            "without any valid token",
        ),
        ({"valid": torch.ones(3, 6, dtype=torch.bool)}, regard.ShapeError, "valid must be boolean"),
    ],
)
def test_bad_requests_are_named(change, error, said):
    with pytest.raises(error, match=said):
        language_model().generate(prompts(), **{"max_new_tokens": 3, **change})


def test_max_len_bounds_what_is_read():
    model = language_model(position="learned", max_len=10)
    assert model.generate(prompts(), max_new_tokens=4).shape == (3, 4)
    with pytest.raises(regard.ShapeError, match=r"prompt of 7 tokens and max_new_tokens \(5\)"):
        model.generate(prompts(), max_new_tokens=5)
    _, state = model.extend(prompts(), model.initial_state(3))
    with pytest.raises(regard.ShapeError, match=r"\(14\) exceeds max_len \(10\)"):
        model.extend(prompts(), state)
    assert language_model(max_len=10).generate(prompts(), max_new_tokens=20).shape == (3, 20)


@pytest.mark.parametrize("recurrent", [False, True])
def test_no_prompts_are_continued(recurrent):
    sizes = {"vocab_size": VOCAB, "dim": 24, "num_heads": 3, "segment_len": 4, "mem_len": 3}
    model = TransformerXLConfig(**sizes).build() if recurrent else language_model()
    none = prompts()[:0]
    for valid in (None, ragged()[:0]):
        assert model.generate(none, valid=valid, max_new_tokens=3).shape == (0, 3)
        drawn = model.generate(none, valid=valid, max_new_tokens=3, temperature=1.0, top_p=0.9)
        assert drawn.shape == (0, 3)
        found = model.beam_search(none, valid=valid, max_new_tokens=3, beams=2)
        assert found.tokens.shape[:2] == (0, 2)
    logits, state = model.extend(none, model.initial_state(0))
    assert logits.shape == (0, 7, VOCAB) and len(state.length) == 0


def test_no_sentences_are_translated():
    model, none = transformer(), prompts()[:0]
    assert model.generate(none, start=1, max_new_tokens=3).shape == (0, 3)
    logits, _ = model.extend(none, model.initial_state(none))
    assert logits.shape == (0, 7, VOCAB)
