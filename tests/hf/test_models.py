"""Our models in Transformers' format: files, Auto classes, Trainer, generation."""

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.hf.small import OURS, tokens, trained, transformers
from tests.refused import assert_refused

import regard.hf  # isort: skip
from regard import MIXERS, OptionError, ShapeError, StoredDataError, UnsupportedError
from regard.hf.config import RegardConfig
from regard.models import ClassifierConfig, LanguageModelConfig, Layer

IDS, VALID = tokens()
AUTO = {
    "language_model": (LanguageModelConfig, {}, "AutoModelForCausalLM"),
    "masked_language_model": (regard.models.MaskedLanguageModelConfig, {}, "AutoModelForMaskedLM"),
    "classifier": (ClassifierConfig, {"num_classes": 3}, "AutoModelForSequenceClassification"),
}
regard.hf.register_models()
LAYERS = Layer("local", {"window_size": 3}), Layer("linear")
CASES = [
    *((kind, LAYERS) for kind in AUTO),
    *(("classifier", name) for name in MIXERS.names() if MIXERS[name].capabilities.bidirectional),
    *(("language_model", name) for name in MIXERS.names() if not MIXERS[name].capabilities.bidirectional),
]  # fmt: skip


@pytest.mark.parametrize("kind, mixer", CASES)
def test_models_come_back_from_their_files(kind, mixer, tmp_path):
    """Buffers are stored too: random features, blocks, centroids."""
    torch.manual_seed(0)
    config, more, auto = AUTO[kind]
    inside = config(**OURS, **more, mixer=mixer).build().eval()
    model = regard.hf.wrap(inside)
    padding = mixer is LAYERS or MIXERS[mixer].capabilities.padding
    mask = VALID.long() if padding else None
    want = model(IDS, attention_mask=mask).logits
    torch.testing.assert_close(want, inside(IDS, valid=VALID if padding else None))
    model.save_pretrained(tmp_path)
    assert {path.suffix for path in tmp_path.iterdir()} <= {".json", ".safetensors"}
    torch.manual_seed(1)
    again = getattr(transformers, auto).from_pretrained(tmp_path)
    assert again.inside.config == inside.config
    assert again.state_dict().keys() == model.state_dict().keys()
    torch.testing.assert_close(again.eval()(IDS, attention_mask=mask).logits, want, rtol=0, atol=0)
    model.to(torch.bfloat16).save_pretrained(tmp_path)
    half = getattr(transformers, auto).from_pretrained(tmp_path, dtype=torch.bfloat16)
    torch.testing.assert_close(half.state_dict(), model.state_dict(), rtol=0, atol=0)


@pytest.mark.parametrize("kind", AUTO)
def test_trainer_learns_and_calls_after_step(kind, tmp_path, monkeypatch):
    torch.manual_seed(0)
    config, more, _ = AUTO[kind]
    model = regard.hf.wrap(config(**OURS, **more, mixer="performer"))
    labels = [1, 2] if kind == "classifier" else IDS
    rows = [{"input_ids": ids, "labels": label} for ids, label in zip(IDS, labels, strict=True)] * 8
    calls = []
    mixers = [module for module in model.modules() if isinstance(module, regard.Mixer)]
    for mixer in mixers:
        monkeypatch.setattr(mixer, "after_step", lambda: calls.append(1))
    steps = {"max_steps": 40, "save_steps": 40, "gradient_accumulation_steps": 2}
    steps |= {"learning_rate": 1e-2, "callbacks": [regard.hf.AfterStep()]}
    _, losses = trained(model, rows, tmp_path, **steps)
    assert losses[-1] < losses[0] / 2
    assert len(mixers) == 2 and len(calls) == 40 * 2
    assert (tmp_path / "checkpoint-40" / "model.safetensors").exists()


def test_a_folder_that_lacks_tensors_is_refused(tmp_path):
    regard.hf.register()
    model = regard.hf.wrap(LanguageModelConfig(**OURS, mixer="linear"))
    model.save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    del tensors["inside.encoder.blocks.0.mixer.heads.query.weight"]
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(StoredDataError, match=r"the folder lacks inside.*query.weight"):
        transformers.AutoModelForCausalLM.from_pretrained(tmp_path)


@pytest.mark.parametrize("labels", [torch.eye(2, 3), torch.tensor([0.5, 2.0])])
def test_losses_of_parts_of_a_batch_are_added(labels):
    """Transformers divides by what it counts; its losses of numbers are means all the same."""
    model = regard.hf.wrap(ClassifierConfig(**OURS, num_classes=len(labels.flatten()) // 2)).eval()
    ids, count = IDS[:2], labels.numel()
    parts = [model(ids[n][None], labels=labels[n][None], num_items_in_batch=count).loss for n in (0, 1)]  # fmt: skip
    torch.testing.assert_close(sum(parts), model(ids, labels=labels).loss)


def test_smoothed_labels_are_of_the_next_token_and_embeddings_get_noise(tmp_path):
    torch.manual_seed(0)
    model = regard.hf.wrap(LanguageModelConfig(**OURS, mixer="linear"))
    rows = [{"input_ids": ids, "labels": ids} for ids in IDS]
    smooth = {"label_smoothing_factor": 0.1, "neftune_noise_alpha": 5}
    trainer, _ = trained(model, rows, tmp_path, max_steps=1, save_strategy="no", **smooth)
    with torch.no_grad():
        found = trainer.compute_loss(model.eval(), {"input_ids": IDS, "labels": IDS})
        logits = model(IDS).logits[:, :-1].mT
    expected = torch.nn.functional.cross_entropy(logits, IDS[:, 1:], label_smoothing=0.1)
    torch.testing.assert_close(found, expected)


def test_what_is_refused():
    regard.hf.register()
    model = regard.hf.wrap(LanguageModelConfig(**OURS))
    classifier = regard.hf.wrap(ClassifierConfig(**OURS, num_classes=3))
    classifier.config.num_labels = 5
    asking = regard.hf.wrap(regard.models.MaskedLanguageModelConfig(**OURS))
    asking.config.return_dict = False
    assert isinstance(asking(IDS), tuple) and isinstance(asking(IDS, return_dict=None), tuple)
    asking.config.output_attentions = True
    own, added = MIXERS["linear"], (1.0 - VALID.float()) * -1e9
    assert_refused(
        (UnsupportedError, "wrap does not support Linear: it takes language_model", lambda: regard.hf.wrap(torch.nn.Linear(1, 1))),
        (OptionError, "and not the class Linear: pass a name of MIXERS",
         lambda: regard.hf.wrap(LanguageModelConfig(**OURS, mixer=own))),
        (UnsupportedError, "RegardForCausalLM does not support inputs_embeds", lambda: model(IDS, inputs_embeds=torch.zeros(2, 11, 24))),
        (UnsupportedError, "does not support output_attentions", lambda: model(IDS, output_attentions=True)),
        (UnsupportedError, "RegardForMaskedLM does not support output_attentions", lambda: asking(IDS)),
        (ShapeError, "logits_to_keep must name some of 11 tokens", lambda: model(IDS, logits_to_keep=torch.tensor([0, 30]))),
        (UnsupportedError, "RegardForCausalLM does not support attn_implementation='regard_linear'",
         lambda: model.set_attn_implementation("regard_linear")),
        (ShapeError, "attention_mask must be boolean or hold 0 and 1 alone", lambda: model(IDS, attention_mask=added)),
        (UnsupportedError, "does not support resize_token_embeddings", lambda: model.resize_token_embeddings(50)),
        (OptionError, "it has 3 classes, got num_labels=5", lambda: type(classifier)(classifier.config)),
        (OptionError, "RegardForMaskedLM takes a masked_language_model, got a language_model",
         lambda: regard.hf.models.RegardForMaskedLM(model.config)),
        (StoredDataError, "the config of this saved stack has no 'tensors'",
         lambda: regard.hf.models.RegardForMaskedLM(RegardConfig("stack"))),
        (OptionError, r"settings \(3\) must be a mapping", lambda: RegardConfig("stack", 3)),
        (OptionError, r"settings.config \(1.5\) must be a mapping", lambda: RegardConfig("stack", {"config": 1.5})),
        (OptionError, r"model \(\[\]\) must be a name", lambda: RegardConfig([])),
    )  # fmt: skip
