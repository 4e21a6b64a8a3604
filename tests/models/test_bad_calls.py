"""Calls with what does not fit are refused by an error of this library, before anything is computed."""

import pytest
import torch

from regard import OptionError, ShapeError, UnknownNameError
from regard.models import (
    DINConfig,
    HANConfig,
    LanguageModelConfig,
    MMoEConfig,
    TransformerXLConfig,
    XLNetClassifierConfig,
    XLNetConfig,
    pad_documents,
)
from tests.models.small import transformer
from tests.models.table import BATCH, FIELDS

SIZES = {"vocab_size": 9, "dim": 8, "num_heads": 2}
TOKENS = torch.tensor([[1, 2, 3], [4, 5, 6]])
ORDER = torch.tensor([[0, 1, -1], [2, 1, 0]])
FROM_ITSELF = "state must come from initial_state"


def lm(**options):
    return LanguageModelConfig(**SIZES, **options).build()


def xl(**options):
    return TransformerXLConfig(**SIZES, **options).build()


def xlnet(**options):
    return XLNetConfig(**(SIZES | options)).build()


@pytest.mark.parametrize("make", [lm, xl])
def test_a_state_of_another_depth_is_refused(make):
    with pytest.raises(ShapeError, match=FROM_ITSELF):
        make(num_layers=2).extend(TOKENS, make(num_layers=3).initial_state(2))


def test_a_state_of_another_transformer_or_xlnet_is_refused():
    model, other = transformer(decoder_layers=1), transformer(decoder_layers=2)
    with pytest.raises(ShapeError, match=FROM_ITSELF):
        model.extend(TOKENS, other.initial_state(TOKENS))
    for options in ({"num_layers": 3}, {"dim": 4}):
        with pytest.raises(ShapeError, match=FROM_ITSELF):
            xlnet(mem_len=2).extend(
                TOKENS, xlnet(**options, mem_len=2).initial_state(2), order=ORDER
            )


def test_a_memory_is_not_a_cache():
    for state in (lm().initial_state(2), xl(mem_len=5).initial_state(2), None):
        with pytest.raises(ShapeError, match=FROM_ITSELF):
            xl().extend(TOKENS, state)


def test_ranks_below_context_are_refused():
    model, valid = xlnet(), torch.tensor([[True, True, True], [True, True, False]])
    wrong = ORDER.masked_fill(~valid, -7)
    with pytest.raises(ShapeError, match="order holds the rank -7: ranks start at 0"):
        model(TOKENS, order=wrong)
    wanted = model.eval()(TOKENS, order=ORDER, valid=valid)
    assert torch.equal(model(TOKENS, order=wrong, valid=valid)[valid], wanted[valid])


def test_what_a_classifier_is_given_is_checked():
    model = XLNetClassifierConfig(**SIZES, num_classes=2).build()
    for wrong in (None, 5, torch.tensor(1)):
        with pytest.raises(ShapeError, match="xlnet_classifier: tokens must be a tensor of ids"):
            model(wrong)


@pytest.mark.parametrize("make", [lm, xl])
def test_a_generator_is_a_generator(make):
    with pytest.raises(OptionError, match=r"generator .* must be a Generator or None"):
        make().generate(TOKENS, max_new_tokens=1, temperature=1.0, generator="x")


@pytest.mark.parametrize(
    "documents", [5, None, [[1, 2]], [["ab"]], "ab", [[[1.5]]], [[[[1]]]], [[["a"]]]]
)
def test_documents_are_lists_of_lists_of_ids(documents):
    with pytest.raises(ShapeError, match="pad_documents: documents must be lists of sentences"):
        pad_documents(documents)


def test_encoders_of_han_take_options():
    sizes = {"vocab_size": 9, "num_classes": 2, "hidden_dim": 4, "max_len": 8}
    config = HANConfig(
        **sizes, word_encoder="local", word_encoder_options={"window_size": 3}, num_heads=2
    )
    assert config.build().words.block.mixer.options["window_size"] == 3
    with pytest.raises(UnknownNameError, match="option of local"):
        HANConfig(**sizes, word_encoder="local", word_encoder_options={"windw": 3}).build()
    with pytest.raises(OptionError, match="sentence_encoder_options must not hold dim"):
        HANConfig(**sizes, sentence_encoder="local", sentence_encoder_options={"dim": 3})


def test_vectors_are_of_the_type_of_the_model():
    model = MMoEConfig(input_dim=4).build()
    for dtype in (torch.int64, torch.float64):
        with pytest.raises(ShapeError, match=f"mmoe: x has dtype {dtype}, the module"):
            model(torch.ones(2, 4, dtype=dtype))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert model(torch.ones(2, 4, dtype=torch.bfloat16)).shape == (2, 1)


def test_counts_are_those_of_every_vocabulary():
    model = DINConfig(fields=FIELDS, history=("history", "shops"), dim=3).build()
    counts = {name[3:]: torch.ones(len(t.weight)) for name, t in model.embedding.tables.items()}
    assert model.batch_l2(BATCH, counts) > 0
    short = counts | {"items": counts["items"][:-1]}
    for wrong in ({}, short, counts | {"items": [1, 2]}):
        with pytest.raises(ShapeError, match=r"din: counts of 'items' must be a tensor \[9\]"):
            model.batch_l2(BATCH, wrong)
    with pytest.raises(ShapeError, match="got None"):
        model.batch_l2(BATCH, None)
