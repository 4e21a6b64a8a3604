"""A batch of no rows is valid for every model; a sequence of no tokens is refused."""

import pytest
import torch

from regard import MODELS, ShapeError
from regard.models import (
    AutoIntConfig,
    CompressedInteractionConfig,
    CrossNetworkConfig,
    DINConfig,
    DualEncoderConfig,
    FactorizationMachineConfig,
    HANConfig,
    LogisticRegressionConfig,
    MaskedLanguageModelConfig,
    MMoEConfig,
    PatchClassifierConfig,
    Published,
    PublishedImages,
    TransformerXLConfig,
    XLNetClassifierConfig,
    XLNetConfig,
    XLNetMatcherConfig,
)
from tests.models.small import STACK, VOCAB, classifier, language_model, transformer
from tests.models.table import BATCH, FIELDS, rows

SIZES = {"vocab_size": VOCAB, "dim": 24, "num_heads": 3}
TOKENS, ORDER = torch.ones(4, 6, dtype=torch.long), torch.arange(6).expand(4, 6)
VALID = torch.arange(6) < torch.tensor([[6], [3], [1], [2]])
READERS = {
    "classifier": lambda: classifier(),
    "language_model": lambda: language_model(position="learned"),
    "masked_language_model": lambda: MaskedLanguageModelConfig(**STACK).build(),
    "transformer_xl": lambda: TransformerXLConfig(**SIZES, segment_len=4, mem_len=3).build(),
    "xlnet_classifier": lambda: XLNetClassifierConfig(**SIZES, num_classes=3).build(),
}
PAIRS = {
    "transformer": lambda: transformer(),
    "dual_encoder": lambda: DualEncoderConfig(**STACK).build(),
    "xlnet_matcher": lambda: XLNetMatcherConfig(**SIZES, num_classes=2).build(),
}
TABLES = {
    "autoint": lambda: AutoIntConfig(fields=FIELDS, dim=4).build(),
    "din": lambda: DINConfig(fields=FIELDS, history=("history", "shops"), dim=3).build(),
    "logistic_regression": lambda: LogisticRegressionConfig(fields=FIELDS).build(),
    "factorization_machine": lambda: FactorizationMachineConfig(fields=FIELDS).build(),
    "cross_network": lambda: CrossNetworkConfig(fields=FIELDS).build(),
    "compressed_interaction": lambda: CompressedInteractionConfig(fields=FIELDS).build(),
}
OTHERS = {
    "xlnet": lambda: XLNetConfig(**SIZES, mem_len=3, segment_len=4, num_predict=6).build(),
    "han": lambda: HANConfig(vocab_size=VOCAB, num_classes=2, hidden_dim=4, max_len=8).build(),
    "mmoe": lambda: MMoEConfig(input_dim=4).build(),
    "patch_classifier": lambda: PatchClassifierConfig(
        image_size=(8, 8), patch_size=4, num_classes=3, dim=24, num_heads=3
    ).build(),
}


def published():
    """Recipes, which build the models named above."""
    return [
        entry.name for entry in MODELS.values() if isinstance(entry, Published | PublishedImages)
    ]


def call(name, model, count):
    """The model on its first `count` rows; all its outputs in a list."""
    if name in READERS:
        found = [model(TOKENS[:count]), model(TOKENS[:count], valid=VALID[:count])]
    elif name in PAIRS:
        found = [model(TOKENS[:count], TOKENS[:count, :5])]
    elif name in TABLES:
        found = [
            model(
                {
                    n: x.float() if x.is_floating_point() else x
                    for n, x in rows(BATCH, slice(count)).items()
                }
            )
        ]
    elif name == "xlnet":
        given = {"order": ORDER[:count]}
        found = [
            model(TOKENS[:count], **given),
            model(TOKENS[:count], **given, valid=VALID[:count]),
        ]
    elif name == "han":
        found = [model(TOKENS[:count].view(count, 2, 3))]
    elif name == "mmoe":
        found = [model(torch.ones(count, 4))]
    else:
        found = [model(torch.ones(count, 64, dtype=torch.long))]
    return [y for one in found for y in (one if isinstance(one, tuple) else (one,))]


@pytest.mark.parametrize("name", [*READERS, *PAIRS, *TABLES, *OTHERS])
def test_no_rows_give_no_rows_and_gradients_of_zero(name):
    model = {**READERS, **PAIRS, **TABLES, **OTHERS}[name]().float().train()
    shapes = [list(y.shape) for y in call(name, model, 4)]
    before = {key: value.clone() for key, value in model.state_dict().items()}
    found = call(name, model, 0)
    assert [list(y.shape) for y in found] == [[0, *shape[1:]] for shape in shapes]
    sum(y.sum() for y in found).backward()
    assert all(p.grad is None or not p.grad.any() for p in model.parameters())
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


def test_every_model_is_covered():
    named = {*READERS, *PAIRS, *TABLES, *OTHERS, *published()}
    assert named == set(MODELS.names())


@pytest.mark.parametrize("name", [*READERS, *PAIRS])
def test_no_tokens_are_refused(name):
    model, none = {**READERS, **PAIRS}[name](), TOKENS[:, :0]
    with pytest.raises(ShapeError, match=r"T >= 1"):
        model(*([none] if name in READERS else [TOKENS, none]))


@pytest.mark.parametrize("make", [READERS["language_model"], READERS["transformer_xl"]])
def test_no_prompts_are_continued(make):
    model, none = make().eval(), TOKENS[:0]
    for valid in (None, VALID[:0]):
        assert model.generate(none, valid=valid, max_new_tokens=3).shape == (0, 3)
        drawn = model.generate(none, valid=valid, max_new_tokens=3, temperature=1.0, top_p=0.9)
        assert drawn.shape == (0, 3)
        found = model.beam_search(none, valid=valid, max_new_tokens=3, beams=2)
        assert found.tokens.shape[:2] == (0, 2)
    logits, state = model.extend(none, model.initial_state(0))
    assert logits.shape == (0, 6, VOCAB) and len(state.length) == 0


def test_no_sentences_are_translated():
    model, none = transformer(), TOKENS[:0]
    assert model.generate(none, start=1, max_new_tokens=3).shape == (0, 3)
    logits, _ = model.extend(none, model.initial_state(none))
    assert logits.shape == (0, 6, VOCAB)
