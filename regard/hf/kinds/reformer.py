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
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.core import Capabilities, Mixer, No, Observation, StoredDataError
from regard.hf.stack import AxialTable, ReversibleStack, Stack, TokenEmbedding
from regard.hf.weights import LoadRequest, linear, make_block, make_feed_forward
from regard.nn.heads import Heads

HIDDEN, ONESELF = -1e9, -1e5
"""Scores of what may not be seen, and of the token itself, which is seen where nothing else is."""


class ChunkMixer(Mixer):
    """Base of hashed and local layers: sorted tokens in chunks, each of which sees its own and those around it."""

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

    def __init__(
        self,
        dim: int,
        projections: Heads,
        *,
        chunks: "Chunks",
        causal: bool,
        whole: int,
        multiple: int,
    ):
        super().__init__(dim)
        self.projections, self.chunks = projections, chunks
        self.one_way, self.whole, self.multiple = causal, whole, multiple

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
        raise NotImplementedError

    def _attend(
        self, q: Tensor, k: Tensor, v: Tensor, groups: Tensor, valid: Tensor | None
    ) -> Float[Tensor, "B H T V"]:
        B, H, R, T = groups.shape
        size = self.chunks.size
        length = torch.full((B,), T, device=q.device) if valid is None else valid.sum(1)
        # Transformers pads what is longer than its smallest chunk to a multiple of all of them
        padded = torch.where(length > self.whole, _up(length, self.multiple), length)
        whole = padded <= size
        count = (-(-padded // size)).clamp(min=1)
        most = max(int(count.max()), 1)
        room = most * size - T
        if room < 0:  # no row is so long
            q, k, v = (z[:, :, : most * size] for z in (q, k, v))
            groups = groups[..., : most * size]
        here = torch.arange(most * size, device=q.device) < length[:, None]
        groups = torch.where(whole[:, None, None, None], 0, F.pad(groups, (0, max(room, 0))))
        groups = torch.where(here[:, None, None], groups, torch.iinfo(torch.long).max)
        token = groups.sort(dim=-1, stable=True).indices  # of each rank
        q, k, v = (F.pad(z, (0, 0, 0, max(room, 0))) for z in (q, k, v))
        rows = token.reshape(B, H, R * most, size)
        near = self._near(count, whole, R, most)
        around, seen = _gather(rows, near), near[..., None].expand(-1, -1, -1, size).flatten(2) >= 0
        keys, values = (_of_rows(z, around) for z in (k, v))
        scores = _of_rows(q, rows) @ keys.transpose(-1, -2)
        allowed = here[:, None, None].expand(B, H, R * most, -1).gather(3, around)
        allowed = (allowed & seen[:, None]).unsqueeze(3)
        if self.one_way:
            allowed = allowed & (rows[..., None] >= around[..., None, :])
        scores = scores.masked_fill(~allowed, HIDDEN)
        if self.chunks.excludes_self:
            scores = scores.masked_fill(rows[..., None] == around[..., None, :], ONESELF)
        scores = scores.masked_fill(~seen[:, None, :, None], -math.inf)
        mass = scores.logsumexp(-1, keepdim=True)
        mixed = ((scores - mass).exp() @ values).reshape(B, H, R, most * size, -1)
        mass = mass.reshape(B, H, R, most * size, 1)
        place = token.argsort(dim=-1)[..., None]  # the rank of each token
        mixed = mixed.gather(3, place.expand_as(mixed))
        share = mass.gather(3, place).softmax(dim=2)
        y = (share * mixed).sum(2)
        return y[:, :, :T] if room >= 0 else F.pad(y, (0, 0, 0, -room))

    def _near(
        self, count: Int[Tensor, "B"], whole: Bool[Tensor, "B"], R: int, most: int
    ) -> Int[Tensor, "B N W"]:
        """The chunks that each chunk sees, of the ring of a row's own chunks in all rounds; -1 for none."""
        chunk = torch.arange(R * most, device=count.device)
        r, c, N = chunk // most, chunk % most, count[:, None]
        parts = []
        for step in range(-self.chunks.before, self.chunks.after + 1):
            ring = (r * N + c + step) % (R * N)
            near = ring // N * most + ring % N
            if step:
                near = torch.where(whole[:, None], -1, near)
            parts.append(torch.where(c < N, near, chunk if step == 0 else -1))
        return torch.stack(parts, dim=2)


class Chunks:
    """Tokens of a chunk, how many chunks before and after it are seen, and whether a token sees itself only in need."""

    def __init__(self, size: int, before: int, after: int, *, excludes_self: bool):
        self.size, self.before, self.after = size, before, after
        self.excludes_self = excludes_self


class HashedChunks(ChunkMixer):
    name = "reformer_lsh"
    rotations: Tensor

    def __init__(
        self,
        dim: int,
        projections: Heads,
        *,
        factors: tuple[int, ...],
        rotations: Tensor,
        **rest: Any,
    ):
        super().__init__(dim, projections, **rest)
        self.factors = factors
        self.register_buffer("rotations", rotations)  # [H K R n/2], all factors side by side

    def _split(self, x):
        q, v = self.projections.queries(x), self.projections.values(x)
        width = q.shape[-1]
        k = q * (q.square().mean(-1, keepdim=True) + 1e-6).rsqrt() / math.sqrt(width)
        return q, k, v, self._hash(q.detach())

    def _hash(self, q: Tensor) -> Int[Tensor, "B H R T"]:
        turned = torch.einsum("bhtk,hkrn->bhrtn", q, self.rotations)
        bucket, scale = torch.zeros_like(turned[..., 0], dtype=torch.long), 1
        for part, n in zip(
            turned.split([n // 2 for n in self.factors], dim=-1), self.factors, strict=True
        ):
            bucket = bucket + scale * torch.cat([part, -part], dim=-1).argmax(-1)
            scale *= n
        return bucket


class LocalChunks(ChunkMixer):
    name = "reformer_local"

    def _split(self, x):
        q, k, v = self.projections.split(x)
        groups = torch.zeros(*q.shape[:2], 1, q.shape[2], dtype=torch.long, device=q.device)
        return q, k / math.sqrt(q.shape[-1]), v, groups


def _up(length: Tensor, multiple: int) -> Tensor:
    return -(-length // multiple) * multiple


def _gather(rows: Int[Tensor, "B H N C"], near: Int[Tensor, "B N W"]) -> Int[Tensor, "B H N WC"]:
    B, H, _, C = rows.shape
    index = near.clamp(min=0).reshape(B, 1, -1, 1).expand(-1, H, -1, C)
    return rows.gather(2, index).reshape(B, H, -1, near.shape[2] * C)


def _of_rows(
    z: Float[Tensor, "B H L K"], rows: Int[Tensor, "B H N C"]
) -> Float[Tensor, "B H N C K"]:
    """The vectors of these tokens."""
    index = rows.flatten(2)[..., None].expand(-1, -1, -1, z.shape[-1])
    return z.gather(2, index).unflatten(2, rows.shape[2:])


SHAPES = {
    "embeddings.word_embeddings.weight": "vocab_size hidden_size",
    "embeddings.position_embeddings.embedding.weight": "max_position_embeddings",
    "encoder.layers.0.attention.self_attention.value.weight": "num_attention_heads*attention_head_size",
    "encoder.layers.0.feed_forward.dense.dense.weight": "feed_forward_size",
}


def reformer(request: LoadRequest) -> Stack:
    """Hashes are drawn once, from `hash_seed` or from 0, where Transformers draws them anew at every call without a seed."""
    w, c = request.weights, request.config
    at, eps, dim = w.prefix("reformer."), c["layer_norm_eps"], c["hidden_size"]
    kinds = c["attn_layers"]
    if c.get("num_hidden_layers", len(kinds)) != len(kinds):
        raise StoredDataError(
            f"load: num_hidden_layers={c['num_hidden_layers']} contradicts attn_layers={kinds}"
        )
    request.agree(at, SHAPES)
    sizes = {"lsh": c["lsh_attn_chunk_length"], "local": c["local_attn_chunk_length"]}
    used = [sizes[kind] for kind in sorted(set(kinds))]
    blocks = []
    for i, kind in enumerate(kinds):
        layer = f"{at}encoder.layers.{i}"
        attention = f"{layer}.attention.self_attention"
        count, width = c["num_attention_heads"], c["attention_head_size"]
        heads = Heads(1, count, head_dim=width, shared_qk=kind == "lsh")
        heads.query = w.linear(f"{attention}.{'query_key' if kind == 'lsh' else 'query'}")
        heads.key = None if kind == "lsh" else w.linear(f"{attention}.key")
        heads.value = w.linear(f"{attention}.value")
        heads.out = w.linear(f"{layer}.attention.output.dense")
        if c["is_decoder"]:
            request.require(f"{kind}_num_chunks_after", 0)
        chunks = Chunks(
            sizes[kind],
            c[f"{kind}_num_chunks_before"],
            c[f"{kind}_num_chunks_after"],
            excludes_self=kind == "lsh",
        )
        rest: dict[str, Any] = {
            "chunks": chunks,
            "causal": c["is_decoder"],
            "whole": min(used),
            "multiple": math.lcm(*used),
        }
        mixer: Mixer
        if kind == "lsh":
            mixer = HashedChunks(dim, heads, **_hashes(request), **rest)
        else:
            mixer = LocalChunks(dim, heads, **rest)
        feed_forward = make_feed_forward(
            request.activation("hidden_act"),
            w.linear(f"{layer}.feed_forward.dense.dense"),
            w.linear(f"{layer}.feed_forward.output.dense"),
        )
        norms = [
            w.layer_norm(f"{layer}.{part}.layer_norm", eps)
            for part in ("attention", "feed_forward")
        ]
        blocks.append(make_block(mixer, norms[0], feed_forward, norms[1], norm_first=True))
    word = w.embedding(f"{at}embeddings.word_embeddings")
    head = linear(w["lm_head.decoder.weight"]) if "lm_head.decoder.weight" in w else None
    w.left.discard("lm_head.bias")  # Transformers has it and does not add it
    return ReversibleStack(
        TokenEmbedding(word, place=_places(request, at)),
        blocks,
        norm=w.layer_norm(f"{at}encoder.layer_norm", eps),
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
    dtype = next(iter(request.weights.tensors.values())).dtype
    return {"factors": factors, "rotations": torch.randn(shape, dtype=dtype, generator=generator)}


def _num_buckets(c: Any) -> int | tuple[int, int]:
    """The number that Transformers sets at the first call, for the longest input: a power of two, two buckets for each chunk."""
    chunks = c["max_position_embeddings"] // c["lsh_attn_chunk_length"]
    power = (2 * chunks).bit_length() - 1
    if 2**power > 2 * max(int(chunks**0.5), c["lsh_attn_chunk_length"]):
        return 2 ** (power // 2), 2 ** (power - power // 2)
    return 2**power
