"""The page in a browser: every view by keyboard and mouse, on checkpoints of many mechanisms; nothing that it shows runs."""

import base64
import html
import json
import os
import re
import shutil
import zlib
from contextlib import nullcontext
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from playwright.sync_api import expect
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

import regard
import regard.models as m
from regard import OptionError
from regard.cli import main
from regard.cli.checkpoints import Likeness, Loaded, _cell, load, words_of
from regard.cli.explore import Explore
from regard.explore.attribution import gradient_times_attention, rollout
from regard.explore.inputs import Group, Inputs, Sheet
from regard.explore.packed import pack
from regard.explore.readout import layers
from regard.explore.render import Page, page, render
from regard.nn.fields import Categorical, Numeric, Sequence
from tests.command import refused
from tests.explore import checkpoints
from tests.models.small import classifier, language_model, shaken, transformer
from tests.payloads import PAYLOADS

MECHANISMS = ["softmax", "linformer", "fnet"]  # shares, signed weights, influence alone
TEXT = "1 <cat> A"
WORDS = ["The", "cat", "<b>", "sat", "on", "the", "mat", "."]
IDS = torch.tensor([[3, 5, 7, 9, 11, 4, 13, 2]])
WIDER = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A function from a kind of model to the checkpoint of one that was trained, once for all tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REGARD_DATA", str(tmp_path_factory.mktemp("cache")))
        yield partial(checkpoints.trained, tmp_path_factory.mktemp("runs"))


@pytest.fixture
def explored(trained, opened, tmp_path, capsys):
    """A function from a kind of model, and options of `regard explore`, to its checkpoint and the page in the browser."""

    def explore(kind, *options):
        folder, path = trained(kind), tmp_path / "explored.html"
        assert main(["explore", str(folder), *options, "--page", str(path)]) == 0
        assert str(path) in capsys.readouterr().out
        return folder, opened(path.read_text(encoding="utf-8"))

    return explore


def embedded(text):
    """The data of a page."""
    return json.loads(re.search(r'id="explored">(.*?)</script>', text).group(1))


def attributed(shown):
    return embedded(shown.html)["examples"][0]["sides"][0]["attribution"]


def assert_shown(tab, selector, said):
    """In the first element of this selector."""
    expect(tab.locator(selector).first).to_contain_text(said)


def assert_from(tab, said):
    """The query whose strongest weights are listed."""
    expect(tab.locator(".strongest th").first).to_have_text(f"from {said} to")


def assert_strongest(tab, weights, query):
    """The weights that are listed are those of this query, as near as a byte and three digits hold them."""
    numbers = tab.locator(".strongest td.number").all_text_contents()
    keys = [int(place) - 1 for place in numbers[::2]]
    found, row = torch.tensor([*map(float, numbers[1::2])]), weights[query].float()
    wanted = row[row.abs().argsort(descending=True)[: len(keys)]]
    near = {"atol": weights.abs().max().item() / (127 if weights.min() < 0 else 255), "rtol": 0.005}
    torch.testing.assert_close(found, row[keys], **near)
    torch.testing.assert_close(found.abs(), wanted.abs(), **near)


def click(tab, selector, across, down):
    """At this share of the element's width and height."""
    box = tab.locator(selector).first.bounding_box()
    tab.click(selector, position={"x": across * box["width"], "y": down * box["height"]})


def press(tab, *keys):
    for key in keys:
        tab.keyboard.press(key)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_every_view_by_mouse_and_keys(explored, mechanism):
    run, tab = explored(mechanism, "--text", TEXT)
    buttons = tab.locator(".grid-of-heads button").count()
    depth = tab.locator("#layer option").count()
    heads = buttons // depth
    model = load(run).model
    assert depth == len(model.encoder.mixers)
    expect(tab.locator("#statistics tbody tr")).to_have_count(buttons)

    tab.click(f".grid-of-heads button[data-layer='0'][data-head='{heads - 1}']")
    assert_shown(tab, "#heads figcaption", f"layer 1, head {heads}: {mechanism}")
    press(tab, "ArrowDown")
    assert_shown(tab, "#heads figcaption", f"layer 2, head {heads}: {mechanism}")
    tab.click("#statistics tbody tr:nth-child(1)")
    assert_shown(tab, "#heads figcaption", "layer 1, head 1:")

    tab.click(".text button[data-place='4']")
    assert_from(tab, "a (5)")
    click(tab, ".matrix canvas", 0.97, 0.03)
    assert_from(tab, "1 (1)")
    press(tab, "ArrowDown", "ArrowDown", "ArrowLeft")
    assert_from(tab, "< (3)")
    expect(tab.locator(".matrix canvas")).to_have_attribute("aria-label", re.compile("< →  : "))

    tab.fill("#search", "A")
    expect(tab.locator(".found")).to_have_text(["a", "A"])
    expect(tab.locator("#matches")).to_have_text("2 found")
    press(tab, "Enter", "Enter")
    assert_from(tab, "A (9)")
    tokens = torch.tensor([[byte + 1 for byte in TEXT.encode()]])
    read = regard.explore.layers(model, tokens, probes=8)[0].found.values[0, 0]
    assert_strongest(tab, read, 8)

    tab.click("#statistics th:nth-child(4) button")
    entropies = [float(t) for t in tab.locator("#statistics td:nth-child(4)").all_text_contents()]
    assert entropies == sorted(entropies, reverse=True)
    methods = tab.locator(".method b").all_text_contents()
    told = len(methods) + tab.locator(".notes li").count()
    assert told == 5 and "integrated gradients" in methods
    pairs = len(methods) * (len(methods) - 1) // 2
    expect(tab.locator(".agreement tbody tr")).to_have_count(pairs)


def test_two_models_side_by_side(explored, trained):
    other = trained("linformer")
    _, tab = explored("softmax", "--text", TEXT, "--compare", str(other))
    captions = [re.compile(f"{name}: layer 1") for name in ("softmax", "linformer")]
    expect(tab.locator("#heads figcaption")).to_have_text(captions)
    said = re.compile(r"^Share of weight .*: [\d.]+ % for this query, [\d.]+ % on average\.$")
    expect(tab.locator("#difference")).to_have_text(said)
    for selector in (".matrix", "#similarity figure"):
        expect(tab.locator(selector)).to_have_count(2)
    _, same = explored("linformer", "--text", TEXT, "--compare", str(other))
    assert_shown(same, "#difference", ": 0 % for this query, 0 % on average.")


def test_encoder_and_decoder_and_what_lies_between(explored):
    _, tab = explored("pairs", "--tokens", "20 7 9 11 30", "--target-tokens", "1 6 8")
    parts = ["encoder, self", "decoder, self", "decoder, cross-attention"]
    expect(tab.locator("#group option")).to_have_text(parts)
    tab.select_option("#group", label=parts[2])
    tab.click(".text[data-kind='query'] button[data-place='2']")
    assert_from(tab, "8 (3)")
    keys = tab.locator(".strongest td:first-child").all_text_contents()
    assert set(keys) == {"20", "7", "9", "11", "30"}


def test_long_inputs_are_read_by_window(explored):
    long = "".join(chr(65 + n % 26) for n in range(150))
    run, tab = explored("bytes", "--text", long, "--window", "64")
    expect(tab.locator("#window option")).to_have_count(9)
    tab.fill("#search", "r")
    press(tab, "Enter", "Enter", "Enter")
    assert_from(tab, "R (70)")
    assert_shown(tab, "#window option:checked", "queries 65–128, keys 65–128")
    tokens = torch.tensor([[byte + 1 for byte in long.encode()]])
    read = regard.explore.layers(load(run).model, tokens)[0].found.values[0, 0]
    read[:, :64] = read[:, 128:] = 0  # other windows
    assert_strongest(tab, read, 69)


def test_letters_from_right_to_left_leave_query_and_key_in_their_order(opened):
    words = [["שלום", "עולם", "مرحبا", "x" * 400, "a", "b", "c", "d"]]
    tab = opened(page(classifier(), IDS, words=words, attributions=False).html, width=500)
    assert tab.evaluate(WIDER) == 0
    tab.hover(".matrix canvas")

    def left(selector):
        return tab.locator(selector).first.bounding_box()["x"]

    assert left("#tip bdi") < left("#tip bdi >> nth=1")
    assert left(".strongest th bdi") > left(".strongest th") + 10
    assert_from(tab, "שלום (1)")


def test_a_document_is_shaded_by_words_and_sentences(explored):
    run, tab = explored("documents", "--tokens", "3 4 5/6 7")
    expect(tab.locator(".sentence .text")).to_have_text(["345", "67"])
    tokens, valid = m.pad_documents([[[3, 4, 5], [6, 7]]])
    read = load(run).model.read(tokens, valid=valid)
    meters = tab.locator("meter").evaluate_all("all => all.map((one) => one.value)")
    assert meters == pytest.approx(read.sentences[0].tolist(), abs=1e-6)
    expect(tab.locator("#model-part")).to_be_hidden()


def rows(tmp_path, *lines):
    path = tmp_path / "rows.csv"
    path.write_text("\n".join(lines))
    return str(path)


def test_a_history_is_weighed_for_the_candidate_of_each_row(explored, tmp_path):
    lines = ["items,history", "3,2 3 1 8", "0,5 0 7 0", "8,1 1 4 0"]
    saved, tab = explored("din", "--file", rows(tmp_path, *lines))
    expect(tab.locator(".text[data-kind='query'] button")).to_have_text(["3", "0", "8"])
    tab.click(".text[data-kind='query'] button[data-place='2']")
    assert_from(tab, "8 (3)")
    loaded = load(saved).classifier
    table = {"items": [3, 0, 8], "history": [[2, 3, 1, 8]] * 3}
    batch = {name: torch.as_tensor(z) for name, z in loaded.schema_.encode(table).items()}
    assert_strongest(tab, loaded.module_.weights(batch).detach(), 2)
    tab.select_option("#example", index=1)
    expect(tab.locator(".text[data-kind='key'] span")).to_have_text(["5", "0", "7", "0"])


def test_fields_and_experts(explored, tmp_path):
    file = rows(tmp_path, "user,age,shop", "1,30,1", "5,60,2")
    _, tab = explored("autoint", "--file", file)
    expect(tab.locator(".text button")).to_have_text(["user", "age", "shop"])
    expect(tab.locator(".grid-of-heads button")).to_have_count(4)

    _, tab = explored("mmoe", "--file", file)
    expect(tab.locator(".text[data-kind='query'] button")).to_have_text(["click", "buy"])
    experts = ["expert 1", "expert 2", "expert 3"]
    expect(tab.locator(".text[data-kind='key'] span")).to_have_text(experts)


@pytest.mark.parametrize("kind", ["patches", "pixels"])
def test_images_show_what_a_place_attends_to(explored, tmp_path, kind):
    path = tmp_path / "picture.png"
    shades = np.random.default_rng(0).integers(0, 256, (8, 8), dtype=np.uint8)
    shades[-1, -1] = 0
    Image.fromarray(shades).save(path)
    _, tab = explored(kind, "--file", str(path))
    click(tab, ".image canvas", 0.9, 0.9)
    assert_from(tab, "row 2, column 2 (4)" if kind == "patches" else "1 (64)")  # a task's black
    width = "2" if kind == "patches" else "8"
    expect(tab.locator(".image canvas").nth(1)).to_have_attribute("width", width)


def test_nothing_is_cut_in_light_or_dark(opened):
    text = page(classifier(), IDS, words=[WORDS], compare=classifier(mixer="fnet")).html
    ground = "getComputedStyle(document.body).backgroundColor"
    grounds = []
    for width, dark in product((1400, 400), (False, True)):
        tab = opened(text, width=width, dark=dark)
        assert tab.evaluate(WIDER) == 0
        grounds.append(tab.evaluate(ground))
    assert grounds[:2] == grounds[2:] and grounds[0] != grounds[1]


def test_twelve_layers_of_twelve_heads_at_512_tokens(opened):
    """At most 13 MB; another head is one unpacking and one drawing, whatever the page holds, and a head seen before is not unpacked again."""
    generator = torch.Generator().manual_seed(0)
    # Nothing is sparse: the largest there is.
    logits = torch.randn(12, 512, 512, generator=generator)
    sheet = Sheet("layer", "softmax", "stochastic", logits.softmax(-1))
    names = [f"token {n}" for n in range(512)]
    most = 13_000_000
    made = Group("made up", names, names, False, [sheet])
    (group,) = pack([made], window=512, max_bytes=most // 12)
    group["sheets"] *= 12
    small = zlib.decompress(base64.b64decode(group["thumbnails"]["codes"]))
    group["thumbnails"]["codes"] = base64.b64encode(zlib.compress(small * 12)).decode()
    side = {"groups": [group], "document": None, "attribution": None}
    examples = [{"label": "x", "image": None, "sides": [side]}]
    text = render({"title": "large", "models": ["one"], "examples": examples})
    assert len(text.encode()) <= most
    tab = opened(text)
    expect(tab.locator(".grid-of-heads button")).to_have_count(144)
    tab.evaluate(SWITCHED)  # the first drawing is over
    tab.evaluate(COUNTED)
    for head in [*range(1, 12), 3]:
        tab.select_option("#head", index=head)
        tab.evaluate(SWITCHED)
    assert tab.evaluate("[counted.unpacked, counted.pixels]") == [11, 12 * 512 * 512]
    made_anew = tab.evaluate("counted.elements")  # the query's table and lines, and not the grid
    assert made_anew < 12 * 100


COUNTED = """(() => {
  window.counted = { unpacked: 0, pixels: 0, elements: 0 };
  const { put, create } = { put: CanvasRenderingContext2D.prototype.putImageData, create: document.createElement };
  CanvasRenderingContext2D.prototype.putImageData = function (image, ...rest) {
    counted.pixels += image.width * image.height;
    return put.call(this, image, ...rest);
  };
  document.createElement = (...name) => ((counted.elements += 1), create.apply(document, name));
  window.DecompressionStream = new Proxy(DecompressionStream, {
    construct: (made, form) => ((counted.unpacked += 1), new made(...form)),
  });
})()"""
RAN = "Boolean(document.documentElement.dataset.ran || globalThis.ran || document.querySelector('iframe, object, base, img'))"
SWITCHED = """new Promise((go) => {
  const seen = () => document.documentElement.dataset.switched ? (delete document.documentElement.dataset.switched, go()) : setTimeout(seen, 5);
  seen();
})"""


def replaced(value, payload, name=""):
    """The value with the payload in the place of each text that is shown."""
    if isinstance(value, str):
        return value if name in ("codes", "kind") else payload
    if isinstance(value, list):
        return [replaced(one, payload, name) for one in value]
    if isinstance(value, dict):
        return {key: replaced(one, payload, key) for key, one in value.items()}
    return value


def test_nothing_that_is_shown_runs(opened):
    """A page of 200 inputs: each payload is in each text field."""
    model = classifier(num_layers=1)
    data = embedded(page(model, IDS[:, :3], compare=model, names=("a", "b")).html)
    for side in data["examples"][0]["sides"]:
        side["document"] = {"words": [["x", "y"]], "weights": [[0.5, 0.5]], "sentences": [1.0]}
        side["attribution"]["reasons"] = [["x", "y"]]
    examples = [replaced(data["examples"][0], payload) for payload in PAYLOADS]
    models = [PAYLOADS[0], PAYLOADS[-1]]
    tab = opened(render({"examples": examples, "models": models, "title": PAYLOADS[1]}))
    for n, payload in enumerate(PAYLOADS):
        tab.select_option("#example", index=n)
        tab.evaluate(SWITCHED)
        tab.dispatch_event(".matrix canvas", "pointermove")
        shown = tab.locator("#heads .text > *").all_text_contents()
        assert len(shown) == 2 * 3
        assert set(shown) == {payload} or not payload.isprintable()  # what is not is spelled
    tab.wait_for_timeout(200)
    assert len(PAYLOADS) == 200 and not tab.evaluate(RAN)


def test_titles_and_data_are_no_markup_and_the_policy_names_exactly_what_is_on_the_page():
    def told(title):
        text = render({"title": title, "models": [title], "examples": []})
        title = html.unescape(re.search("<h1>(.*?)</h1>", text, re.S)[1])
        return title, re.findall("<[!/a-z][^>]*", text, re.I)

    _, tags = told("plain")
    assert all(told(payload) == (payload, tags) for payload in PAYLOADS)
    text = render({"title": "x", "models": ["m"], "examples": []})
    policy = html.unescape(re.search(r'Content-Security-Policy" content="(.*?)"', text).group(1))
    assert "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy
    assert "require-trusted-types-for 'script'" in policy and policy.count("'sha256-") == 2


def test_a_page_is_in_a_frame_of_its_own_in_a_notebook_and_saved_with_half_a_letter(tmp_path):
    shown = page(classifier(), IDS, words=[["</iframe><script>1</script>"] * 8])
    frame = shown._repr_html_()
    assert frame.startswith('<iframe sandbox="allow-scripts" srcdoc="') and frame.count("<") == 2
    assert html.unescape(re.search(r'srcdoc="(.*?)"', frame, re.S).group(1)) == shown.html
    # Saved whole or not at all, as `tests.faults` proves of pages.
    Page(render({"title": "a \udcff", "models": ["m"], "examples": []})).save(tmp_path / "page")
    assert "a &#56575;" in (tmp_path / "page").read_text(encoding="utf-8")


def test_the_command_draws_a_run(trained, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = str(trained("bytes"))
    (tmp_path / "text").write_bytes(b"caf\xe9 \xff\r\nok")
    for flag, given, read in (("--text", *["for i in x:"] * 2), ("--file", "text", "café ÿ\r\nok")):
        assert main(["explore", run, flag, given]) == 0
        where = capsys.readouterr().out.removeprefix("The page: ").strip()
        (side,) = embedded(open(where, encoding="utf-8").read())["examples"][0]["sides"]
        assert side["groups"][0]["rows"] == list(read)
        assert [sheet["mechanism"] for sheet in side["groups"][0]["sheets"]] == ["local"] * 2
    assert main(["explore", run, "--compare", run, "--tokens", "5 6 7", "--influence"]) == 0


@pytest.mark.parametrize("config", [m.ClassifierConfig, m.LanguageModelConfig])
def test_a_text_is_read_as_bytes_where_ids_are_bytes(config):
    more = {"num_classes": 2} if config is m.ClassifierConfig else {}
    for size, held in ((257, config is m.LanguageModelConfig), (258, True), (300, False)):
        model = Loaded(config(vocab_size=size, dim=8, num_heads=2, num_layers=1, **more).build())
        with nullcontext() if held else pytest.raises(OptionError, match="ids are no bytes"):
            model.inputs(Explore(checkpoint=Path("run"), text="a"))


WRONG = {
    "nowhere": "is no folder of `regard train`",
    "run --text ''": "the text is empty",
    "run --tokens '1 x'": "--tokens must be whole numbers",
    "run --tokens 1 --text a": "--text and --tokens exclude each other",
    "translator --target a --target-tokens 3": "--target and --target-tokens exclude each other",
    "run --compare softmx": "--compare softmx is no folder",
    "nowhere.gguf": "is no folder of `regard train`",  # and not: its reader is missing
    "run --compare text.gguf": "GGUF file",
    "run --max-tokens 0": "must be a positive integer",
    "run --tokens 999": "outside the vocabulary",
    "translator --text cat": "keeps no vocabulary",
    "translator --tokens 3": "keeps no vocabulary",
    "picture": "reads pictures",
    "run --tokens=-1": "--tokens (-1) must be an integer of at least 0",
    f"run --tokens {9**99}": "must be an integer of at least 0 of at most",
    "picture --file bomb.png": "bomb.png is no image, or damaged",
    "run --text half\udcff": "holds half a letter",
    "run --file pipe": "pipe cannot be read: it is no plain file",
    "table --file pipe": "pipe cannot be read: it is no plain file",
    "table --file letters.csv": "'old' in age is no number",
    "unread": "model.safetensors is missing, or no plain file",
    "piped": "is no folder of `regard train`",
}


def test_wrong_commands_are_one_line(trained, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").symlink_to(trained("linformer"))
    (tmp_path / "translator").symlink_to(trained("pairs"))
    (tmp_path / "picture").symlink_to(trained("pixels"))
    (tmp_path / "text.gguf").write_text("no weights")
    (tmp_path / "table").symlink_to(trained("autoint"))
    (tmp_path / "letters.csv").write_text("user,age,shop\n1,3,1\n1,old,2")
    os.mkfifo(tmp_path / "pipe")
    Image.new("1", (20_000, 10_000)).save(tmp_path / "bomb.png")
    shutil.copytree(trained("linformer"), tmp_path / "unread")
    for path in (tmp_path / "unread").rglob("model.safetensors"):
        path.unlink()
        os.mkfifo(path)
    (tmp_path / "piped").mkdir()
    os.mkfifo(tmp_path / "piped" / "state.json")
    for line, said in WRONG.items():
        assert said in refused(capsys, f"explore {line}"), line
    # A missing number is equal to itself.
    (tmp_path / "missing.csv").write_text("user,age,shop\n1,,1")
    assert main(["explore", "table", "--compare", "table", "--file", "missing.csv"]) == 0


def test_byte_level_tokens_are_shown_as_text():
    """And a part of a letter, which is no text, by its name."""
    ids = {letter: n for n, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(ids | {"Ġa": 256}, [("Ġ", "a")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    found = tokenizer.encode("b aé").ids
    names = [tokenizer.id_to_token(n) for n in found]
    assert words_of(tokenizer, found) == names == ["b", "Ġa", "Ã", "©"]
    tokenizer.decoder = decoders.ByteLevel()
    assert words_of(tokenizer, found) == ["b", " a", "Ã", "©"]


def test_scores_that_are_not_finite_and_inputs_that_are_long_have_a_reason(monkeypatch):
    """One token alone has a mean of zero without it, and no NaN enters the page."""
    alone = page(classifier().encoder, IDS[:, :1], answer=Likeness())
    assert dict(attributed(alone)["methods"])["leave one out"][0] > 0
    shown = page(classifier(), IDS, answer=lambda logits, valid: logits / 0)
    assert "NaN or infinite" in dict(attributed(shown)["reasons"])["leave one out"]
    monkeypatch.setattr("regard.explore.render.MOST_ATTRIBUTED", 5)
    ((_, reason),) = attributed(page(classifier(), IDS[:, :6]))["reasons"]
    assert "at most 5 tokens, here are 6" in reason


@pytest.mark.parametrize("before", [0, 2])
@pytest.mark.parametrize("make", [classifier, language_model])
def test_words_and_scores_of_a_padded_row_are_those_of_the_row_alone(make, before):
    model = make()
    alone = attributed(page(model, IDS[:, :3], words=[WORDS[:3]]))
    sides = before, 2 - before
    valid = F.pad(torch.ones(1, 3, dtype=torch.bool), sides)
    padded = {"tokens": F.pad(IDS[:, :3], sides), "valid": valid}
    found = attributed(page(model, Inputs((), padded, words=[WORDS[:3]])))
    assert found["words"] == [""] * before + WORDS[:3] + [""] * (2 - before)
    here = [(name, z[before : before + 3]) for name, z in found["methods"]]
    assert here == [(name, pytest.approx(z, rel=1e-2)) for name, z in alone["methods"]]
    assert found["agreement"] == alone["agreement"]


def test_words_and_scores_of_a_padded_pair_are_those_of_the_pair_alone():
    model = shaken(m.DualEncoderConfig(vocab_size=30, num_classes=2, dim=8, num_heads=2))
    pair = {"first": IDS[:, :3], "second": IDS[:, 2:6]}
    named = {"words": [WORDS[:3]], "others": [list("wxyz")]}
    alone = embedded(page(model, pair, **named).html)["examples"][0]["sides"][0]
    pad = lambda z: F.pad(z, (2, 0), value=25)  # noqa: E731
    valid = {f"{name}_valid": pad(z) != 25 for name, z in pair.items()}
    padded = {name: pad(z) for name, z in pair.items()} | valid
    found = embedded(page(model, padded, **named).html)["examples"][0]["sides"][0]
    assert [one["rows"][2:] for one in found["groups"]] == [one["rows"] for one in alone["groups"]]
    mine, own = found["attribution"], alone["attribution"]
    here = [(name, z[2:]) for name, z in mine["methods"]]
    assert here == [(name, pytest.approx(z, rel=1e-2)) for name, z in own["methods"]]
    assert mine["agreement"] == own["agreement"] and mine["reasons"] == own["reasons"]
    translator = transformer()
    both = {"source": pair["first"], "target": padded["second"]}
    both |= {"target_valid": valid["second_valid"]}
    groups = embedded(page(translator, both, **named).html)["examples"][0]["sides"][0]["groups"]
    assert [one["rows"] for one in groups[1:]] == 2 * [["", "", *"wxyz"]]


def test_what_multiplies_is_all_layers_of_a_stack_and_what_adds_up_is_its_own():
    model = classifier(mixers=["softmax", ("softmax", {"num_heads": 1})])
    maps = [layer.found.values for layer in layers(model, IDS[:, :5])]
    found = dict(attributed(page(model, IDS[:, :5]))["methods"])
    assert found["rollout"] == pytest.approx(rollout(maps)[0].mean(0).tolist(), rel=1e-2)
    mixed = classifier(mixers=["softmax", "fnet"])
    assert "no weights" in dict(attributed(page(mixed, IDS[:, :5]))["reasons"])["rollout (rows normalised)"]  # fmt: skip
    translator = transformer()
    shown = attributed(page(translator, {"source": IDS[:, :5], "target": IDS[:, 2:7]}))
    products = gradient_times_attention(translator, IDS[:, :5], IDS[:, 2:7])[:2]
    own = sum(one[0].sum((0, 1)) for one in products)
    assert dict(shown["methods"])["gradient × attention"] == pytest.approx(own.tolist(), rel=1e-2)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_models_of_half_precision_have_all_five_methods(dtype):
    found = attributed(page(classifier().to(dtype), IDS[:, :6], words=[WORDS]))
    assert [name for name, _ in found["reasons"]] == ["flow"]  # of causal models


def test_words_of_a_document_are_parted_by_sentences():
    sizes = {"vocab_size": 20, "num_classes": 3, "dim": 8, "hidden_dim": 6, "attention_dim": 5}
    model = shaken(m.HANConfig(**sizes))
    tokens, valid = m.pad_documents([[[3, 4, 5], [6, 7]], [[8, 9]]])
    words = [list("abcde"), ["x"]]
    shown = page(model, Inputs((tokens,), {"valid": valid}, words=words))
    found = [example["sides"][0]["document"] for example in embedded(shown.html)["examples"]]
    assert found[0]["words"] == [list("abc"), list("de")]
    assert found[1]["words"] == [["8", "9"]]  # too few words are given: its ids
    read = model.read(tokens, valid=valid)
    assert found[0]["weights"][1] == pytest.approx(read.words[0, 1, :2].tolist())
    assert found[0]["sentences"] == pytest.approx(read.sentences[0].tolist())


def test_an_empty_cell_of_a_table_is_missing_and_another_unknown():
    field, ids = Categorical("shop", 3), {"shop": {"a": 2}}
    assert [_cell(field, text, ids) for text in ("", "a", "b")] == [None, "a", "b"]
    history, ids = Sequence("history", field), {"shop": {"New York": 2, 7: 3}}
    texts = {"New York|7||b": ["New York", 7, None, "b"], "7 b": [7, "b"], "": []}
    texts |= {"['New York', 7]": ["New York", 7], "[]": []}
    assert {text: _cell(history, text, ids) for text in texts} == texts
    shop = {"shop": {0: 2, 1: 3, "Yes": 4}}
    texts = {"1.0": 1, "true": 1, "False": 0, "yes": "yes", "1_0": "1_0", "2": 2}
    assert {text: _cell(field, text, shop) for text in texts} == texts | {"2": "2"}
    with pytest.raises(regard.OptionError, match="in history is no list"):
        _cell(history, "[{[]}]", ids)
    with pytest.raises(regard.OptionError, match="'1_2' in age is no number"):
        _cell(Numeric("age"), "1_2", {})
    for text in ("[a b]", "['a' 'b']", "['a'\n 'b']"):
        with pytest.raises(regard.OptionError, match="in history is no list"):
            _cell(history, text, ids)


def test_a_table_is_drawn_in_evaluation():
    item = Categorical("item", 4)
    fields = item, Sequence("seen", item)
    model = m.DINConfig(history=("seen",), dim=4, fields=fields).build()
    batch = {"item": torch.tensor([2, 3]), "seen": torch.tensor([[2, 3], [3, 0]])}
    was = {name: z.clone() for name, z in model.state_dict().items()}
    page(model, batch)
    with pytest.raises(regard.UnsupportedError, match="does not support influence for DIN"):
        page(model, batch, measure="influence")
    shown = embedded(
        page(model, batch | {"seen": batch["seen"].flip(1)}, words=[["a", "b"], ["c"]]).html
    )
    (group,) = shown["examples"][1]["sides"][0]["groups"]
    assert group["cols"] == ["", "c"]
    with pytest.raises(regard.ShapeError, match="a dict of tensors by field name"):
        page(model, torch.zeros(2, 3))
    assert model.training
    assert all(torch.equal(was[name], z) for name, z in model.state_dict().items())


@pytest.mark.parametrize("name", ["valid", "source"])
def test_a_column_may_be_called_as_an_argument_is(name):
    fields = Categorical(name, 8), Categorical("other", 8)
    batch = {one.name: torch.tensor([2, 3]) for one in fields}
    assert name in page(m.AutoIntConfig(fields=fields, dim=8).build(), batch).html
