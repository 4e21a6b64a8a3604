"""A model's mechanism in its config.json: saved, opened again in another process, altered by hand."""

import copy
import json
from pathlib import Path

import pytest
import torch

from tests.command import python
from tests.hf.small import SIZES, TOKENS, edited, inputs, model, transformers

import regard.hf  # isort: skip
from regard import MIXERS, OptionError, StoredDataError, UnsupportedError
from regard.hf import AttentionConfig
from regard.mixers import HeadGroup

SEED = {"options": {"num_features": 8}, "max_len": 32, "seed": 7}
SEEDED = AttentionConfig("performer", cross=AttentionConfig("softmax"), **SEED)
GOOD = {"mixer": "local", "options": {"window_size": 2}, "cross": None, "max_len": 4096, "seed": 0}


def register() -> tuple[str, ...]:
    regard.hf.register("seeded", SEEDED)
    regard.hf.register("close", AttentionConfig("local", {"window_size": 2}))
    return regard.hf.register()


NAMES = register()


def stored(folder: Path) -> dict:
    return json.loads((folder / "config.json").read_text())


OPEN = """
import torch, transformers
try:
    transformers.BertForMaskedLM.from_pretrained("BertForMaskedLM")
except ValueError as error:
    assert '`attn_implementation="regard_seeded"` is not supported' in str(error), error
else:
    raise AssertionError("it is opened with another attention")
import regard.hf
regard.hf.register()
for name, want in torch.load("want.pt").items():
    made = getattr(transformers, name).from_pretrained(name, dtype=torch.float64).eval()
    torch.testing.assert_close(made(torch.arange(3, 14)[None]).logits, want)
"""


def test_another_process_opens_models_with_the_same_mechanisms(tmp_path):
    """Random features are of the same seed; a converted model is opened by its Auto class. Before `register` a name is refused."""
    models = {
        "BertForMaskedLM": model("bert", "regard_seeded"),
        "BartForConditionalGeneration": model("bart", "regard_seeded"),
        "AutoModelForCausalLM": regard.hf.convert(model("llama"), "linear"),
    }
    want = {name: made(torch.arange(3, 14)[None]).logits for name, made in models.items()}
    for name, made in models.items():
        made.save_pretrained(tmp_path / name)
    torch.save(want, tmp_path / "want.pt")
    done = python("-c", OPEN, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_what_the_file_says(tmp_path):
    model("bert", "regard_seeded").save_pretrained(tmp_path)
    alone = {"cross": None, "windowed": None}
    softmax = {"mixer": "softmax", "options": {}, **alone, "max_len": 4096, "seed": 0}
    seeded = {"mixer": "performer", **SEED, "cross": softmax, "windowed": None}
    found = stored(tmp_path)
    assert found["attn_implementation"] == "regard_seeded"
    assert found["regard_attention"] == {"regard_seeded": seeded}
    opened = transformers.BertForMaskedLM.from_pretrained
    made = opened(tmp_path)
    copied = type(made.config)(**made.config.to_dict())
    assert copied._attn_implementation == "regard_seeded" and "regard_seeded" in repr(copied)
    made.set_attn_implementation("sdpa")
    made.save_pretrained(tmp_path)
    assert not {"attn_implementation", "regard_attention"} & stored(tmp_path).keys()
    regard.hf.load(tmp_path)
    made.set_attn_implementation("regard_linear")
    made.save_pretrained(tmp_path)
    assert list(stored(tmp_path)["regard_attention"]) == ["regard_linear"]
    with pytest.raises(UnsupportedError, match="attn_implementation 'regard_linear'"):
        regard.hf.load(tmp_path)
    for name in ("eager", "regard_close"):
        chosen = opened(tmp_path, attn_implementation=name)
        assert chosen.config._attn_implementation == name
    other = transformers.AutoModel.from_pretrained(tmp_path)
    assert other.config._attn_implementation == "regard_linear"


@pytest.mark.parametrize("name", NAMES)
def test_every_mechanism_comes_back_from_its_record(name, tmp_path):
    made, given = model("bert", name), inputs("bert", "right")
    want = made(**given).logits
    made.save_pretrained(tmp_path)
    transformers.AttentionInterface._global_mapping.pop(name)
    again = transformers.BertForMaskedLM.from_pretrained(tmp_path, dtype=torch.float64).eval()
    assert again.config._attn_implementation == name
    torch.testing.assert_close(again(**given).logits, want)


def implementations(config) -> dict:
    """The mechanisms of Regard that the config and its parts name."""
    parts = {"": config} | {key: getattr(config, key) for key in config.sub_configs}
    names = {key: part._attn_implementation for key, part in parts.items() if part is not None}
    return {key: name for key, name in names.items() if name not in ("sdpa", "eager")}


TEXT = transformers.BertConfig(**SIZES, vocab_size=30).to_dict()
IMAGES = {**SIZES, "image_size": 8, "patch_size": 4}
SEVERAL = {"CLIP": {"text_config": {**SIZES, **TOKENS}, "vision_config": IMAGES}}
SEVERAL["EncoderDecoder"] = {"encoder": TEXT, "decoder": TEXT}


@pytest.mark.parametrize("kind", SEVERAL)
@pytest.mark.parametrize("which", ["all", "first", "second", "each"])
def test_models_of_several_configs(kind, which, tmp_path):
    parts = [*SEVERAL[kind]]
    asked = {
        "all": "regard_linear",
        "first": {parts[0]: "regard_linear"},
        "second": {parts[1]: "regard_close", "": "eager"},
        "each": {"": "regard_softmax", parts[0]: "regard_linear", parts[1]: "regard_seeded"},
    }[which]
    config = getattr(transformers, f"{kind}Config")(**copy.deepcopy(SEVERAL[kind]))
    made = getattr(transformers, f"{kind}Model")(config)
    made.set_attn_implementation(asked)
    want = implementations(made.config)
    assert want
    made.save_pretrained(tmp_path)
    for name in set(want.values()):
        transformers.AttentionInterface._global_mapping.pop(name)
    again = type(made).from_pretrained(tmp_path)
    assert implementations(again.config) == want
    register()


def fresh(**changes) -> dict:
    return {"regard_attention": {"regard_fresh": GOOD | changes}}


@pytest.mark.parametrize("fields, error, sentence", [
    ({"regard_attention": 5}, StoredDataError, "regard_attention must hold records by name, got 5"),
    ({"regard_attention": {"regard_fresh": [1]}}, StoredDataError, r"of regard_fresh must be a record, got \[1\]"),
    (fresh(sede=3), StoredDataError, "cannot be made: .*'sede'. Did you mean 'seed'"),
    (fresh(mixer="os:system"), StoredDataError, "unknown mixer 'os:system'"),
    (fresh(seed=-(2**80)), StoredDataError, "cannot be made"),
    (fresh(options={"window_size": "3"}), StoredDataError, "window_size"),
    (fresh(cross={"mixer": "x"}), StoredDataError, "unknown mixer 'x'"),
    (fresh(mixer="linformer", options={}), StoredDataError, "linformer does not support attn_implementation: it learns"),
    (fresh(python=True), OptionError, "with classes or objects of Python. First"),
    ({"attn_implementation": None}, StoredDataError, "has a record of regard_fresh, and attn_implementation is missing"),
    ({"attn_implementation": ["regard_fresh"]}, StoredDataError, r"attn_implementation cannot be \['regard_fresh'\]"),
    ({"attn_implementation": "eager", "regard_attention": {"eager": GOOD}}, StoredDataError, "names begin with regard_"),
    ({"attn_implementation": "regard_close", "regard_attention": {"regard_close": GOOD | {"seed": 3}}},
     OptionError, "and registered here as .* Register yours under another name before"),
])  # fmt: skip
def test_a_file_altered_by_hand(fields, error, sentence, tmp_path):
    model("bert", "regard_close").save_pretrained(tmp_path)
    edited(tmp_path, **({"attn_implementation": "regard_fresh"} | fresh() | fields))
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

    groups = HeadGroup("local", 1), HeadGroup("linear", 1)
    maps = [("linear", {"feature_map": one}) for one in (torch.relu, Wide())]
    for given in ((Own,), *maps, ("head_groups", {"groups": groups})):
        regard.hf.register("fresh_python", AttentionConfig(*given))
        model("bert", "regard_fresh_python").save_pretrained(tmp_path)
        again = transformers.BertForMaskedLM.from_pretrained(tmp_path)
        assert again.config._attn_implementation == "regard_fresh_python"
        transformers.AttentionInterface._global_mapping.pop("regard_fresh_python")
        with pytest.raises(OptionError, match=r"First register the same: .*\('fresh_python'"):
            transformers.BertForMaskedLM.from_pretrained(tmp_path)


def test_registering_all_leaves_what_is_registered():
    mine, before = AttentionConfig("efficient"), regard.hf.registry.registered("regard_efficient")
    regard.hf.register("efficient", mine)
    regard.hf.register()
    assert regard.hf.registry.registered("regard_efficient") is mine
    regard.hf.register("efficient", before)
