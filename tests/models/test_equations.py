"""Models of fields and of documents are their equations, computed one row at a time, without what is missing."""

import pytest
import torch
from torch.export import Dim, export
from torch.nn.functional import layer_norm, pad, scaled_dot_product_attention

from regard.models import DINConfig, pad_documents
from regard.nn.fields import Categorical, Sequence
from tests.models.small import assert_same
from tests.models.table import BATCH, FIELDS, B, dense, embedded
from tests.models.test_every_model import CASES, DOCUMENTS, VECTORS, given, made
from tests.pools import oracle as pools

X = VECTORS.double()


def zeros(width, rows):
    return [torch.zeros(width).double() if row is None else row for row in rows]


def joined(params, config, b, fields=FIELDS):
    return torch.cat(zeros(config.dim, embedded(params, "embedding", fields, BATCH, b)))


def network(params, x, depth):
    for layer in range(0, 2 * depth, 2):
        x = dense(params, f"deep.layers.{layer}", x).relu()
    return x


def logistic_regression(params, config, b):
    linear = embedded(params, "linear", FIELDS, BATCH, b)
    return params.get("bias", 0) + sum(e for e in linear if e is not None)


def factorization_machine(params, config, b):
    found = [e for e in embedded(params, "embedding", FIELDS, BATCH, b) if e is not None]
    pairs = (one * other for i, one in enumerate(found) for other in found[:i])
    return logistic_regression(params, config, b) + sum(pairs).view(2, 3).sum(1)


def cross_network(params, config, b):
    first = x = joined(params, config, b)
    for w, bias in zip(params["weights"], params["biases"], strict=True):
        x = torch.stack([one * sum(w * x) for one in first]) + bias + x
    last = torch.cat([x, network(params, first, 1)]) if config.hidden_dims else x
    return dense(params, "head", last)


def compressed_interaction(params, config, b):
    maps = e = joined(params, config, b).view(-1, 3)
    sums = []
    for layer in range(len(config.maps)):
        maps = torch.einsum("hij,id,jd->hd", params[f"weights.{layer}"], maps, e)
        sums.append(maps.sum(1))
    y = logistic_regression(params, config, b) + dense(params, "head", torch.cat(sums))
    if config.hidden_dims:
        y = y + dense(params, "deep_head", network(params, e.flatten(), 1))
    return y


def autoint(params, config, b):
    e, act = embedded(params, "embedding", FIELDS, BATCH, b), torch.relu
    there = [i for i, one in enumerate(e) if one is not None]
    x, heads = torch.stack([e[i] for i in there]), (config.num_heads, config.head_dim)
    for i in range(config.num_layers):
        names = (f"layers.{i}.{name}" for name in ("query", "key", "value", "residual"))
        found = [dense(params, name, x) for name in names]
        *qkv, r = map(act, found) if config.official else found
        q, k, v = (z.unflatten(1, heads).transpose(0, 1) for z in qkv)
        y = scaled_dot_product_attention(q, k, v, scale=None if config.official else 1.0)
        x = act(y.transpose(0, 1).flatten(1) + r)
        if config.official:
            gains = (params[f"layers.{i}.norm.{name}"] for name in ("weight", "bias"))
            x = layer_norm(x, x.shape[1:], *gains, eps=1e-8)
    whole = x.new_zeros(len(e), x.shape[1]).index_copy(0, torch.tensor(there), x)
    y = dense(params, "head", whole.flatten())
    if config.hidden_dims:
        y = y + dense(params, "deep_head", network(params, joined(params, config, b), 2))
    return y


def din(params, config, b):
    item, shop = (params[f"embedding.tables.of_{name}.weight"] for name in ("items", "shop"))

    def look_up(i, s):
        return torch.cat(zeros(3, [t[j] if j else None for t, j in ((item, i), (shop, s))]))

    pairs = zip(BATCH["history"][b].tolist(), BATCH["shops"][b].tolist(), strict=True)
    tokens = [look_up(i, s) for i, s in pairs if i or s]
    candidate = look_up(int(BATCH["items"][b]), int(BATCH["shop"][b]))
    interest, options = torch.zeros(6).double(), config.pool_options
    if tokens:
        own = {name.removeprefix("pool."): p for name, p in params.items()}
        kind = (options.get("interaction", "outer"), options.get("activation", "dice"))
        weigh = pools.target_query(*kind, options.get("normalise", False))
        for w, token in zip(weigh(own, tokens, [candidate])[0], tokens, strict=True):
            interest = interest + w * token
    others = [field for field in FIELDS if field.name not in config.history]
    x = torch.cat([interest, joined(params, config, b, others)])
    for i in (0, 2):
        s, after = dense(params, f"network.layers.{i}", x), f"network.layers.{i + 1}"
        if config.activation == "prelu":
            x = torch.where(s > 0, s, params[f"{after}.weight"] * s)
        else:
            x = pools.dice(params, after, s)
    return dense(params, "head", x)


def mmoe(params, config, b):
    x = joined(params, config, b) if config.fields else X[b]
    outputs = []
    for i in range(config.num_experts):
        hidden = x
        for layer in range(2):
            weight = params[f"experts.weights.{layer}"][i]
            hidden = torch.relu(hidden @ weight + params[f"experts.biases.{layer}"][i])
        outputs.append(hidden)
    logits = []
    for k in range(config.num_tasks):
        if config.gate == "none":
            scores = [x.new_zeros(())]
        elif config.gate == "attention_query":
            c = params["gate.context.query"][k]
            scale = 1 if config.gate_options.get("score") == "dot" else len(c) ** 0.5
            scores = [(c * f).sum() / scale for f in outputs]
        else:
            W = params["gate.score.weight"][k if config.gate == "linear" else 0]
            scores = list(W @ x)
        fused = sum(w * f for w, f in zip(pools.softmax(scores), outputs, strict=True))
        hidden = torch.relu(dense(params, f"towers.{k}.0", fused))
        logits.append(dense(params, f"towers.{k}.2", hidden))
    return torch.cat(logits)


READS = {
    "gru": lambda encoder, x: encoder.gru(x)[0],
    "convolution": lambda encoder, x: encoder.convolution(x.T).relu().T,
    "none": lambda encoder, x: encoder.into(x),
}


def level(kind, encoder, pool, xs):
    """Summary and weights of one sequence."""
    if not xs:
        return None, torch.zeros(0).double()
    h = READS[kind](encoder, torch.stack(xs))
    if pool.name == "max":
        return h.amax(0), None
    weigh, own = getattr(pools, pool.name), dict(pool.named_parameters())
    weights = torch.stack(weigh(own, list(h), None)[0])
    return weights @ h, weights


def read(model, document):
    """Logits, and the weights of words and of sentences."""
    config = model.config
    xs = [[model.embedding.weight[i] for i in sentence] for sentence in document]
    if config.flat:
        xs = [[x for sentence in xs for x in sentence]]
    words = [level(config.word_encoder, model.words, model.word_pool, x) for x in xs]
    summaries, weights = zip(*words, strict=True)
    if config.flat:
        return model.head(summaries[0]), weights, None
    found = [summary for summary in summaries if summary is not None]
    summary, sentences = level(config.sentence_encoder, model.sentences, model.sentence_pool, found)
    return model.head(summary), weights, sentences


ORACLES = {f.__name__: f for f in (
    logistic_regression, factorization_machine, cross_network, compressed_interaction, autoint, din, mmoe,
)}  # fmt: skip
OTHER_PARTS = ("din_mean", "din_softmax", "din_linear", "han_softmax", "han_mixed")
NAMES = [n for n in CASES if CASES[n].name in {*ORACLES, "han"} and n not in OTHER_PARTS]


@pytest.mark.parametrize("name", NAMES)
def test_it_is_its_equations(name):
    model, config = made(name).eval(), CASES[name]
    args, options = given(name)
    params = dict(model.named_parameters()) | dict(model.named_buffers())
    if config.name == "han":
        rows = [read(model, document)[0] for document in DOCUMENTS]
    else:
        rows = [ORACLES[config.name](params, config, b) for b in range(3)]
    atol = 1e-10 if config.name in ("autoint", "din") else 1e-13
    assert_same(model(*args, **options), torch.stack(rows), model, atol)
    if config.name == "mmoe":
        sums = model.weights(*args).sum(-1)
        torch.testing.assert_close(sums, torch.ones_like(sums))


def test_weights_of_words_and_sentences_are_those_of_the_equations():
    model = made("han").eval()
    tokens, valid = pad_documents([*DOCUMENTS, [[]]])
    found = model.read(tokens, valid=valid)
    torch.testing.assert_close(model(torch.tensor([[[7]]]))[0], found.logits[1])
    for b, document in enumerate(DOCUMENTS):
        _, words, weights = read(model, document)
        places = [s for s, sentence in enumerate(document) if sentence]
        assert found.sentences[b].nonzero()[:, 0].tolist() == places
        torch.testing.assert_close(found.sentences[b, places], weights)
        for s, row in enumerate(words):
            torch.testing.assert_close(found.words[b, s], pad(row, (0, 4 - len(row))))
    assert not found.sentences[3].any()
    turned = (z.mT.contiguous().mT for z in (tokens, valid))
    torch.testing.assert_close(model(next(turned), valid=next(turned)), found.logits)
    flat = made("han_flat").eval().read(tokens, valid=valid)
    torch.testing.assert_close(flat.sentences[0], torch.tensor([3, 1, 4, 0]).double() / 8)


def test_maps_and_weights_sum_to_one_and_are_zero_where_something_is_missing():
    maps = made("autoint").eval().attention_maps(BATCH)
    sums = maps[0].sum(-1)
    assert len(maps) == 3 and ((sums - 1).abs() < 1e-12).logical_or(sums == 0).all()
    assert (maps[0][2, :, 1] == 0).all() and (maps[0][2, ..., 1] == 0).all()  # age is missing
    weights = made("din_code").eval().weights(BATCH)
    assert weights.shape == (B, 4)
    torch.testing.assert_close(weights.sum(1), torch.tensor([1.0, 1, 0, 1]).double())
    assert (weights[1, [1]] == 0).all() and (weights[3, 1:] == 0).all()
    half = {name: z.half() if z.is_floating_point() else z for name, z in BATCH.items()}
    assert made("din").half().eval()(half).dtype == torch.float16
    none = BATCH | {name: z[:, :0] for name, z in BATCH.items() if z.dim() == 2}
    padded = BATCH | {name: 0 * z for name, z in BATCH.items() if z.dim() == 2}
    model = made("din").eval()
    assert torch.equal(model(none), model(padded))


def test_batch_l2_steps_each_id_that_occurs_by_its_count():
    model = made("din").eval()
    counts = {"items": torch.arange(9), "shop": torch.full((5,), 2), "user": torch.full((7,), 4)}
    unsigned = {name: n.to(torch.uint16) for name, n in counts.items()}
    assert model.batch_l2(BATCH, unsigned) == model.batch_l2(BATCH, counts)
    model.batch_l2(BATCH, counts).backward()
    weight = model.embedding.table("items").weight
    occurs = set(BATCH["items"].tolist()) | set(BATCH["history"].flatten().tolist())
    for j in range(9):
        n = max(1, j)
        wanted = weight[j] / n if j in occurs - {0} else torch.zeros(3).double()
        torch.testing.assert_close(weight.grad[j], wanted)
    assert (model.embedding.table("user").weight.grad[[0, 4, 5]] == 0).all()


def test_din_is_exported_for_histories_of_any_length():
    item, any_size = Categorical("item", 9), {0: Dim.DYNAMIC, 1: Dim.DYNAMIC}
    model = DINConfig(fields=(item, Sequence("seen", item)), history=("seen",)).build().eval()
    batches = [{"item": torch.full((n,), 3), "seen": torch.full((n, n + 2), 4)} for n in (3, 4)]
    sizes = {"batch": {"item": {0: Dim.DYNAMIC}, "seen": any_size}}
    program = export(model, (batches[0],), dynamic_shapes=sizes).module()
    torch.testing.assert_close(program(batches[1]), model(batches[1]))
