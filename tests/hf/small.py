"""Transformers' models from tiny random configurations; nothing is downloaded."""

import sys
import types

import pytest
import torch

transformers = pytest.importorskip(
    "transformers", reason="transformers is not installed: pip install 'regard[hf]'"
)

SIZES = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4}
SIZES["intermediate_size"] = 32
TOKENS = {"vocab_size": 30, "max_position_embeddings": 64}
TOKENS |= {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
SEQ2SEQ = {
    "d_model": 24, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "dropout": 0.0, "decoder_start_token_id": 2,
}  # fmt: skip

MODELS = {
    "bert": ("BertForMaskedLM", {**SIZES, **TOKENS, **NO_DROPOUT}),
    "roberta": ("RobertaForMaskedLM", {**SIZES, **TOKENS, **NO_DROPOUT}),
    "gpt2": (
        "GPT2LMHeadModel",
        {**TOKENS, "n_embd": 24, "n_layer": 2, "n_head": 4, "n_positions": 64, "attn_pdrop": 0.0, "resid_pdrop": 0.0,
         "embd_pdrop": 0.0},
    ),
    "llama": ("LlamaForCausalLM", {**SIZES, **TOKENS, "num_key_value_heads": 2}),
    "mistral": ("MistralForCausalLM", {**SIZES, **TOKENS, "num_key_value_heads": 2, "sliding_window": 5}),
    "bart": ("BartForConditionalGeneration", {**TOKENS, **SEQ2SEQ}),
    "t5": (
        "T5ForConditionalGeneration",
        {"vocab_size": 30, "d_model": 24, "d_kv": 6, "d_ff": 32, "num_layers": 2, "num_heads": 4, "dropout_rate": 0.0,
         "pad_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 0},
    ),
    "vit": ("ViTForImageClassification", {**SIZES, **NO_DROPOUT, "image_size": 8, "patch_size": 2, "num_labels": 3}),
}  # fmt: skip
CAUSAL, SEQ2SEQ_MODELS = ("gpt2", "llama", "mistral"), ("bart", "t5")


def built(cls: str, config: dict, **changes):
    """This class of Transformers in float64, with weights of seed 0."""
    made = getattr(transformers, cls)
    torch.manual_seed(0)
    return made(made.config_class(**{**config, **changes})).double().eval()


def model(name: str, attn_implementation: str = "eager", **changes):
    cls, config = MODELS[name]
    made = built(cls, config, **changes)
    made.set_attn_implementation(attn_implementation)
    return made


def greedy(model, ids: torch.Tensor | None = None, new: int = 5, **options):
    """So many new tokens: none of them is the last of a text."""
    options = {"do_sample": False, "eos_token_id": None, "pad_token_id": 0} | options
    return model.generate(ids, max_new_tokens=new, **options)


def trained(model, rows: list[dict], folder, callbacks=None, **options):
    """Transformers' Trainer after it has trained the model, and the losses of its steps."""
    options |= {"report_to": [], "disable_tqdm": True, "use_cpu": True, "logging_steps": 1}
    options |= {"output_dir": str(folder), "per_device_train_batch_size": 4}
    arguments = transformers.TrainingArguments(**options)
    trainer = transformers.Trainer(model, arguments, train_dataset=rows, callbacks=callbacks)
    trainer.train()
    return trainer, [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def inputs(name: str, padded: str | None = None, T: int = 11) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    if name == "vit":
        return {"pixel_values": torch.randn(2, 3, 8, 8, generator=generator, dtype=torch.float64)}
    given = {"input_ids": torch.randint(3, 30, (2, T), generator=generator)}
    if padded is not None:
        place = torch.arange(T)
        given["attention_mask"] = torch.stack(
            [place >= 0, place < T - 4 if padded == "right" else place >= 4]
        ).long()
    if name in SEQ2SEQ_MODELS:
        given["decoder_input_ids"] = torch.randint(3, 30, (2, 7), generator=generator)
    return given


def tokenizer(words, unknown: str):
    """Of words between spaces; their ids are their places."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    ids = {word: n for n, word in enumerate(words)}
    made = Tokenizer(models.WordLevel(ids, unk_token=unknown))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return made


def assert_refused(*cases) -> None:
    """Each is an error, what it says, and a call."""
    for error, said, call in cases:
        with pytest.raises(error, match=said):
            call()


def as_stack(model):
    """What `load` makes of it."""
    from regard.hf import load

    return load(model.state_dict(), model.config.to_dict())


class Wide(types.ModuleType):
    """torch, whose float32 is float64: what Transformers casts down stays exact."""

    float32 = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


def widened(model, monkeypatch) -> None:
    """Its class computes in float64 where it says float32, but for what it made when it was built."""
    monkeypatch.setattr(sys.modules[type(model).__module__], "torch", Wide("torch"))
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
