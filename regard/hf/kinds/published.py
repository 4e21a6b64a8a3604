"""Performer and Linformer in the layouts of the PyTorch packages that brought them: performer-pytorch and linformer.

Neither has a config file: the config is `model_type` and the arguments of `PerformerLM` or `LinformerLM`.
"""

from typing import Any

from torch import nn

from regard.hf.stack import Stack, TokenEmbedding
from regard.hf.weights import LoadRequest, linear, make_block, make_mixer
from regard.nn.length_projection import LengthProjection

EPS = 1e-5


def linformer(request: LoadRequest) -> Stack:
    """LinformerLM: learned positions, one E and one F for all heads (with share_kv one matrix and one projection)."""
    w, c = request.weights, request.config
    for name in ("reversible", "one_kv_head"):
        request.require(name, False)
    layer = "linformer.net.layers.0."
    shapes = {"token_emb.weight": "num_tokens dim", "pos_emb.weight": "seq_len"}
    shapes |= {f"{layer}0.fn.to_q.weight": "heads*dim_head", f"{layer}0.fn.proj_k": "seq_len k"}
    request.agree("", shapes)
    max_len, shared = c["seq_len"], c.get("share_kv", False)
    blocks = []
    for i in range(c["depth"]):
        attention, feed = (f"linformer.net.layers.{i}.{n}" for n in range(2))
        parts = "q", "k", "k" if shared else "v", "out"
        E = w[f"{attention}.fn.proj_k"]
        mixer = make_mixer(
            "linformer",
            c["dim"],
            c.get("heads", 8),
            w.linears(f"{attention}.fn.to_{{}}", parts),
            max_len=max_len,
            num_slots=E.shape[1],
            sharing="key_value" if shared else "headwise",
        )
        project: Any = mixer.project
        heads: Any = mixer.heads
        heads.value = heads.key if shared else heads.value
        assert isinstance(project, LengthProjection)
        projections = {"key": E.T[None]}
        if not shared:
            projections["value"] = w[f"{attention}.fn.proj_v"].T[None]
        project.load_state_dict(projections)
        blocks.append(_block(request, mixer, f"{attention}.norm", f"{feed}.norm", f"{feed}.fn"))
    embedding = TokenEmbedding(w.embedding("token_emb"), place=w.embedding("pos_emb"))
    return Stack(embedding, blocks, head=w.linear("to_logits"))


SETTINGS = (
    "reversible",
    "use_scalenorm",
    "use_rezero",
    "ff_glu",
    "cross_attend",
    "no_projection",
    "axial_position_emb",
    "shift_tokens",
)


def performer(request: LoadRequest) -> Stack:
    """PerformerLM. Unlike the package: 1e-6 is added to features for 1e-4; in causal order nothing is, not even to sums of keys,
    and the stabiliser is strict."""
    w, c = request.weights, request.config
    for name in SETTINGS:
        request.require(name, False)
    request.require("local_attn_heads", 0)
    layer = "performer.net.layers.0."
    shapes = {
        "token_emb.weight": "num_tokens dim",
        "pos_emb.emb": "max_seq_len",
        "pos_emb.emb.weight": "max_seq_len",
        f"{layer}0.fn.to_q.weight": "heads*dim_head",
        f"{layer}0.fn.fast_attention.projection_matrix": "nb_features",
        f"{layer}1.fn.fn.w1.weight": "dim*ff_mult",
    }
    request.agree("", shapes)
    causal, rotary = c.get("causal", False), c.get("rotary_position_emb", True)
    general = c.get("generalized_attention", False)
    blocks = []
    for i in range(c["depth"]):
        attention, feed = (f"performer.net.layers.{i}.{n}" for n in range(2))
        features = w[f"{attention}.fn.fast_attention.projection_matrix"]
        mixer = make_mixer(
            "performer",
            c["dim"],
            c["heads"],
            w.linears(f"{attention}.fn.to_{{}}", ("q", "k", "v", "out")),
            num_features=len(features),
            features="relu" if general else "positive",
            stabiliser="strict" if causal or general else "published",
            redraw_every=c.get("feature_redraw_interval", 1000),
            **(
                {"position": "rotary", "position_options": {"pairing": "adjacent"}}
                if rotary
                else {}
            ),
        )
        projection: Any = mixer.projection
        projection.w.copy_(features)
        blocks.append(_block(request, mixer, f"{attention}.norm", f"{feed}.norm", f"{feed}.fn.fn"))
    word = w.embedding("token_emb")
    if rotary:
        w.left.discard("layer_pos_emb.emb")
        place = nn.Embedding.from_pretrained(w["pos_emb.emb"])  # sinusoids
    else:
        place = w.embedding("pos_emb.emb")
    again = "performer.proj_updater."  # a counter, and every layer under a second name
    w.left -= {name for name in w.left if name.startswith(again)}
    head = linear(word.weight) if c.get("tie_embed", False) else w.linear("to_out")
    if c.get("tie_embed", False):
        head.weight = word.weight
    norm = w.layer_norm("norm", EPS)
    return Stack(TokenEmbedding(word, place=place), blocks, norm=norm, head=head, causal=causal)


def _block(request: LoadRequest, mixer: Any, mixer_norm: str, norm: str, feed_forward: str) -> Any:
    w = request.weights
    made = w.feed_forward("gelu", f"{feed_forward}.w1", f"{feed_forward}.w2")
    norms = (w.layer_norm(name, EPS) for name in (mixer_norm, norm))
    return make_block(mixer, next(norms), made, next(norms), norm_first=True)
