"""Checkpoints in our modules against the classes of Transformers: outputs, gradients, weights, padded and not."""

import json
import math
import os
import struct
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.hf.small import CHECKPOINTS, as_stack, built, edited, greedy, model, tokens, widened
from tests.refused import assert_refused

import regard.hf  # isort: skip
from regard import OptionError, ShapeError, StoredDataError, UnsupportedError
from regard.core import RegardError
from regard.hf.stack import EncoderDecoder, Stack
from regard.testing.laws.streaming import feed

RECURRENT = ("qwen3_next", "kimi_linear", "kimi_linear_rank", "mamba2")
NEAR = {"rtol": 1e-5, "atol": 1e-6}
UNTIED = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
OUR_GLOBALS = torch.arange(11)[None] < torch.tensor([[2], [1]])


def assert_same_gradient(ours, original, found: torch.Tensor, want: torch.Tensor) -> None:
    """Of the tables of tokens."""
    tables = ours.embedding.word.weight, original.get_input_embeddings().weight
    both = zip((found, want), tables, strict=True)
    gradient, expected = (torch.autograd.grad(y.sin().sum(), [table])[0] for y, table in both)
    assert (gradient - expected).abs().max() <= 1e-5 * expected.abs().max() > 0


def assert_same_maps(found, want, shown: torch.Tensor) -> None:
    rows = shown[:, None, :, None]
    for ours, original in zip(found, want, strict=True):
        torch.testing.assert_close(ours * rows, original * rows, **NEAR)


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_outputs_maps_gradients_and_streams(name, monkeypatch):
    """With padding; without it, tests/hf/test_fields.py compares outputs. Delta rules are exact over three chunks."""
    original, exact = model(name), name in RECURRENT
    if name == "longformer":
        original.float()  # its gradients are NaN in float64 where there are global tokens
    ours = as_stack(original)
    assert isinstance(ours, Stack)
    if exact:
        widened(original, monkeypatch)
    ids, valid = tokens(150 if exact else 11)
    given, masks = {}, {}
    if name != "fnet":  # Transformers' FNet mixes padding in
        given["attention_mask"], masks["valid"] = valid.long(), valid
        if name in ("roberta", "longformer"):  # positions are those of ids that are not padding
            ids = torch.where(valid, ids, original.config.pad_token_id)
    if name == "longformer":
        given["global_attention_mask"], masks["global_tokens"] = OUR_GLOBALS.long(), OUR_GLOBALS
    want = original(ids, **given, output_hidden_states=True)
    found, keep = ours(ids, **masks), masks.get("valid", torch.ones_like(valid))
    hidden, expected = found[keep], want.hidden_states[-1][keep]
    close = partial(torch.testing.assert_close, **({"rtol": 0, "atol": 1e-8} if exact else NEAR))
    close(hidden, expected)
    if hasattr(want, "logits"):
        close(ours.head(found)[keep], want.logits[keep].to(found))
    assert_same_gradient(ours, original, hidden, expected)
    if name in ("bert", "gpt2", "llama", "t5_encoder"):
        original.set_attn_implementation("eager")
        maps = original(ids, **given, output_attentions=True).attentions
        assert_same_maps(ours.attention_maps(ids, **masks), maps, valid)
    if original.can_generate():
        half = ids.shape[1] // 2
        sizes = 1, half - 1, ids.shape[1] - half
        streamed, _ = feed(ours, ids, ours.initial_state(2), sizes, valid=valid)
        close(streamed[valid], expected)
        written = greedy(regard.hf.wrap(ours), ids[:, :9], new=6)
        assert torch.equal(written, greedy(original, ids[:, :9], new=6))
    assert all("pooler" in left or "token_type" in left for left in ours.left)


@pytest.mark.parametrize("padded", [False, True])
def test_bigbirds_blocks_given_the_same_random_ones(padded):
    sizes = {"block_size": 2, "num_random_blocks": 1, "attention_type": "block_sparse"}
    # In evaluation it draws block 0 alone.
    original = built("BigBirdModel", CHECKPOINTS["bert"][1], **sizes).train()
    ours = as_stack(original)
    own, heads = torch.arange(32)[:, None], torch.arange(4)[:, None, None]
    for n, (layer, mixer) in enumerate(zip(original.encoder.layer, ours.mixers, strict=True)):
        # One of the blocks 1 to 8, and none beside the own one.
        table = (own + 2 + heads.roll(n)) % 8 + 1
        mixer.random_blocks.copy_(table)
        drawn = [rows[1:9].numpy() for rows in table]
        layer.attention.self._bigbird_block_rand_mask_with_head = lambda drawn=drawn, **_: drawn
    ids, valid = tokens(20)
    valid |= (torch.arange(20) < 19) | (not padded)
    given, masks = ({"attention_mask": valid.long()}, {"valid": valid}) if padded else ({}, {})
    want = original(ids, **given, output_attentions=True)
    found = ours(ids, **masks)
    found, expected = found[valid], want.last_hidden_state[valid]
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    assert_same_maps(ours.attention_maps(ids, **masks), want.attentions, valid)
    assert_same_gradient(ours, original, found, expected)


@pytest.mark.parametrize("form", [{}, UNTIED])
def test_t5_with_its_decoder(form):
    original = model("t5", "eager", **form)
    ours = as_stack(original)
    assert isinstance(ours, EncoderDecoder) and not ours.left
    ids, valid = tokens()
    target = ids[:, :7].flip(1)
    shown = torch.arange(7) < torch.tensor([[7], [4]])
    given = {"attention_mask": valid.long(), "decoder_attention_mask": shown.long()}
    want = original(ids, decoder_input_ids=target, output_attentions=True, **given)
    masks = {"source_valid": valid, "target_valid": shown}
    found = ours.logits(ours(ids, target, **masks))
    torch.testing.assert_close(found[shown], want.logits[shown], rtol=1e-5, atol=1e-5)
    assert_same_gradient(ours, original, found[shown], want.logits[shown])
    read = regard.explore.layers(ours, ids, target, **masks)[2:]
    maps = [found.values for *_, found in read]
    assert_same_maps(maps[::2], want.decoder_attentions, shown)
    assert_same_maps(maps[1::2], want.cross_attentions, shown)
    with pytest.raises(ShapeError, match="hidden must have width 24"):
        ours.logits(found)


def test_both_layouts_of_rotary_rows():
    """Llama's first release stores rows of queries and keys so that adjacent channels turn together."""
    original, (ids, _) = model("llama"), tokens()
    state, config = original.state_dict(), original.config.to_dict()
    for name, weight in state.items():
        if "q_proj" in name or "k_proj" in name:
            weight.mul_(20)  # in place: scores large enough to tell the layouts apart
            state[name] = adjacent(weight)
    want = original(ids).logits
    ours = regard.hf.load(state, config, pairing="adjacent")
    torch.testing.assert_close(ours.head(ours(ids)), want, **NEAR)
    wrong = regard.hf.load(state, config)
    assert not torch.allclose(wrong.head(wrong(ids)), want, atol=1e-3)


def adjacent(rows: torch.Tensor) -> torch.Tensor:
    return rows.view(-1, 2, 4, 24).swapaxes(1, 2).reshape(rows.shape)


def test_a_gguf_file(tmp_path):
    gguf = pytest.importorskip("gguf", reason="needs a reader of GGUF files: pip install gguf")
    original, (ids, _), path = model("llama").float(), tokens(), tmp_path / "small.gguf"
    file = gguf.GGUFWriter(path, "llama")
    numbers = dict(embedding_length=24, feed_forward_length=32, context_length=64, key_length=8)
    numbers |= dict(value_length=8, block_count=2, head_count=4, head_count_kv=2, vocab_size=30)
    numbers |= dict(rope_freq_base=500.0, rope_dimension_count=8)
    numbers["layer_norm_rms_eps"] = original.config.rms_norm_eps
    for name, value in numbers.items():
        getattr(file, f"add_{name}")(value)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, 2)
    for name, weight in original.state_dict().items():
        rows = adjacent(weight) if "q_proj" in name or "k_proj" in name else weight
        file.add_tensor(f"{names.get_name(name.removesuffix('.weight'))}.weight", rows.numpy())
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()
    ours = regard.hf.load(path)
    torch.testing.assert_close(ours.head(ours(ids)), original(ids).logits, **NEAR)
    assert not ours.left
    whole = path.read_bytes()
    heads, odd = (b"head_count" + struct.pack("<II", 4, n) for n in (4, 5))
    for damaged in (b"", b"GGUF", b"no weights", whole[:-400], whole.replace(heads, odd)):
        path.write_bytes(damaged)
        with pytest.raises(StoredDataError, match="is no GGUF file, or damaged"):
            regard.hf.load(path)
    path.write_bytes(whole.replace(b"output_norm.weight", b"output_nrom.weight"))
    with pytest.raises(StoredDataError, match=r"small\.gguf lacks model\.norm\.weight"):
        regard.hf.load(path)


@pytest.mark.parametrize("linked", [False, True], ids=["files", "links to the hub's blobs"])
def test_a_folder(linked, tmp_path):
    original, (ids, _), folder = model("gpt2"), tokens(), tmp_path / "snapshots" / "0a1b"
    original.save_pretrained(folder, max_shard_size="5KB")
    shards = list(folder.glob("*.safetensors"))
    assert len(shards) > 1
    for path in shards if linked else ():
        path.symlink_to(path.rename(tmp_path / path.name))
    ours = regard.hf.load(folder)
    torch.testing.assert_close(ours.head(ours(ids)), original(ids).logits, **NEAR)
    assert ours.head.weight is ours.embedding.word.weight
    shards[0].unlink()
    with pytest.raises(StoredDataError, match="parts of weights, and not as many as their names"):
        regard.hf.load(folder)


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_files_of_every_kind_are_read_as_the_state_dict_is(name, tmp_path):
    """Transformers gives some tensors other names in files."""
    original, (ids, _) = model(name), tokens()
    original.save_pretrained(tmp_path)
    found, expected = regard.hf.load(tmp_path), as_stack(original)
    assert found.left == expected.left
    torch.testing.assert_close(found(ids), expected(ids), rtol=0, atol=0)


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def sparse(folder: Path) -> None:
    """Weights that take no room on the disk, and more than there is in memory."""
    told = {"dtype": "F32", "shape": [2**50], "data_offsets": [0, 2**52]}
    header = json.dumps({"bert.embeddings.word_embeddings.weight": told}).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        with suppress(OSError):  # a disk with smaller files
            file.truncate(8 + len(header) + 2**43)


def cut(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    name = "bert.encoder.layer.1.intermediate.dense.weight"
    save_file(tensors | {name: tensors[name][:, :-1].contiguous()}, folder / "model.safetensors")


HUGE = 10**9
ODD = {
    # what is done, or fields of the config, and what is said
    "sparse": (sparse, "reading it needs|is damaged"),
    "cut": (cut, "tensors of this bert make no model: RuntimeError, mat1 and mat2"),
    "pipe": (lambda folder: pipe(folder / "model.safetensors"), "no model.safetensors, or it is no plain file"),
    "pipe of settings": (lambda folder: pipe(folder / "config.json"), "has no config.json, or it is no plain file"),
    "deep": (lambda folder: (folder / "config.json").write_text("[" * 100_000), "is no JSON"),
    "bytes": (lambda folder: (folder / "config.json").write_bytes(b"\xff"), "is no JSON"),
    "depth": ({"num_hidden_layers": HUGE}, "has num_hidden_layers=1000000000, and the"),
    "long": ({"hidden_act": "\x1b[2J" * 1000}, "does not support bert with hidden_act="),
    "list of kinds": ({"model_type": ["bert"]}, "does not support model_type"),
    "null": ({"num_attention_heads": None}, "needs num_heads"),
    "list": ({"num_hidden_layers": [1]}, "must be an integer"),
    "word": ({"layer_norm_eps": "small"}, "must be at least 0 and below 1"),
    "no number": ({"layer_norm_eps": math.nan}, "must be at least 0 and below 1"),
}  # fmt: skip
LONG = {"mixer": "local", "max_len": 10_000, "layers": [0], "options": {}}
ODD_SETTINGS = {
    "tensors": ({"tensors": {"a": ["float32", [HUGE]]}}, "tensors, and its weights"),
    "no shape": ({"tensors": {"a": ["nn", [[1]]]}}, "make no model"),
    "max_len": ({"conversions": [LONG]}, "max_len 10000, and its weights"),
    "conversions": ({"conversions": [None]}, "make no model"),
}
"""Of a folder that `save` has written."""


@pytest.mark.parametrize("case", ODD | ODD_SETTINGS)
def test_a_folder_that_was_altered_is_refused_in_one_line(case, tmp_path):
    alter, said = (ODD | ODD_SETTINGS)[case]
    if case in ODD_SETTINGS:
        regard.hf.save(as_stack(model("bert")), tmp_path / "bert")
        edited(tmp_path / "bert", "settings", **alter)
    else:
        model("bert").save_pretrained(tmp_path / "bert")
        alter(tmp_path / "bert") if callable(alter) else edited(tmp_path / "bert", **alter)
    with pytest.raises(RegardError, match=said) as found:
        regard.hf.load(tmp_path / "bert")
    assert str(found.value).isprintable() and len(str(found.value)) < 500


def test_what_is_not_read_is_refused(tmp_path):
    original, norm, load = model("bert"), "bert.embeddings.LayerNorm.bias", regard.hf.load
    state, config = original.state_dict(), original.config.to_dict()
    ours, (ids, valid) = load(state, config), tokens()
    regard.hf.save(ours, tmp_path)
    lacking = {name: z for name, z in state.items() if name != norm}
    assert_refused(
        (UnsupportedError, "model_type 'bort': it reads bert, roberta", lambda: load(state, {**config, "model_type": "bort"})),
        (UnsupportedError, "bert with is_decoder=True: it reads False", lambda: load(state, {**config, "is_decoder": True})),
        (OptionError, "leave pairing out", lambda: load(tmp_path, pairing="adjacent")),
        (OptionError, "leave pairing out", lambda: load("a.gguf", pairing="adjacent")),
        (OptionError, "bert has no rotary positions", lambda: load(state, config, pairing="adjacent")),
        (OptionError, r"a BertForMaskedLM.* or a mapping of names to Tensors", lambda: load(original)),
        (ShapeError, "this checkpoint: token id 99 is outside the vocabulary", lambda: ours(torch.full((1, 3), 99))),
        (ShapeError, "does not support 65 tokens: its table has 64 positions", lambda: ours(torch.ones(1, 65, dtype=torch.long))),
        (OptionError, "a state dict needs its config", lambda: load(state)),
        (StoredDataError, rf"tensor '{norm}' is of torch\.int8", lambda: load(state | {norm: state[norm].to(torch.int8)}, config)),
        (StoredDataError, rf"no tensor '{norm}'", lambda: load(lacking, config)),
    )  # fmt: skip
    hidden = ours(torch.where(valid, ids, -100), valid=valid)
    torch.testing.assert_close(hidden[valid], ours(ids, valid=valid)[valid])
    mixed = {name: z.half() if name != norm else z for name, z in state.items()}
    assert {z.dtype for z in load(mixed, config).parameters()} == {torch.float16}
