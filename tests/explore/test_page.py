"""The page in a browser: every view by keyboard and mouse, on checkpoints of many mechanisms; nothing that it shows runs."""

import base64
import html
import json
import re
import statistics
import zlib
from html.parser import HTMLParser

import pytest
import torch

import regard
from regard.cli import main
from regard.cli.checkpoints import load
from regard.core.fields import Categorical
from regard.explore.inputs import Group, Inputs, Sheet
from regard.explore.packed import pack
from regard.explore.render import page, render
from regard.models import (
    AutoIntConfig,
    ClassifierConfig,
    DINConfig,
    HANConfig,
    LanguageModelConfig,
    MMoEConfig,
    PatchClassifierConfig,
    TransformerConfig,
    pad_documents,
    pixel_classifier,
)
from tests.browser import CHROMIUM
from tests.explore.checkpoints import saved
from tests.models.table import BATCH, FIELDS
from tests.payloads import PAYLOADS

needs_browser = pytest.mark.skipif(
    CHROMIUM is None, reason="needs chromium on the PATH to draw the page"
)
MECHANISMS = [
    "softmax", "linear", "performer", "local", "reformer", "fnet", "gau", "synthesizer_random",
    "mlp_mixer", "bigbird",
]  # fmt: skip
WORDS = ["The", "cat", "<b>", "sat", "on", "the", "mat", "."]
IDS = torch.tensor([[3, 5, 7, 9, 11, 4, 13, 2]])
STACK = {"vocab_size": 300, "dim": 24, "num_heads": 3, "num_layers": 2, "max_len": 64}


@pytest.fixture
def opened(browser, tmp_path):
    """Draws a page; afterwards nothing may have been complained about."""

    def open_page(text, **how):
        path = tmp_path / "page.html"
        path.write_text(text, encoding="utf-8")
        return browser.open(path, **how)

    yield open_page
    assert browser.complaints == []


def texts(browser, selector):
    return browser.run(
        f"[...document.querySelectorAll({json.dumps(selector)})].map((e) => e.textContent)"
    )


def built(config):
    torch.manual_seed(0)
    return config.build().eval()


def classifier(**options):
    return built(ClassifierConfig(num_classes=4, **{**STACK, **options}))


# ---------------------------------------------------------------------- every view


@needs_browser
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_every_view_by_mouse_and_keys(opened, tmp_path, mechanism):
    config = ClassifierConfig(num_classes=4, mixer=mechanism, **STACK)
    model = load(saved(config, tmp_path / "run")).model
    attributed = mechanism in ("softmax", "fnet")
    shown = page(model, IDS, words=[WORDS], probes=None, attributions=attributed)
    tab = opened(shown.html)
    buttons, depth = texts(tab, ".grid-of-heads button"), len(texts(tab, "#layer option"))
    heads = len(buttons) // depth
    assert depth == len(model.encoder.mixers)
    assert len(texts(tab, "#statistics tbody tr")) == len(buttons)

    tab.click(f".grid-of-heads button[data-layer='0'][data-head='{heads - 1}']")
    assert f"layer 1, head {heads}: {mechanism}" in texts(tab, "#heads figcaption")[0]
    tab.press("ArrowDown")
    assert f"layer 2, head {heads}: {mechanism}" in texts(tab, "#heads figcaption")[0]
    tab.click("#statistics tbody tr:nth-child(1)")
    assert "layer 1, head 1:" in texts(tab, "#heads figcaption")[0]

    tab.click(".text button[data-place='4']")
    assert texts(tab, ".strongest th")[0] == "from on (5) to"
    read = regard.explore.layers(model, IDS, probes=None)[0].found.values[0, 0]
    weights = [float(text) for text in texts(tab, ".strongest td:last-child")]
    wanted = read[4].abs().sort(descending=True).values[: len(weights)].tolist()
    most = read.abs().max().item()
    assert [abs(w) for w in weights] == pytest.approx(wanted, abs=most / 100)
    tab.click(".matrix canvas", at=(0.95, 0.05))
    assert texts(tab, ".strongest th")[0] == "from The (1) to"
    tab.press("ArrowDown", "ArrowDown", "ArrowLeft")
    assert texts(tab, ".strongest th")[0] == "from <b> (3) to"
    said = tab.run("document.querySelector('.matrix canvas').ariaLabel")
    assert said.startswith("<b> → mat: ")

    tab.run("document.getElementById('search').focus()")
    tab.type("THE")
    assert texts(tab, ".found") == ["The", "the"] and texts(tab, "#matches") == ["2 found"]
    tab.press("Enter")
    assert texts(tab, ".strongest th")[0] == "from the (6) to"

    tab.click("#statistics th:nth-child(4) button")
    entropies = [float(t) for t in texts(tab, "#statistics td:nth-child(4)")]
    assert entropies == sorted(entropies, reverse=True)
    methods, reasons = texts(tab, ".method b"), texts(tab, ".notes li")
    assert len(methods) + len(reasons) == 5 * attributed
    assert ("integrated gradients" in methods) == attributed
    assert len(texts(tab, ".agreement tbody tr")) == len(methods) * (len(methods) - 1) // 2


@needs_browser
def test_two_models_side_by_side(opened):
    one, other = classifier(), classifier(mixer="linear")
    tab = opened(
        page(
            one, IDS, words=[WORDS], compare=other, names=("one", "other"), attributions=False
        ).html
    )
    captions = texts(tab, "#heads figcaption")
    assert captions[0].startswith("one: ") and "linear" in captions[1]
    assert re.fullmatch(
        r"Share of weight .*: [\d.]+ % for this query, [\d.]+ % on average\.",
        texts(tab, "#difference")[0],
    )
    assert len(texts(tab, ".matrix")) == 2 and len(texts(tab, "#similarity figure")) == 2
    same = opened(page(one, IDS, compare=one, attributions=False).html)
    assert ": 0 % for this query, 0 % on average." in texts(same, "#difference")[0]


@needs_browser
def test_encoder_and_decoder_and_what_lies_between(opened):
    model = built(TransformerConfig(**STACK))
    target = torch.tensor([[1, 6, 8]])
    others = [["<s>", "die", "Katze"]]
    shown = page(model, (IDS, target), words=[WORDS], others=others, attributions=False)
    tab = opened(shown.html)
    assert texts(tab, "#group option") == [
        "encoder, self",
        "decoder, self",
        "decoder, cross-attention",
    ]
    tab.choose("group", "2")
    tab.settle()
    tab.click(".text[data-kind='query'] button[data-place='2']")
    assert texts(tab, ".strongest th")[0] == "from Katze (3) to"
    assert set(texts(tab, ".strongest td:first-child")) == set(WORDS)


@needs_browser
def test_long_inputs_are_read_by_window(opened):
    model = built(LanguageModelConfig(**{**STACK, "max_len": 200}, mixer="local"))
    tokens = torch.randint(1, 300, (1, 150), generator=torch.Generator().manual_seed(0))
    tab = opened(page(model, tokens, window=64, attributions=False).html)
    assert len(texts(tab, "#window option")) == 9
    tab.choose("window", "8")
    tab.settle()
    assert texts(tab, ".strongest th")[0] == "from 129 (129) to"
    tab.run("document.getElementById('search').focus()")
    tab.type("70")
    tab.press("Enter")
    assert texts(tab, ".strongest th")[0] == "from 70 (70) to"
    assert texts(tab, "#window option:checked") == ["queries 65–128, keys 65–128"]


@needs_browser
def test_a_document_is_shaded_by_words_and_sentences(opened):
    model = built(HANConfig(vocab_size=30, num_classes=3, dim=8, hidden_dim=6, attention_dim=5))
    tokens, valid = pad_documents([[[3, 4, 5], [6, 7]]])
    words = [["good", "</script>", "film", "very", "long"]]
    tab = opened(page(model, Inputs((tokens,), {"valid": valid}, words=words)).html)
    assert texts(tab, ".sentence .text") == ["good</script>film", "verylong"]
    read = model.read(tokens, valid=valid)
    meters = tab.run("[...document.querySelectorAll('meter')].map((m) => m.value)")
    assert meters == pytest.approx(read.sentences[0].tolist(), abs=1e-6)
    assert not tab.run("document.getElementById('model-part').offsetParent")


@needs_browser
def test_histories_fields_and_experts(opened):
    din = built(DINConfig(fields=FIELDS, history=("history", "shops"), dim=3, num_tasks=2)).double()
    tab = opened(page(din, BATCH, others=[["a"], ["b"], ["c"], ["d"]]).html)
    assert texts(tab, ".text[data-kind='query'] button") == ["a", "b", "c", "d"]
    tab.click(".text[data-kind='query'] button[data-place='2']")
    batch = {n: z[:1].expand_as(z) if n in ("history", "shops") else z for n, z in BATCH.items()}
    wanted = din.weights(batch)[2].abs().sort(descending=True).values
    found = [abs(float(t)) for t in texts(tab, ".strongest td:last-child")]
    assert found == pytest.approx(wanted[: len(found)].tolist(), abs=0.02 * wanted.max().item())

    autoint = built(AutoIntConfig(fields=FIELDS, dim=4, num_heads=2, num_layers=2)).double()
    tab = opened(page(autoint, BATCH).html)
    assert texts(tab, ".text button") == [field.name for field in FIELDS]
    assert len(texts(tab, ".grid-of-heads button")) == 4

    mmoe = built(MMoEConfig(fields=(Categorical("user", 7),), num_experts=3, num_tasks=2))
    names = [["click", "buy"]] * 4
    tab = opened(page(mmoe, {"user": BATCH["user"]}, others=names).html)
    assert texts(tab, ".text[data-kind='query'] button") == ["click", "buy"]
    assert texts(tab, ".text[data-kind='key'] span") == ["expert 1", "expert 2", "expert 3"]


@needs_browser
@pytest.mark.parametrize("kind", ["patches", "pixels"])
def test_images_show_what_a_place_attends_to(opened, kind):
    pixels = torch.randint(0, 256, (1, 64), generator=torch.Generator().manual_seed(0))
    if kind == "patches":
        config = PatchClassifierConfig(
            image_size=(8, 8), patch_size=4, num_classes=3, dim=24, num_heads=3
        )
    else:
        config = pixel_classifier(8, 8, 3, dim=24, num_heads=3)
    tab = opened(page(built(config), pixels, attributions=False).html)
    tab.click(".image canvas", at=(0.9, 0.9))
    last = "row 2, column 2 (4)" if kind == "patches" else "64 (64)"
    assert texts(tab, ".strongest th")[0] == f"from {last} to"
    assert tab.run("document.querySelectorAll('.image canvas')[1].width") == (
        2 if kind == "patches" else 8
    )


@needs_browser
@pytest.mark.parametrize("width", [1400, 400])
def test_nothing_is_cut_in_light_or_dark(opened, width):
    text = page(classifier(), IDS, words=[WORDS], compare=classifier(mixer="fnet")).html
    ground = "getComputedStyle(document.body).backgroundColor"
    tab = opened(text, width=width)
    wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    light = tab.run(ground)
    assert tab.run(wide) == 0
    tab = opened(text, width=width, dark=True)
    assert tab.run(wide) == 0 and tab.run(ground) != light


# ---------------------------------------------------------------------- sizes


@needs_browser
def test_twelve_layers_of_twelve_heads_at_512_tokens(opened):
    """At most 13 MB, and 50 ms to another head, in processor time of the page's thread: a clock on the wall depends on who else computes."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(
        12, 512, 512, generator=generator
    )  # nothing is sparse: the largest there is
    sheet = Sheet("layer", "softmax", "stochastic", logits.softmax(-1))
    names = [f"token {n}" for n in range(512)]
    most = 13_000_000
    (group,) = pack(
        [Group("made up", names, names, False, [sheet])], window=512, max_bytes=most // 12
    )
    group["sheets"] *= 12
    small = zlib.decompress(base64.b64decode(group["thumbnails"]["codes"]))
    group["thumbnails"]["codes"] = base64.b64encode(zlib.compress(small * 12)).decode()
    side = {"groups": [group], "document": None, "attribution": None}
    examples = [{"label": "x", "image": None, "sides": [side]}]
    text = render({"title": "large", "models": ["one"], "examples": examples})
    assert len(text.encode()) <= most
    tab = opened(text)
    assert len(texts(tab, ".grid-of-heads button")) == 144

    def spent():
        metrics = tab.ask("Performance.getMetrics")["metrics"]
        return next(m["value"] for m in metrics if m["name"] == "TaskDuration")

    tab.ask("Performance.enable", timeDomain="threadTicks")
    times = []
    for head in range(1, 12):
        before = spent()
        tab.choose("head", str(head))
        tab.run(SWITCHED)
        times.append(1000 * (spent() - before))
    assert statistics.median(times) < 50, times


SWITCHED = """new Promise((go) => {
  const seen = () => document.documentElement.dataset.switched ? (delete document.documentElement.dataset.switched, go()) : setTimeout(seen, 5);
  seen();
})"""


# ---------------------------------------------------------------------- nothing runs


def poisoned():
    """A page of 200 inputs: over them, each payload is in each text field."""
    model = classifier()
    shown = page(model, IDS, words=[WORDS], compare=model, names=("a", "b"))
    data = json.loads(re.search(r'id="explored">(.*?)</script>', shown.html).group(1))
    template = data["examples"][0]
    for side in template["sides"]:
        side["document"] = {"words": [["x", "y"]], "weights": [[0.5, 0.5]], "sentences": [1.0]}
        side["attribution"]["reasons"] = [["x", "y"]]
    examples = []
    for n in range(len(PAYLOADS)):
        count = iter(range(n, 10**6))

        def text(value, name="", count=count):
            if isinstance(value, str):
                return value if name in ("codes", "kind") else PAYLOADS[next(count) % len(PAYLOADS)]
            if isinstance(value, list):
                return [text(v, name) for v in value]
            if isinstance(value, dict):
                return {key: text(v, key) for key, v in value.items()}
            return value

        examples.append(text(template))
    return data | {"examples": examples, "models": [PAYLOADS[0], PAYLOADS[-1]]}


RAN = "Boolean(document.documentElement.dataset.ran || globalThis.ran || document.querySelector('iframe, object, base, img'))"


@needs_browser
def test_nothing_that_is_shown_runs(opened):
    data = poisoned()
    tab = opened(render(data | {"title": PAYLOADS[1]}))
    seen = tab.run(
        """(async () => {
      const select = document.getElementById("example");
      let shown = 0;
      for (let n = 0; n < select.options.length; n += 1) {
        select.value = n;
        select.dispatchEvent(new Event("change"));
        await new Promise((go) => setTimeout(go, 12));
        document.querySelector(".matrix canvas").dispatchEvent(new PointerEvent("pointermove", {bubbles: true}));
        shown += document.querySelectorAll("#heads .text > *").length;
      }
      await new Promise((go) => setTimeout(go, 200));
      return [select.options.length, shown];
    })()"""
    )
    assert seen == [200, 200 * 2 * len(WORDS)]
    assert not tab.run(RAN)
    last = data["examples"][-1]["sides"][0]["groups"][0]["cols"]
    hidden = r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2028\u2029]"
    plain = [word for word in last if not re.search(hidden, word)]
    assert set(plain) <= set(texts(tab, "#heads .text button"))


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.title, self.inside = [], "", False

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, tuple(name for name, _ in attrs)))
        self.inside = tag == "h1"

    def handle_endtag(self, tag):
        self.inside = self.inside and tag != "h1"

    def handle_data(self, data):
        self.title += data if self.inside else ""


def test_titles_and_data_are_no_markup():
    empty = {"models": ["m"], "examples": []}
    plain = Tags()
    plain.feed(render(empty | {"title": "plain"}))
    for payload in PAYLOADS:
        found = Tags()
        found.feed(render(empty | {"title": payload, "models": [payload]}))
        assert found.tags == plain.tags and found.title == payload


def test_the_policy_names_exactly_what_is_on_the_page():
    text = render({"title": "x", "models": ["m"], "examples": []})
    policy = html.unescape(re.search(r'Content-Security-Policy" content="(.*?)"', text).group(1))
    assert "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy
    assert "require-trusted-types-for 'script'" in policy and policy.count("'sha256-") == 2


def test_in_a_notebook_the_page_is_in_a_frame_of_its_own():
    shown = page(classifier(), IDS, words=[["</iframe><script>1</script>"] * 8])
    frame = shown._repr_html_()
    assert frame.startswith('<iframe sandbox="allow-scripts" srcdoc="') and frame.count("<") == 2
    assert html.unescape(re.search(r'srcdoc="(.*?)"', frame, re.S).group(1)) == shown.html


# ---------------------------------------------------------------------- the command


def test_the_command_draws_a_run(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = saved(LanguageModelConfig(mixer="linear", **STACK), tmp_path / "run")
    assert main(["explore", str(run), "--text", "for i in x:"]) == 0
    where = capsys.readouterr().out.removeprefix("The page: ").strip()
    text = open(where, encoding="utf-8").read()
    data = json.loads(re.search(r'id="explored">(.*?)</script>', text).group(1))
    (side,) = data["examples"][0]["sides"]
    assert side["groups"][0]["rows"] == list("for i in x:")
    assert [sheet["mechanism"] for sheet in side["groups"][0]["sheets"]] == ["linear"] * 2
    assert (
        main(["explore", str(run), "--compare", str(run), "--tokens", "5 6 7", "--influence"]) == 0
    )


@pytest.mark.parametrize(
    "args, said",
    [
        (["nowhere"], "is no folder of `regard train`"),
        (["run", "--text", ""], "the text is empty"),
        (["run", "--tokens", "1 x"], "--tokens must be whole numbers"),
        (["run", "--tokens", "1", "--text", "a"], "give one of --text, --file and --tokens"),
        (["run", "--compare", "softmx"], "--compare softmx is no folder"),
        (["nowhere.gguf"], "is no folder of `regard train`"),  # and not: its reader is missing
        (["run", "--compare", "text.gguf"], "GGUF file"),
        (["run", "--max-tokens", "0"], "must be at least 1"),
        (["run", "--tokens", "999"], "outside the vocabulary"),
    ],
)
def test_wrong_commands_are_one_line(tmp_path, capsys, monkeypatch, args, said):
    monkeypatch.chdir(tmp_path)
    saved(ClassifierConfig(num_classes=2, **STACK), tmp_path / "run")
    (tmp_path / "text.gguf").write_text("no weights")
    assert main(["explore", *args]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1


def test_words_that_do_not_fit_are_refused():
    with pytest.raises(regard.OptionError, match="words are given for 1 rows"):
        page(classifier(), IDS.repeat(2, 1), words=[WORDS])
    with pytest.raises(regard.OptionError, match="names must hold 2"):
        page(classifier(), IDS, compare=classifier(), names=("one",))
