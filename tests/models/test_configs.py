"""Values of a wrong kind are refused with the name of the field, before anything is built."""

import pytest
from torch import nn

import regard
from regard import OptionError, RegardError, UnknownNameError
from regard.models import (
    MODELS,
    AutoIntConfig,
    ClassifierConfig,
    DINConfig,
    MMoEConfig,
    PatchClassifierConfig,
    TransformerXLConfig,
    XLNetConfig,
)
from regard.nn.fields import Categorical, Sequence
from regard.pools import build_pool

ITEM = Categorical("items", 9)
STACK = {"vocab_size": 9}
IMAGE = {"image_size": (8, 8), "patch_size": 2, "num_classes": 3}
DIN = {"fields": (ITEM, Sequence("history", ITEM)), "history": ("history",)}
RATE, WIDTHS = "must be at least 0 and below 1", "must be a tuple of positive integers"
FLAG, MAPPING = "must be True or False", "must be a mapping of option names"


@pytest.mark.parametrize(
    "config, given, field, values, message",
    [
        (AutoIntConfig, {}, "dropout", ("x", None, True, 1, float("nan")), RATE),
        (AutoIntConfig, {}, "hidden_dims", (5, 0, None, [8]), WIDTHS),
        (MMoEConfig, {}, "gate_options", (3, {1: 2}), MAPPING),
        (DINConfig, DIN, "history", (5, ["history"]), "must be a tuple of names"),
        (
            PatchClassifierConfig,
            IMAGE,
            "image_size",
            (5, None, (8,)),
            r"must be a tuple \(a positive integer, a positive",
        ),
        (
            PatchClassifierConfig,
            IMAGE,
            "stem",
            (((4, 0),), (("x", 1),)),
            r"tuple of tuples \(a positive",
        ),
        (PatchClassifierConfig, IMAGE, "stem", (((4, 2), (4, 2)),), r"'s strides \(4\)"),
        (ClassifierConfig, {**STACK, "num_classes": 2}, "summary", ("min",), "must be one of"),
        (ClassifierConfig, {**STACK, "num_classes": 2}, "embedding_norm", (-1,), FLAG),
        (TransformerXLConfig, STACK, "mem_len", (0,), "positive integer"),
        (XLNetConfig, STACK, "mem_len", (-1,), "an integer of at least 0"),
    ],
)
def test_a_value_of_a_wrong_kind_is_refused(config, given, field, values, message):
    for value in values:
        with pytest.raises(OptionError, match=f"{field}.*{message}"):
            config(**{**given, field: value})


@pytest.mark.parametrize("pool", [None, 5, [1], int, "target", nn.Linear])
def test_what_is_no_pool_is_refused(pool):
    with pytest.raises(RegardError, match=r"unknown pool|must be a name or a subclass of Pool"):
        DINConfig(**DIN, pool=pool)


@pytest.mark.parametrize(
    "pool, options, message",
    [
        ("cross", {"mixer": 5}, r"cross: mixer \(.*\) must be a Mixer"),
        ("cross", {"mixer": None}, r"cross: mixer \(.*\) must be a Mixer"),
        ("cross", {"mixer": "softmax", "num_heads": 1, "dim": 3}, "must not hold dim"),
        ("target_query", {"hidden_dims": 3}, WIDTHS),
        ("target_query", {"scale": "x"}, r"scale \('x'\) must be a finite number"),
        ("target_query", {"normalise": "x"}, FLAG),
    ],
)
def test_options_of_a_pool_are_refused_when_the_model_is_built(pool, options, message):
    with pytest.raises(OptionError, match=message):
        DINConfig(**DIN, pool=pool, pool_options=options).build()


def test_a_pool_of_ones_own_mixer_class_is_built():
    options = {"mixer": regard.MIXERS["linear"], "num_heads": 2}
    assert DINConfig(**DIN, pool="cross", pool_options=options).build().pool.mixer.dim == 16


def test_options_of_gates_and_of_the_recurrent_mixer_are_refused():
    gate = {"input_dim": 4, "gate": "attention_query"}
    with pytest.raises(OptionError, match="must not hold num_queries: it is num_tasks"):
        MMoEConfig(**gate, gate_options={"num_queries": 3})
    with pytest.raises(OptionError, match=r"score_options \(3\) must be a mapping"):
        MMoEConfig(**gate, gate_options={"score_options": 3}).build()
    with pytest.raises(OptionError, match="norm_keys"):
        build_pool("attention_query_gate", 4, num_queries=2, norm_keys="x")
    for option, message in (({"dropout": "x"}, RATE), ({"segments": "x"}, FLAG)):
        with pytest.raises(OptionError, match=message):
            regard.build("transformer_xl", dim=8, num_heads=2, **option)


def test_a_preset_that_is_no_name_is_unknown():
    with pytest.raises(UnknownNameError, match="unknown preset of longformer"):
        MODELS["longformer"]([1], vocab_size=9)
