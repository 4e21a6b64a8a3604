"""Transformers' models from tiny random configurations; nothing is downloaded."""

import json
import sys
import types

import pytest
import torch

transformers = pytest.importorskip("transformers", reason="transformers: pip install 'regard[hf]'")

TOKENS = {"vocab_size": 30, "max_position_embeddings": 64}
TOKENS |= {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
SIZES = dict(hidden_size=24, num_hidden_layers=2, num_attention_heads=4, intermediate_size=32)
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
SEQ2SEQ = TOKENS | dict(d_model=24, encoder_layers=2, decoder_layers=2, dropout=0.0)
SEQ2SEQ |= dict(encoder_attention_heads=4, decoder_attention_heads=4, decoder_start_token_id=2)
SEQ2SEQ |= dict(encoder_ffn_dim=32, decoder_ffn_dim=32)
BERT = {**SIZES, **TOKENS, **NO_DROPOUT}
GPT2 = TOKENS | dict(n_embd=24, n_layer=2, n_head=4, n_positions=64)
GPT2 |= dict(attn_pdrop=0.0, resid_pdrop=0.0, embd_pdrop=0.0)
T5 = dict(vocab_size=30, d_model=24, d_kv=5, d_ff=32, num_layers=2, num_heads=4, dropout_rate=0.0)
T5 |= dict(pad_token_id=0, eos_token_id=2, decoder_start_token_id=0)
GROUPED = {**SIZES, **TOKENS, "num_key_value_heads": 2}
ROPE = {"rope_type": "default", "rope_theta": 500.0}
LLAMA = {**GROUPED, "head_dim": 8, "rope_parameters": ROPE}
QWEN3_NEXT = LLAMA | dict(num_hidden_layers=4, num_experts=0)
QWEN3_NEXT |= dict(linear_key_head_dim=6, linear_value_head_dim=5, linear_num_key_heads=2)
QWEN3_NEXT |= dict(linear_num_value_heads=4, rope_parameters={**ROPE, "partial_rotary_factor": 0.5})
KIMI_LINEAR = SIZES | TOKENS | dict(num_hidden_layers=5, mlp_layer_types=["dense"] * 5)
KIMI_LINEAR |= dict(num_key_value_heads=4, kv_lora_rank=7, qk_rope_head_dim=4, qk_nope_head_dim=6)
KIMI_LINEAR |= dict(v_head_dim=5, linear_head_dim=6, linear_num_heads=3)
MAMBA2 = dict(vocab_size=30, hidden_size=24, num_hidden_layers=2, num_heads=4, pad_token_id=0)
MAMBA2 |= dict(head_dim=12, state_size=5, n_groups=1)
GEMMA = GROUPED | dict(num_hidden_layers=3, head_dim=8, query_pre_attn_scalar=8, sliding_window=4)
GEMMA["layer_types"] = ["sliding_attention", "full_attention", "sliding_attention"]
ATTENDING = {
    "bert": ("BertForMaskedLM", BERT),
    "roberta": ("RobertaForMaskedLM", BERT),
    "gpt2": ("GPT2LMHeadModel", GPT2),
    "llama": ("LlamaForCausalLM", LLAMA),
    "mistral": ("MistralForCausalLM", {**GROUPED, "sliding_window": 5}),
    "bart": ("BartForConditionalGeneration", SEQ2SEQ),
    "t5": ("T5ForConditionalGeneration", T5),
    "vit": ("ViTForImageClassification", {**SIZES, **NO_DROPOUT, "image_size": 8, "patch_size": 2, "num_labels": 3}),
}  # fmt: skip
"""Their attention may be one of Regard."""
CHECKPOINTS = {
    **{name: ATTENDING[name] for name in ("bert", "roberta", "gpt2", "llama")},
    "longformer": ("LongformerModel", {**BERT, "attention_window": [4, 6]}),
    "big_bird": ("BigBirdForMaskedLM", {**BERT, "attention_type": "original_full"}),
    "fnet": ("FNetModel", {k: v for k, v in BERT.items() if "attention" not in k}),
    "llama_tied": ("LlamaForCausalLM", {**LLAMA, "tie_word_embeddings": True}),
    "qwen2": ("Qwen2ForCausalLM", GROUPED),
    "qwen3": ("Qwen3ForCausalLM", {**LLAMA, "head_dim": 6, "tie_word_embeddings": False}),
    "gemma3_text": ("Gemma3ForCausalLM", GEMMA),
    "t5_encoder": ("T5EncoderModel", T5),
    "qwen3_next": ("Qwen3NextForCausalLM", QWEN3_NEXT),
    "kimi_linear": ("KimiLinearForCausalLM", KIMI_LINEAR),
    "kimi_linear_rank": ("KimiLinearForCausalLM", {**KIMI_LINEAR, "q_lora_rank": 5}),
    "mamba2": ("Mamba2ForCausalLM", MAMBA2),
}  # fmt: skip
"""`load` reads them in our modules."""
SEQ2SEQ_MODELS = ("bart", "t5")
OURS = {"vocab_size": 30, "dim": 24, "num_heads": 4, "num_layers": 2, "max_len": 64}
"""Sizes of a model of Regard."""


def built(cls: str, config: dict, **changes):
    """This class of Transformers in float64, with weights of seed 0."""
    made = getattr(transformers, cls)
    torch.manual_seed(0)
    return made(made.config_class(**{**config, **changes})).double().eval()


def model(name: str, attn_implementation: str | None = None, **changes):
    """Its biases and norms do not start at 0 and 1, where a wrong one would not be seen."""
    cls, config = (ATTENDING | CHECKPOINTS)[name]
    made = built(cls, config, **changes)
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.dim() < 2:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    if attn_implementation:
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


def tokens(T: int = 11) -> tuple[torch.Tensor, torch.Tensor]:
    """Of two rows, the second padded on the right, and which are valid."""
    ids = torch.randint(3, 30, (2, T), generator=torch.Generator().manual_seed(1))
    return ids, torch.arange(T) < torch.tensor([[T], [T * 2 // 3]])


def inputs(name: str, padded: str | None = None) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    if name == "vit":
        return {"pixel_values": torch.randn(2, 3, 8, 8, generator=generator, dtype=torch.float64)}
    ids, right = tokens()
    given = {"input_ids": ids}
    if padded is not None:
        given["attention_mask"] = (right if padded == "right" else right.flip(1)).long()
    if name in SEQ2SEQ_MODELS:
        given["decoder_input_ids"] = ids[:, :7].flip(1)
    return given


def tokenizer(words, unknown: str):
    """Of words between spaces; their ids are their places."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    ids = {word: n for n, word in enumerate(words)}
    made = Tokenizer(models.WordLevel(ids, unk_token=unknown))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return made


def as_stack(model):
    """What `load` makes of it."""
    from regard.hf import load

    return load(model.state_dict(), model.config.to_dict())


def edited(folder, part: str | None = None, **changes) -> None:
    """Its config.json, or a part of it, has these fields."""
    config = json.loads((folder / "config.json").read_text())
    (config[part] if part else config).update(changes)
    (folder / "config.json").write_text(json.dumps(config))


class Wide(types.ModuleType):
    """torch, whose float32 is float64: what Transformers casts down stays exact."""

    float32 = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


def widened(model, monkeypatch) -> None:
    """Its class computes in float64 where it says float32, but for what it made when it was built."""
    monkeypatch.setattr(sys.modules[type(model).__module__], "torch", Wide("torch"))
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
