"""Options of mixers that mean nothing, or contradict each other: each refusal names the option, and says what to do."""

from functools import partial

import pytest
import torch

from regard import Mask, OptionError, ShapeError, UnknownNameError, UnsupportedError, build
from regard.functional import favor_attention, relative_attention
from regard.functional.patterns import All, Block, Scattered
from regard.functional.relative import Segments, Terms
from regard.mixers import HeadGroup
from regard.nn import LengthProjection
from regard.testing.subject import normal
from tests.refused import assert_refused

TABLE = torch.zeros(3, 4, 1, dtype=torch.long)
NO_BOUND, HEADS = {"max_len": None}, {"position_options": {"num_heads": 1}}
SCANS = ("gated_delta", "kimi_delta", "gated_linear", "scalar_decay")


def shared(max_len):
    return {"sharing": "layerwise", "projection": LengthProjection(max_len, 5)}


def groups(*given):
    return {"groups": given}


OPTIONS = [
    ("differential", {"num_kv_heads": 2, "form": "v1"}, "divisible"),
    ("fixed_patterns", {"patterns": ("left",) * 4}, "4 patterns need as many heads"),
    ("gau", {"scale": "paper"} | NO_BOUND, "needs max_len"),
    ("gau", {"key_dim": 7}, "must be even"),
    ("gated_linear", {"lower_bound": 0.5}, "lower_bound"),
    ("gated_linear", {"lower_bound": 1.0, "form": "hgrn2"}, "lower_bound"),
    ("head_groups", groups(HeadGroup("local", 2)), "have 2 heads, and num_heads is 3"),
    ("head_groups", groups("local"), "must be a sequence of HeadGroups"),
    ("head_groups", groups(HeadGroup("local", 3, {"dim": 4})), "must not hold dim"),
    ("head_groups", groups(HeadGroup("softmax", 3, {"num_kv_heads": 1})), "heads of keys"),
    ("head_groups", groups(HeadGroup("softmax", 3, {"head_dim": 5})), "8 channels each"),
    ("head_mix", {"patterns": [All()] * 2}, "2 patterns for 3 heads"),
    ("head_mix", {"patterns": ["local"]}, "must be a Pattern, a sequence of Patterns or None"),
    ("head_mix", {"patterns": Block(3, 1) | Scattered(3, TABLE)}, "bigbird"),
    ("indexed", {"block_size": 2, "index_heads": 4}, "one for each head of keys"),
    ("indexed", {"position": "rotary", "index_dim": 5}, "must be even"),
    ("kimi_delta", {"least_decay": 0.0}, "below 0"),
    ("latent", {"rotary_dim": 3}, "must be even"),
    ("linformer", {"sharing": "layerwise"}, "go together"),
    ("linformer", {"projection": LengthProjection(64, 5)}, "go together"),
    ("linformer", {"projection": "max"}, "a LengthProjection, 'mean' or None"),
    ("linformer", {"projection": "mean", "sharing": "key_value"}, "nothing to share"),
    ("linformer", shared(12), r"max_len \(64\) exceeds"),
    ("linformer", {**shared(64), "num_slots": 4}, r"num_slots \(4\)"),
    ("local", {"head_dim": 5, "position": "rotary"}, r"so head_dim \(5\) must be even"),
    ("longformer", {"dilation": (1, 2)}, "2 dilations for 3 heads"),
    ("luong_local", {"alignment": "local-p"}, r"alignment .* must be one of"),
    ("luong_local", {"renormalise": True}, "renormalise needs alignment='predictive'"),
    ("nystrom", {"conv_size": 4}, "must be odd"),
    ("performer", {"features": "cosine"}, r"features .* must be"),
    ("performer", {"features": torch.square, "stabiliser": "published"}, "has no stabiliser"),
    ("performer", {"features": "relu", "stabiliser": "published"}, "has no stabiliser"),
    ("reformer", NO_BOUND, "max_len"),
    *(("reformer", {"num_buckets": odd}, "even") for odd in (3, ())),
    *(("softmax", {"position": kind, **HEADS}, "it is the model's") for kind in ("alibi", "t5")),
    ("rfa", {"pool_size": 2}, "pool_size"),
    ("rfa", {"gate_bias": 1.0}, "gate=True"),
    *((name, {"dim": 25}, "divisible") for name in SCANS),
    ("scalar_decay", {"key_dim": 5}, "channels in pairs"),
    ("sinkhorn", {"block_size": 4} | NO_BOUND, "max_len"),
    ("sinkhorn", {"sort_cut": 2, "mixture": True}, "sort_cut"),
    ("softmax", {"position_options": {"base": 100.0}}, "without a position"),
    ("softmax", {"sinks": True, "shared_qk": True}, "takes one of sinks and shared_qk"),
    ("softmax", {"dim": 15, "position": "rotary"}, r"dim / num_heads \(5\) must be even"),
    ("strided", {"kind": "comb"}, "kind"),
    ("strided", {"summary_width": 2}, "summary_width belongs"),
    ("transformer_xl", {"mem_len": 0}, r"mem_len \(0\)"),
    ("transformer_xl", {"clamp_len": -1}, r"clamp_len \(-1\)"),
]
TYPES = [
    ("softmax", {"bias": "zz"}, r"bias \('zz'\) must be True or False"),
    ("softmax", {"dropout": 1.0}, r"dropout \(1\.0\) must be at least 0 and below 1"),
    ("softmax", {"num_heads": 10**13}, "must be a positive integer of at most 2147483647"),
    ("softmax", {"impl": 3}, r"impl \(3\) must be a name or a Form"),
    ("bigbird", {"seed": -1}, r"seed \(-1\) must be an integer of at least 0"),
    ("bigbird", {"num_external": -1}, r"num_external \(-1\) must be an integer of at least 0"),
    ("sinkhorn", {"temperature": 0}, r"temperature \(0\) must be greater than 0"),
    ("routing", {"decay": 2}, r"decay \(2\) must be from 0 to 1"),
]
T5 = {"position": "t5", "position_options": {"buckets": 3}}
NAMES = [
    ("fixed_patterns", {"patterns": ("previos",)}, "Did you mean 'previous'"),
    ("mixture", {"members": ("synthesiser_dense",)}, "Did you mean 'synthesizer_dense'"),
    ("softmax", {"impl": "plian"}, r"unknown impl 'plian'\. Did you mean 'plain'\?"),
    ("softmax", {"position": "rotray"}, "Did you mean 'rotary'"),
    ("softmax", T5, "option of t5 'buckets'"),
]
CAUSAL, CROSS = {"mask": Mask(causal=True)}, {"context": torch.zeros(1, 3, 24)}
PAIRS = {"mask": Mask(pairwise=torch.ones(1, 1, 4, 4, dtype=torch.bool))}
REQUESTS = [
    ("efficient", {"normaliser": "scaling"}, CAUSAL, "number of all keys"),
    ("forgetting", {}, {}, "tokens after it"),
    ("head_groups", {}, CROSS, "its local heads: a pattern needs"),
    ("indexed", {"block_size": 2}, CROSS, "none in a context"),
    ("moba", {}, PAIRS, "mean of all its keys"),
    ("native_sparse", {}, {}, "end at the query"),
    *((name, {}, {}, "order of the tokens") for name in SCANS),
    ("performer", {"stabiliser": "published"}, CAUSAL, "maximum over all positions"),
    ("rfa", {"gate": True}, {}, "order of the tokens"),
    ("softmax", {"soft_cap": 2.0, "impl": "fused"}, {}, "it does not cap scores"),
    ("softmax", {"position": "alibi"}, CROSS, "queries and keys on one axis"),
    ("transformer_xl", {"same_length": True}, {}, "does not support bidirectional: same_length"),
]
KINDS = [
    ("head_groups", groups(HeadGroup("fnet", 3)), "not made of queries, keys and values"),
    ("head_groups", groups(HeadGroup("softmax", 3, {"shared_qk": True})), "made from its queries"),
    ("head_groups", groups(HeadGroup("softmax", 3, {"bias": True})), "its projections have biases"),
    ("local", {"position": "alibi"}, "local does not support alibi positions"),
]
OPTIONS += [(name, options, f"^{name}: .*{words}") for name, options, words in TYPES]
CASES = {OptionError: OPTIONS, UnknownNameError: NAMES, UnsupportedError: KINDS}


@pytest.mark.parametrize(
    "error, name, given, words", [(e, *row) for e in CASES for row in CASES[e]]
)
def test_what_does_not_fit_is_refused(error, name, given, words):
    with pytest.raises(error, match=words):
        build(name, **{"dim": 24, "num_heads": 3, "max_len": 64} | given)


@pytest.mark.parametrize(("name", "options", "request_", "words"), REQUESTS)
def test_what_an_option_takes_away_is_refused(name, options, request_, words):
    mixer = build(name, dim=24, num_heads=3, **options)
    with pytest.raises(UnsupportedError, match=words):
        mixer(torch.zeros(1, 4, 24), **request_)


def test_what_transformer_xl_and_the_published_stabiliser_cannot_do_is_refused():
    xl = partial(build, "transformer_xl", dim=24, num_heads=3)
    plain, mixer = (xl(segments=z).double() for z in (False, True))
    x, one, wrong = normal(2, 13, 24), torch.zeros(2, 13).long(), torch.zeros(2, 12).long()
    mask, said = Mask(valid=one == 0), r"key_segment must be integers \[2, 13\], got"
    q, w = torch.zeros(1, 1, 4, 8), torch.zeros(1, 5, 8)
    published = partial(favor_attention, q, q, q, w, stabiliser="published")
    assert_refused(
        (UnsupportedError, "streaming over a context", lambda: mixer.initial_state(2, context=x)),
        (UnsupportedError, "built without a segment term", lambda: plain.relate(x, one, one)),
        (UnsupportedError, "Hide what is absent by", lambda: mixer.relate(x, one, one, mask=mask)),
        (ShapeError, said, lambda: mixer.relate(x, one, wrong)),
        (UnsupportedError, "its maximum over all keys looks ahead", partial(published, **CAUSAL)),
    )


def test_segments_that_do_not_fit_are_named():
    q, s, b, one = normal(2, 3, 6, 4), normal(2, 3, 4), normal(3, 4), torch.zeros(2, 6).long()
    terms = Terms(normal(11, 3, 4), normal(3, 4), normal(3, 4), Segments(one, one, s, b))
    relative_attention(q, q, q, terms=terms)
    odd = [("key", one[:, 1:]), ("query", one[:1]), ("s", s[:1]), ("b", b[:, :1]), ("key", None)]
    for name, value in odd:
        segments = terms.segments._replace(**{name: value})
        with pytest.raises(ShapeError, match=f"segments: {name}"):
            relative_attention(q, q, q, terms=terms._replace(segments=segments))
