"""Reformer as Transformers computes it (Kitaev et al. 2020, arXiv 2001.04451), which is not how `reformer` does.

The chunks of all rounds are one ring, so that the first looks back at the last; every key of the two chunks counts,
whatever its bucket, and as often as a round offers it; keys are normalised with 1e-6 under the root; local layers are
chunks too. A row of up to one chunk is attended as a whole. A row's chunks count its own tokens, so that padding is as
if absent; Transformers counts the padded length, which is the same where padding fills no chunk.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.core import Capabilities, Mixer, No, Observation, StoredDataError
from regard.core.errors import shown
from regard.core.memory import SMALL
from regard.functional.lsh import angular_hash
from regard.functional.rows import take_each
from regard.hf.stack import AxialTable, ReversibleStack, Stack, TokenEmbedding
from regard.hf.weights import LoadRequest, linear
from regard.nn.heads import Heads

HIDDEN, ONESELF = -1e9, -1e5
"""Scores of what may not be seen, and of the token itself, which is seen where nothing else is."""


class ChunkMixer(Mixer):
    """Sorted tokens in chunks, each of which sees its own and those around it. Hashed where there are rotations, else local."""

    name = "reformer_chunks"
    family = "hashed"
    paper = "Kitaev et al. 2020, arXiv 2001.04451"
    capabilities = Capabilities(
        causal=No(
            "the published form is causal or not as a whole, and chunks move with later tokens"
        ),
        pairwise=No("pairs are those of chunks"),
        global_tokens=No("the published layers have none"),
        cross=No("chunks are those of one sequence"),
        streaming=No("later tokens move the borders of chunks"),
        attention_map=True,
        positions=frozenset({"absolute"}),
        approximates="softmax",
        time="R T W H K",
        memory="T D",
    )

    rotations: Tensor | None

    def __init__(
        self,
        projections: Heads,
        *,
        size: int,
        around: range,
        causal: bool,
        whole: int,
        multiple: int,
        factors: tuple[int, ...] = (),
        rotations: Float[Tensor, "R H K n"] | None = None,
    ):
        """size: tokens of a chunk. around: the chunks that are seen, counted from the own one. whole: the longest row that is
        not padded to a `multiple`. rotations: of all factors of the number of buckets, half of each, side by side."""
        super().__init__(projections.query.in_features)
        self.projections, self.size, self.around, self.one_way = projections, size, around, causal
        self.whole, self.multiple, self.factors = whole, multiple, factors
        self.register_buffer("rotations", rotations)

    def mix(self, x, context, mask):
        q, k, v, groups = self._split(x)
        return self.projections.merge(self._attend(q, k, v, groups, mask.valid))

    def _observe(self, x, context, mask):
        q, k, v, groups = self._split(x)
        T = x.shape[1]
        each = torch.eye(T, dtype=v.dtype, device=v.device).expand(*v.shape[:2], T, T)
        weights = self._attend(q, k, each, groups, mask.valid)
        return Observation(q, k, v, weights, weights @ v)

    def _split(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Int[Tensor, "B H R T"]]:
        """Queries, scaled keys, values, and the group of each token, by which rounds sort."""
        q, v = self.projections.queries(x), self.projections.values(x)
        if self.rotations is None:
            k, groups = self.projections.keys(x), torch.zeros_like(q[:, :, None, :, 0]).long()
        else:
            k = q * (q.square().mean(-1, keepdim=True) + 1e-6).rsqrt()
            each = self.rotations.split([n // 2 for n in self.factors], dim=-1)
            groups = angular_hash(q, list(each))
        return q, k / math.sqrt(q.shape[-1]), v, groups

    def _attend(
        self, q: Tensor, k: Tensor, v: Tensor, groups: Tensor, valid: Tensor | None
    ) -> Float[Tensor, "B H T V"]:
        """Rows of one length at a time: each is cut into the chunks that it has alone."""
        if valid is None:
            return self._of_length(q, k, v, groups)
        y, length = torch.zeros_like(v), valid.sum(1)
        for n in filter(None, length.unique().tolist()):
            rows = length == n
            near = (rows, slice(None), slice(n))
            y[near] = self._of_length(q[near], k[near], v[near], groups[rows, ..., :n])
        return y

    def _of_length(
        self, q: Tensor, k: Tensor, v: Tensor, groups: Int[Tensor, "B H R T"]
    ) -> Float[Tensor, "B H T V"]:
        T, size, around = q.shape[2], self.size, self.around
        # Transformers pads what is longer than its smallest chunk to a multiple of all of them
        room = -T % self.multiple if T > self.whole else 0
        if T + room <= size:
            room, size, around, groups = 0, T, range(1), groups[:, :, :1] * 0
        token = F.pad(groups, (0, room), value=2**62).sort(dim=-1, stable=True).indices
        rows = token.flatten(2).unflatten(2, (-1, size))  # of all rounds: one ring of chunks
        seen = torch.cat([rows.roll(-step, 2) for step in around], dim=-1)
        q, k, v = (F.pad(z, (0, 0, 0, room)) for z in (q, k, v))
        scores = take_each(q, rows) @ take_each(k, seen).mT
        query, key = rows[..., None], seen[..., None, :]
        hidden = (key >= T) | (key > query) if self.one_way else key >= T
        scores = scores.masked_fill(hidden, HIDDEN)
        if self.rotations is not None:
            scores = scores.masked_fill(query == key, ONESELF)
        mass = scores.logsumexp(-1, keepdim=True)
        mixed = (scores - mass).exp() @ take_each(v, seen)
        place = token.argsort(dim=-1)[..., None]  # the rank of each token

        def back(z: Float[Tensor, "B H N C E"]) -> Float[Tensor, "B H R T E"]:
            z = z.flatten(2, 3).unflatten(2, token.shape[2:])
            return z.take_along_dim(place, dim=3)[..., :T, :]

        return (back(mass).softmax(dim=2) * back(mixed)).sum(2)


SHAPES = {
    "embeddings.word_embeddings.weight": "vocab_size hidden_size",
    "embeddings.position_embeddings.embedding.weight": "max_position_embeddings",
    "encoder.layers.0.attention.self_attention.value.weight": "num_attention_heads*attention_head_size",
    "encoder.layers.0.feed_forward.dense.dense.weight": "feed_forward_size",
}
NAMES = (
    "attention.layer_norm",
    "feed_forward.layer_norm",
    "feed_forward.dense.dense",
    "feed_forward.output.dense",
)


def reformer(request: LoadRequest) -> Stack:
    """Hashes are drawn once, from `hash_seed` or from 0, where Transformers draws them anew at every call without a seed."""
    w, c = request.weights, request.config
    at, norm = w.prefix("reformer."), w.norms(nn.LayerNorm, c["layer_norm_eps"])
    kinds = c["attn_layers"]
    if c.get("num_hidden_layers", len(kinds)) != len(kinds):
        raise StoredDataError(
            f"load: num_hidden_layers={shown(c['num_hidden_layers'])} contradicts attn_layers={shown(kinds)}"
        )
    request.agree(at, SHAPES)
    sizes = {kind: c[f"{kind}_attn_chunk_length"] for kind in sorted(set(kinds))}
    blocks = []
    for i, kind in enumerate(kinds):
        layer = f"{at}encoder.layers.{i}"
        attention = f"{layer}.attention.self_attention"
        heads = Heads(1, c["num_attention_heads"], head_dim=c["attention_head_size"])
        heads.query = w.linear(f"{attention}.{'query_key' if kind == 'lsh' else 'query'}")
        heads.key = None if kind == "lsh" else w.linear(f"{attention}.key")
        heads.value = w.linear(f"{attention}.value")
        heads.out = w.linear(f"{layer}.attention.output.dense")
        if c["is_decoder"]:
            request.require(f"{kind}_num_chunks_after", 0)
        mixer = ChunkMixer(
            heads,
            size=sizes[kind],
            around=range(-c[f"{kind}_num_chunks_before"], c[f"{kind}_num_chunks_after"] + 1),
            causal=c["is_decoder"],
            whole=min(sizes.values()),
            multiple=math.lcm(*sizes.values()),
            **(_hashes(request) if kind == "lsh" else {}),
        )
        blocks.append(request.block(mixer, norm, layer, NAMES, norm_first=True))
    word = w.embedding(f"{at}embeddings.word_embeddings")
    head = linear(w["lm_head.decoder.weight"]) if "lm_head.decoder.weight" in w else None
    w.left.discard("lm_head.bias")  # Transformers has it and does not add it
    return ReversibleStack(
        TokenEmbedding(word, place=_places(request, at)),
        blocks,
        norm=norm(f"{at}encoder.layer_norm"),
        head=head,
    )


def _places(request: LoadRequest, at: str) -> nn.Embedding | AxialTable:
    w, c = request.weights, request.config
    name = f"{at}embeddings.position_embeddings"
    if not c["axial_pos_embds"]:
        return w.embedding(f"{name}.embedding")
    first, second = (w[f"{name}.weights.{n}"] for n in range(2))
    for field, a, b in (("axial_pos_shape", 0, 1), ("axial_pos_embds_dim", 2, 2)):
        found = first.shape[a], second.shape[b]
        request.require(field, list(found), found)
    return AxialTable(first.flatten(0, -2), second.flatten(0, -2))


def _hashes(request: LoadRequest) -> dict[str, Any]:
    c = request.config
    factors = c["num_buckets"] or _num_buckets(c)
    factors = (factors,) if isinstance(factors, int) else tuple(factors)
    generator = torch.Generator().manual_seed(c["hash_seed"] or 0)
    shape = (c["num_attention_heads"], c["attention_head_size"], c["num_hashes"], sum(factors) // 2)
    held = request.weights.tensors.values()
    if math.prod(shape) > SMALL + sum(map(torch.numel, held)):
        raise StoredDataError(
            f"load: num_hashes={c['num_hashes']} and num_buckets={shown(factors)} take more numbers than this reformer has"
        )
    dtype = next(iter(held)).dtype
    drawn = torch.randn(shape, dtype=dtype, generator=generator)
    return {"factors": factors, "rotations": drawn.permute(2, 0, 1, 3).contiguous()}


def _num_buckets(c: Any) -> int | tuple[int, int]:
    """The number that Transformers sets at the first call, for the longest input: a power of two, two buckets for each chunk."""
    chunks = c["max_position_embeddings"] // c["lsh_attn_chunk_length"]
    power = (2 * chunks).bit_length() - 1
    if 2**power > 2 * max(int(chunks**0.5), c["lsh_attn_chunk_length"]):
        return 2 ** (power // 2), 2 ** (power - power // 2)
    return 2**power
