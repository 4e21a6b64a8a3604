"""What models refuse, with the reason, before anything is computed. Tensors and values of a wrong type: tests/test_bad_calls.py."""

from functools import partial

import pytest
import torch

import regard
import regard.models as m
from regard import MODELS, OptionError, ShapeError, UnknownNameError, UnsupportedError
from regard.core import growth
from regard.lab import above
from regard.nn import FEED_FORWARDS, CoordConv2d, LengthProjection, MultiheadAttention
from regard.nn.fields import Categorical, Numeric, Sequence
from regard.testing import check_mixer
from tests.models import small
from tests.models.small import STACK, VOCAB, classifier, prompts, targets, transformer
from tests.models.table import BATCH, FIELDS, ITEM

TEXT, START, lm = prompts(), targets(), small.language_model
MIXER = regard.build("softmax", dim=24, num_heads=3)
SIZES = {"vocab_size": VOCAB, "dim": 8, "num_heads": 2}
ORDER = torch.arange(7).expand(3, 7)
STATE = "state must come from"
IMAGE = {"image_size": (8, 8), "patch_size": 2, "num_classes": 3}
VECTORS = torch.ones(2, 4)


def built(kind, **options):
    return kind(**options).build()


xl = partial(built, m.TransformerXLConfig, **SIZES)
xlnet = partial(built, m.XLNetConfig, **SIZES, mem_len=3)
dual = partial(built, m.DualEncoderConfig, **STACK)
han = partial(built, m.HANConfig, vocab_size=11, num_classes=3, hidden_dim=4, num_heads=2)
din = partial(built, m.DINConfig, fields=FIELDS, history=("history", "shops"), dim=3)
mmoe = partial(built, m.MMoEConfig, input_dim=4)


def published(name, *preset, **options):
    sizes = {"vocab_size": 9} if MODELS[name].heads[0] != "patch_classifier" else {}
    return MODELS[name](*preset or ("small",), **sizes, **options).build()


def diverged():
    model = lm()
    torch.nn.init.constant_(model.encoder.embedding.table.weight, torch.inf)
    return model


def generate(**options):
    return lm().generate(TEXT, **{"max_new_tokens": 3, **options})


image = partial(published, "mlp_mixer", image_size=(4, 6), num_classes=5)
reformer = partial(published, "reformer", mixer_options={})


def counts(**changed):
    sizes = {"items": 9, "shop": 5, "user": 7}
    ones = {name: torch.ones(size) for name, size in sizes.items()}
    return din().double().batch_l2(BATCH, {**ones, **changed})


LEARNED = lm(position="learned"), transformer(position="learned", max_len=8)
REFUSED = {
    OptionError: [
        ("must not hold num_heads", lambda: lm(mixer_options={"num_heads": 2})),
        ("must not hold position_options", lambda: lm(
            position="rotary", mixer_options={"position_options": {}})),
        (r"'softmax\*x' must be a name, or a name and how", lambda: lm(mixers="softmax*x")),
        (r"'softmax\*0' must be", lambda: lm(mixers="softmax*0")),
        ("tuple of Layers", lambda: lm(mixers=" ")),
        ("takes one of mixer and mixers", lambda: lm(mixers="linear", mixer="local")),
        ("must be empty", lambda: lm(mixers="linear", mixer_options={"bias": True})),
        ("norm_after=True needs", lambda: lm(norm_after=True, norm_first=False)),
        ("norm_after=True needs", lambda: lm(norm_after=True, residual="reversible")),
        ("norm_after", lambda: transformer(norm_after=True)),
        ("needs a feed-forward layer", lambda: lm(hidden_dim=0, residual="reversible")),
        ("must be 'plain' here", lambda: transformer(residual="reversible")),
        ("needs norm_first", lambda: reformer(norm_first=False)),
        ("leave checkpoint=False", lambda: reformer(checkpoint=True)),
        ("global_tokens", lambda: lm(mixer="longformer", global_tokens=1)),
        ("gau includes its feed-forward", lambda: transformer(decoder_mixer="gau")),
        ("cross_mixer_options must not", lambda: transformer(cross_mixer_options={"dim": 3})),
        ("includes its feed-forward", lambda: m.Block(
            24, regard.build("gau", dim=24), FEED_FORWARDS["gelu"](24))),
        ("the nearest has", lambda: m.match_parameters(m.ClassifierConfig(num_classes=3, **STACK), 9)),
        ("max_new_tokens", lambda: generate(max_new_tokens=0)),
        ("a flat model has none", lambda: han(flat=True, sentence_encoder="softmax",
            sentence_encoder_options={"soft_cap": 2.0})),
        ("tokens of torch.int8 cannot be 299", lambda: m.corrupt(
            TEXT.to(torch.int8), mask_token=250, vocab_size=300)),
        ('padding "same" needs a stride of 1', lambda: CoordConv2d(1, 2, 3, padding="same", stride=2)),
        ("must rise, and be above 1", lambda: growth("T log T", 1, 4)),
        (r"growth: low \('a'\) must be a positive integer", lambda: growth("T", "a", 4)),
        ("its logits are no finite numbers", lambda: diverged().generate(TEXT, max_new_tokens=2)),
        *(("must be sums of products", lambda cost=cost: growth(cost, 2, 4)) for cost in (
            "2T K", "n^2", "T^(3/2)", "T^1.2.3", "T /", "T +", "")),
        *(("must have a name each", lambda odd=odd: regard.Catalog("odd", odd)) for odd in ([m.HANConfig] * 2, [3])),
        ("pass a function that makes the Mixer, such as lambda", lambda: check_mixer(MIXER)),
        (r"dtype .* must be floats of 16 bits", lambda: MultiheadAttention(MIXER, dtype=torch.int32)),
        ("least is set by the function", lambda: above("a", "b", least=1.0)),
        ("as_state: cls", lambda: regard.core.as_state(None)),
        (r"max_len \('ten'\) must be a positive", lambda: regard.build("softmax", dim=12, max_len="ten", num_heads=3)),
        (r"fnet: num_heads \(-3\)", lambda: regard.build("fnet", dim=12, num_heads=-3)),
        *(("Block: ", lambda wrong=wrong: m.Block(24, wrong.pop("mixer", MIXER), None, **wrong)) for wrong in (
            {"mixer": None}, {"norm_first": "no"}, {"dropout": -1})),
        (r"Encoder: causal \('no'\)", lambda: m.Encoder(lm().config, causal="no")),
        ("must be an EncoderDecoderConfig", lambda: m.Decoder(lm().config)),
        ("eos", lambda: generate(eos=VOCAB)),
        ("start_valid belongs to starts", lambda: transformer().generate(
            TEXT, 1, start_valid=small.ragged_targets(), max_new_tokens=1)),
        ("mlp_dim", lambda: dual(mlp_dim=1)),
        ("mask_token", lambda: m.corrupt(TEXT, mask_token=9, vocab_size=9)),
        ("multiple of patch_size", lambda: image(image_size=(5, 6))),
        (r"'s strides \(4\)", lambda: m.PatchClassifierConfig(**IMAGE, stem=((4, 2), (4, 2)))),
        ("fnet: head must be masked_language_model or classifier", lambda: published(
            "fnet", "base", head="language_model")),
        ("one summary without a query", lambda: han(pool="target_query")),
        ("one summary without a query", lambda: han(pool_options={"num_queries": 2})),
        ("must be empty: 'convolution' has none", lambda: han(
            word_encoder="convolution", word_encoder_options={"width": 3})),
        ("sentence_encoder_options must not hold dim", lambda: han(
            sentence_encoder="local", sentence_encoder_options={"dim": 3})),
        ("divisible", lambda: han(num_heads=3, word_encoder="softmax")),
        ("must be a tuple", lambda: din(history=())),
        ("'user' is not a Sequence", lambda: din(history=("user",))),
        ("no Categorical field of that name", lambda: m.DINConfig(
            fields=(*FIELDS, Sequence("h", Categorical("other", 4))), history=("h",))),
        ("takes no query", lambda: din(pool="context_query")),
        ("must not hold dim", lambda: din(pool="cross", pool_options={"num_heads": 1, "dim": 3})),
        ("two fields are called 'items'", lambda: m.LogisticRegressionConfig(
            fields=(ITEM, Numeric("items")))),
        ("share one vocabulary", lambda: m.LogisticRegressionConfig(
            fields=(ITEM, Sequence("h", Categorical("items", 10))))),
        ("fields are not known", lambda: m.LogisticRegressionConfig().build()),
        ("at least one layer", lambda: m.CompressedInteractionConfig(maps=())),
        *(("without dots", lambda odd=odd: Categorical(odd, 3)) for odd in ("a.b", "\ud800")),
        ("has one expert: num_experts is 4", lambda: mmoe(gate="none", num_experts=4)),
        ("has no options", lambda: mmoe(gate_options={"score": "dot"})),
        ("must not hold num_queries: it is num_tasks", lambda: mmoe(
            gate="attention_query", gate_options={"num_queries": 3})),
        ("pass input_dim", lambda: mmoe(input_dim=None)),
        ("one of them", lambda: mmoe(fields=FIELDS)),
        ("at least one width", lambda: mmoe(expert_dims=())),
    ],
    UnknownNameError: [
        ("Did you mean 'softmax'", lambda: lm(mixers="linear sofmax")),
        (r"preset of fnet.*Did you mean 'base'", lambda: published("fnet", "bas")),
        ("unknown preset of longformer", lambda: published("longformer", [1])),
    ],
    UnsupportedError: [
        ("fnet does not support causal: ", lambda: lm(mixer="fnet")),
        ("it is bidirectional", lambda: classifier().encoder.initial_state(2)),
        ("linear does not support alibi positions", lambda: classifier(
            mixer="linear", position="alibi")),
        ("fnet does not support causal", lambda: transformer(decoder_mixer="fnet")),
        ("local does not support cross", lambda: transformer(cross_mixer="local")),
        ("does not support streaming", lambda: transformer(cross_mixer="linformer")),
        ("depends on how many queries", lambda: transformer(cross_mixer="transformer_xl")),
        ("a slot mixes the channels", lambda: transformer(
            cross_mixer="compressed").cross_attention(TEXT, START)),
        ("gau does not support residual='reversible'", lambda: reformer(mixer="gau")),
        ("sinkhorn does not support global_tokens", lambda: published(
            "longformer", mixer="sinkhorn")),
        ("no pixel is padding", lambda: image()(
            torch.zeros(3, 24).long(), valid=torch.ones(3, 24).bool())),
        ("transformer_xl does not support documents", lambda: xl()(TEXT, documents=TEXT)),
        (r"transformer\(.* does not support documents", lambda: transformer().extend(
            START, transformer().initial_state(TEXT), documents=START)),
    ],
    ShapeError: [
        ("has columns for 0 to 8 tokens", lambda: LengthProjection(8, 3)(9)),
        ("tokens are on meta, the model on cpu", lambda: lm()(TEXT.to("meta"))),
        (r"length \(41\) exceeds max_len \(40\)", lambda: LEARNED[0](prompts(41))),
        (r"documents must be int64 or int32 \[3, 7\]", lambda: lm()(TEXT, documents=TEXT[:, 1:])),
        ("again after a gap", lambda: lm()(TEXT, documents=TEXT * 0 + torch.arange(7) % 2)),
        ("came without documents", lambda: lm().extend(
            TEXT, lm().extend(TEXT, lm().initial_state(3))[1], documents=TEXT * 0)),
        ("state must be a mixer's or a model's", lambda: m.reorder(TEXT, START[:, 0])),
        (r"x must be a tensor \[B, T, 24\], got list", lambda: MIXER.extend_normed([1], None, None)),
        ("must be slices, got 1", lambda: regard.Mask(causal=True).dense(3, 3, cols=1)),
        ("without any valid token", lambda: generate(valid=torch.zeros(3, 7).bool())),
        ("target has batch 2, the source 3", lambda: transformer()(TEXT, START[:2])),
        (r"target length \(9\) exceeds max_len \(8\)", lambda: LEARNED[1](TEXT, targets(9))),
        ("prompt of 6 tokens", lambda: LEARNED[1].generate(TEXT, START, max_new_tokens=4)),
        ("outside the vocabulary", lambda: transformer().generate(TEXT, VOCAB, max_new_tokens=1)),
        (STATE, lambda: lm().extend(TEXT, lm(num_layers=3).initial_state(3))),
        (STATE, lambda: xl().extend(TEXT, xl(mem_len=5).initial_state(3))),
        (STATE, lambda: transformer().extend(
            START, transformer(decoder_layers=1).initial_state(TEXT))),
        ("for a batch of 2", lambda: transformer().extend(
            START[:2], transformer().initial_state(TEXT))),
        (STATE, lambda: xlnet().extend(TEXT, xlnet(num_layers=3).initial_state(3), order=ORDER)),
        (STATE, lambda: xlnet().extend(TEXT, xlnet(dim=4).initial_state(3), order=ORDER)),
        ("order holds a rank below -1: ranks start at 0", lambda: xlnet()(TEXT, order=ORDER - 7)),
        ("predicts more tokens than num_predict=2", lambda: xlnet(num_predict=2)(
            TEXT, order=ORDER)),
        ("first has batch 3, second 2", lambda: m.XLNetMatcherConfig(
            **SIZES, num_classes=2).build()(TEXT, TEXT[:2])),
        ("first has batch 3, second 2", lambda: dual()(TEXT, TEXT[:2])),
        ("23 pixels, and an image has 24", lambda: image()(torch.zeros(1, 23).long())),
        ("outside the vocabulary", lambda: image(vocab_size=9)(torch.full((1, 24), 9))),
        (r"images must be \[B, 1, 4, 6\]", lambda: image().read(torch.zeros(1, 1, 6, 4))),
        (r"images must be \[B, 1, 4, 6\], got None", lambda: image().read(None)),
        (r"images must be \[B, 1, 4, 6\]", lambda: image().read(torch.zeros(1, 1, 4, 6).to_sparse())),
        ("images has dtype torch.int64, the module", lambda: image().read(
            torch.zeros(1, 1, 4, 6).long())),
        *(("pad_documents: documents must be lists of sentences", lambda x=x: m.pad_documents(x))
          for x in ([[1, 2]], "ab", [[[1.5]]], [[[[1]]]])),
        ("histories must be aligned", lambda: din().double()(
            BATCH | {"shops": BATCH["shops"][:, :2]})),
        *((r"counts of 'items' must be a dense tensor \[9\]", lambda odd=odd: counts(items=odd)) for odd in (
            [1, 2], torch.ones(8), torch.ones(9).to_sparse(), torch.ones(9, device="meta"), torch.ones(9) * 1j)),
        ("got None", lambda: din().double().batch_l2(BATCH, None)),
        (r"x must be a dense tensor \[B, 4\]", lambda: mmoe()(VECTORS[:, 1:])),
        (r"x must be a dense tensor \[B, 4\]", lambda: mmoe()(VECTORS.to_sparse())),
        ("mmoe: x has dtype torch.int64, the module", lambda: mmoe()(VECTORS.long())),
    ],
}  # fmt: skip


@pytest.mark.parametrize("error, said, call", [(e, *row) for e in REFUSED for row in REFUSED[e]])
def test_is_refused(error, said, call):
    with pytest.raises(error, match=said):
        call()


def test_what_looks_alike_is_served():
    assert lm()(prompts(41)).shape == (3, 41, VOCAB)
    assert torch.equal(lm()(TEXT.int()), lm()(TEXT))
    renamed = type("Renamed", (m.ClassifierConfig,), {"name": "renamed"})  # in no catalogue
    assert isinstance(renamed(**STACK, num_classes=2).build(), m.Classifier)
    options = {"mixer": regard.MIXERS["linear"], "num_heads": 2}
    assert din(pool="cross", pool_options=options).pool.mixer.dim == 6
    config = {"word_encoder": "local", "word_encoder_options": {"window_size": 3}}
    assert han(**config).words.block.mixer.options["window_size"] == 3
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert mmoe()(VECTORS.bfloat16()).shape == (2, 1)
    model, valid = xlnet().eval(), torch.arange(7) < torch.tensor([[7], [5], [3]])
    wrong = ORDER.masked_fill(~valid, -7)
    wanted = model(TEXT, order=ORDER, valid=valid)
    assert torch.equal(model(TEXT, order=wrong, valid=valid)[valid], wanted[valid])
    assert counts() > 0
    assert torch.equal(generate(temperature=1e-60), generate())
