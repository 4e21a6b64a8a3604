"""A model's mechanism in its config.json: saved, opened again in another process, altered by hand."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.hf.small import SIZES, inputs, model, transformers

import regard.hf  # isort: skip
from regard import MIXERS, OptionError, StoredDataError
from regard.hf import AttentionConfig
from regard.mixers import HeadGroup

NAMES = regard.hf.register()
SEEDED = AttentionConfig(
    "performer", {"num_features": 8}, cross=AttentionConfig("softmax"), max_len=32, seed=7
)
regard.hf.register("seeded", SEEDED)
regard.hf.register("close", AttentionConfig("local", {"window_size": 2}))


def stored(folder: Path) -> dict:
    return json.loads((folder / "config.json").read_text())


def altered(folder: Path, **fields) -> None:
    config = stored(folder) | fields
    kept = {name: value for name, value in config.items() if value != "removed"}
    (folder / "config.json").write_text(json.dumps(kept))


OPEN = """
import sys, torch, transformers
import regard.hf
if sys.argv[1] == "register":
    regard.hf.register()
for folder in sys.argv[2:]:
    name, given = torch.load(folder + "/given.pt")
    made = getattr(transformers, name).from_pretrained(folder, dtype=torch.float64).eval()
    torch.save(made(**given).logits, folder + "/logits.pt")
"""


def opened_elsewhere(folders: list[Path], register: str = "register"):
    command = [sys.executable, "-c", OPEN, register, *map(str, folders)]
    return subprocess.run(command, capture_output=True, text=True)


def saved(name: str, implementation: str, folder: Path) -> torch.Tensor:
    """The logits of this model, which the folder then holds."""
    made, given = model(name), inputs(name, "right")
    made.set_attn_implementation(implementation)
    logits = made(**given).logits
    assert not torch.allclose(logits, model(name)(**given).logits, atol=1e-6)
    made.save_pretrained(folder)
    torch.save((type(made).__name__, given), folder / "given.pt")
    return logits


def test_another_process_opens_models_with_the_same_mechanisms(tmp_path):
    """Random features are of the same seed."""
    cases = [
        ("bert", "regard_linear"), ("bert", "regard_seeded"), ("gpt2", "regard_close"), ("bart", "regard_seeded"),
    ]  # fmt: skip
    folders = [tmp_path / f"{name}_{implementation}" for name, implementation in cases]
    want = [saved(*case, folder) for case, folder in zip(cases, folders, strict=True)]
    done = opened_elsewhere(folders)
    assert done.returncode == 0, done.stderr
    for folder, logits in zip(folders, want, strict=True):
        torch.testing.assert_close(torch.load(folder / "logits.pt"), logits)


def test_where_regard_is_not_registered_it_is_refused(tmp_path):
    saved("bert", "regard_linear", tmp_path)
    done = opened_elsewhere([tmp_path], register="not")
    assert (
        done.returncode and '`attn_implementation="regard_linear"` is not supported' in done.stderr
    )


def test_what_the_file_says(tmp_path):
    model("bert", "regard_seeded").save_pretrained(tmp_path)
    softmax = {"mixer": "softmax", "options": {}, "cross": None, "max_len": 4096, "seed": 0}
    seeded = {
        "mixer": "performer",
        "options": {"num_features": 8},
        "cross": softmax,
        "max_len": 32,
        "seed": 7,
    }
    found = stored(tmp_path)
    assert found["attn_implementation"] == "regard_seeded"
    assert found["regard_attention"] == {"regard_seeded": seeded}
    made = transformers.BertForMaskedLM.from_pretrained(tmp_path)
    made.set_attn_implementation("sdpa")
    made.save_pretrained(tmp_path)
    assert not {"attn_implementation", "regard_attention"} & stored(tmp_path).keys()
    again = transformers.BertForMaskedLM.from_pretrained(tmp_path)
    assert again.config._attn_implementation == "sdpa"
    again.set_attn_implementation("regard_linear")
    again.save_pretrained(tmp_path)
    assert list(stored(tmp_path)["regard_attention"]) == ["regard_linear"]
    chosen = transformers.BertForMaskedLM.from_pretrained(tmp_path, attn_implementation="eager")
    assert chosen.config._attn_implementation == "eager"
    chosen = transformers.BertForMaskedLM.from_pretrained(
        tmp_path, attn_implementation="regard_close"
    )
    assert chosen.config._attn_implementation == "regard_close"
    assert (
        transformers.AutoModel.from_pretrained(tmp_path).config._attn_implementation
        == "regard_linear"
    )


def test_a_generating_model_and_what_a_config_shows(tmp_path):
    made = model("gpt2", "regard_close")
    made.save_pretrained(tmp_path)
    text = (tmp_path / "generation_config.json").read_text()
    assert "regard" not in text and "attn_implementation" not in text
    assert "regard_close" in repr(made.config)
    copied = type(made.config)(**made.config.to_dict())
    assert copied._attn_implementation == "regard_close"


@pytest.mark.parametrize("mixer", [name.removeprefix("regard_") for name in NAMES])
def test_every_mechanism_comes_back_from_its_record(mixer, tmp_path):
    name = f"regard_{mixer}"
    made, given = model("bert", name), inputs("bert", "right")
    want = made(**given).logits
    made.save_pretrained(tmp_path)
    transformers.AttentionInterface._global_mapping.pop(name)
    again = transformers.BertForMaskedLM.from_pretrained(tmp_path, dtype=torch.float64).eval()
    assert again.config._attn_implementation == name
    torch.testing.assert_close(again(**given).logits, want)


def clip():
    return transformers.CLIPModel(transformers.CLIPConfig(
        text_config={**SIZES, "vocab_size": 30, "eos_token_id": 2, "bos_token_id": 1, "pad_token_id": 0},
        vision_config={**SIZES, "image_size": 8, "patch_size": 4}, projection_dim=8,
    ))  # fmt: skip


def encoder_decoder():
    return transformers.EncoderDecoderModel(transformers.EncoderDecoderConfig.from_encoder_decoder_configs(
        transformers.BertConfig(**SIZES, vocab_size=30), transformers.BertConfig(**SIZES, vocab_size=30),
    ))  # fmt: skip


def llava():
    return transformers.LlavaForConditionalGeneration(transformers.LlavaConfig(
        text_config=transformers.LlamaConfig(**SIZES, vocab_size=30, num_key_value_heads=4),
        vision_config=transformers.CLIPVisionConfig(**SIZES, image_size=8, patch_size=4), image_token_index=3,
    ))  # fmt: skip


def implementations(config) -> dict:
    parts = {key: getattr(config, key) for key in config.sub_configs}
    return {"": config._attn_implementation} | {
        key: part._attn_implementation for key, part in parts.items() if part is not None
    }


@pytest.mark.parametrize("make, parts", [
    (clip, ("text_config", "vision_config")), (encoder_decoder, ("encoder", "decoder")),
    (llava, ("text_config", "vision_config")),
])  # fmt: skip
@pytest.mark.parametrize("which", ["all", "first", "second", "each"])
def test_models_of_several_configs(make, parts, which, tmp_path):
    asked = {
        "all": "regard_linear",
        "first": {parts[0]: "regard_linear"},
        "second": {parts[1]: "regard_close", "": "eager"},
        "each": {"": "regard_softmax", parts[0]: "regard_linear", parts[1]: "regard_seeded"},
    }[which]
    made = make()
    made.set_attn_implementation(asked)
    want = implementations(made.config)
    assert any(name.startswith("regard_") for name in want.values())
    made.save_pretrained(tmp_path)
    for name in set(want.values()):
        if name.startswith("regard_"):
            transformers.AttentionInterface._global_mapping.pop(name)
    again = type(made).from_pretrained(tmp_path)
    got = implementations(again.config)
    assert {k: v for k, v in got.items() if v.startswith("regard_")} == {
        k: v for k, v in want.items() if v.startswith("regard_")
    }
    assert set(got.values()) - {"sdpa", "eager"} == set(want.values()) - {"sdpa", "eager"}
    regard.hf.register("seeded", SEEDED)
    regard.hf.register("close", AttentionConfig("local", {"window_size": 2}))
    regard.hf.register()


def test_a_part_opened_alone(tmp_path):
    made = clip()
    made.set_attn_implementation({"text_config": "regard_close"})
    made.save_pretrained(tmp_path)
    text = transformers.CLIPTextModel.from_pretrained(tmp_path)
    assert text.config._attn_implementation == "regard_close"
    assert (
        transformers.CLIPVisionModel.from_pretrained(tmp_path).config._attn_implementation == "sdpa"
    )


GOOD = {"mixer": "local", "options": {"window_size": 2}, "cross": None, "max_len": 4096, "seed": 0}


@pytest.mark.parametrize("fields, error, sentence", [
    ({"regard_attention": 5}, StoredDataError, "regard_attention must hold records by name, got 5"),
    ({"regard_attention": {"regard_fresh": [1]}}, StoredDataError, r"of regard_fresh must be a record, got \[1\]"),
    ({"regard_attention": {"regard_fresh": {}}}, StoredDataError, "regard_fresh cannot be made: AttentionConfig needs mixer"),
    ({"regard_attention": {"regard_fresh": GOOD | {"sede": 3}}}, StoredDataError, "cannot be made: .*'sede'. Did you mean 'seed'"),
    ({"regard_attention": {"regard_fresh": GOOD | {"mixer": "locla"}}}, StoredDataError,
     "regard_fresh cannot be made: unknown mixer 'locla'. Did you mean 'local'"),
    ({"regard_attention": {"regard_fresh": GOOD | {"mixer": "os:system"}}}, StoredDataError, "unknown mixer 'os:system'"),
    ({"regard_attention": {"regard_fresh": GOOD | {"mixer": 5}}}, StoredDataError, r"regard_fresh cannot be made: .*mixer \(5\) must be"),
    ({"regard_attention": {"regard_fresh": GOOD | {"seed": "a"}}}, StoredDataError, r"regard_fresh cannot be made: .*seed \('a'\) must be"),
    ({"regard_attention": {"regard_fresh": GOOD | {"seed": -(2**80)}}}, StoredDataError, "cannot be made"),
    ({"regard_attention": {"regard_fresh": GOOD | {"max_len": True}}}, StoredDataError, r"cannot be made: .*max_len \(True\) must be"),
    ({"regard_attention": {"regard_fresh": GOOD | {"options": 3}}}, StoredDataError, r"regard_fresh cannot be made: .*options \(3\) must be"),
    ({"regard_attention": {"regard_fresh": GOOD | {"options": {"window": 3}}}}, StoredDataError,
     "cannot be made: .*Did you mean 'window_size'"),
    ({"regard_attention": {"regard_fresh": GOOD | {"options": {"window_size": -3}}}}, StoredDataError, "window_size"),
    ({"regard_attention": {"regard_fresh": GOOD | {"options": {"window_size": "3"}}}}, StoredDataError, "window_size"),
    ({"regard_attention": {"regard_fresh": GOOD | {"options": {"dim": 3}}}}, StoredDataError, "dim"),
    ({"regard_attention": {"regard_fresh": GOOD | {"cross": "softmax"}}}, StoredDataError, "of regard_fresh must be a record, got 'softmax'"),
    ({"regard_attention": {"regard_fresh": GOOD | {"cross": {"mixer": "x"}}}}, StoredDataError, "unknown mixer 'x'"),
    ({"regard_attention": {"regard_fresh": GOOD | {"mixer": "linformer", "options": {}}}}, StoredDataError,
     "cannot be made: linformer does not support attn_implementation: it learns"),
    ({"regard_attention": {"regard_fresh": GOOD | {"python": True}}}, OptionError, "with classes or objects of Python. First"),
    ({"attn_implementation": "removed"}, StoredDataError, "has a record of regard_fresh, and attn_implementation is missing"),
    ({"attn_implementation": None}, StoredDataError, "has a record of regard_fresh, and attn_implementation is missing"),
    ({"attn_implementation": 5}, StoredDataError, "attn_implementation cannot be 5"),
    ({"attn_implementation": ["regard_fresh"]}, StoredDataError, r"attn_implementation cannot be \['regard_fresh'\]"),
    ({"attn_implementation": "eager", "regard_attention": {"eager": GOOD}}, StoredDataError, "names begin with regard_"),
    ({"attn_implementation": "sdpa", "regard_attention": {"sdpa": GOOD}}, StoredDataError, "names begin with regard_"),
    ({"attn_implementation": "regard_close", "regard_attention": {"regard_close": GOOD | {"options": {"window_size": 3}}}},
     OptionError, "and registered here as .* Register yours under another name before"),
])  # fmt: skip
def test_a_file_altered_by_hand(fields, error, sentence, tmp_path):
    model("bert", "regard_close").save_pretrained(tmp_path)
    altered(tmp_path, attn_implementation="regard_fresh", regard_attention={"regard_fresh": GOOD})
    altered(tmp_path, **fields)
    with pytest.raises(error, match=sentence) as found:
        transformers.BertForMaskedLM.from_pretrained(tmp_path)
    assert str(found.value).startswith("config.json")
    assert regard.hf.registry.registered("regard_fresh") is None


def test_classes_and_functions_are_named_and_registered_again(tmp_path):
    class Own(MIXERS["local"]):
        name = "own"

    class Wide(torch.nn.Module):
        def forward(self, x):
            return x.exp()

    for config in (
        AttentionConfig(Own),
        AttentionConfig("linear", {"feature_map": torch.relu}),
        AttentionConfig("linear", {"feature_map": Wide()}),
        AttentionConfig("head_groups", {"groups": (HeadGroup("local", 1), HeadGroup("linear", 1))}),
    ):
        regard.hf.register("fresh_python", config)
        model("bert", "regard_fresh_python").save_pretrained(tmp_path)
        again = transformers.BertForMaskedLM.from_pretrained(tmp_path)
        assert again.config._attn_implementation == "regard_fresh_python"
        transformers.AttentionInterface._global_mapping.pop("regard_fresh_python")
        with pytest.raises(
            OptionError, match=r"First register the same: regard\.hf\.register\('fresh_py"
        ):
            transformers.BertForMaskedLM.from_pretrained(tmp_path)


def test_registering_all_leaves_what_is_registered():
    mine = AttentionConfig("efficient", {"normaliser": "scaling"})
    before = regard.hf.registry.registered("regard_efficient")
    regard.hf.register("efficient", mine)
    regard.hf.register()
    assert regard.hf.registry.registered("regard_efficient") is mine
    regard.hf.register("efficient", before)


def test_load_builds_no_softmax_in_the_place_of_a_saved_mechanism(tmp_path):
    saved("bert", "regard_linear", tmp_path)
    with pytest.raises(regard.UnsupportedError, match="attn_implementation 'regard_linear'"):
        regard.hf.load(tmp_path)
    altered(tmp_path, regard_attention="removed", attn_implementation="removed")
    assert isinstance(regard.hf.load(tmp_path), torch.nn.Module)
