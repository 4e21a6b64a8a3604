"""HAN is its equations, read without padding; what is absent changes nothing; and it finds the sentence that matters."""

import pytest
import torch
from torch.nn.functional import pad

from regard.models import pad_documents
from tests.models.small import assert_same
from tests.models.test_every_model import made
from tests.pools import oracle as pools

DOCUMENTS = [
    [[3, 1, 4], [1], [5, 9, 2, 6]],
    [[7]],
    [[], [2, 7, 1], [], [8, 2]],
    [[]],
]
TOKENS, VALID = pad_documents(DOCUMENTS)
FLAT = {"flat": True, "word_encoder": "none", "pool": "mean"}
READS = {
    "gru": lambda encoder, x: encoder.gru(x)[0],
    "convolution": lambda encoder, x: encoder.convolution(x.T).relu().T,
    "none": lambda encoder, x: encoder.into(x),
}


def level(kind, encoder, pool, xs):
    """Summary and weights of one sequence."""
    if not xs:
        return torch.zeros(8).double(), torch.zeros(0).double()
    h = READS[kind](encoder, torch.stack(xs))
    weights = torch.ones(len(h)).double() / len(h)
    if pool.name == "max":
        return h.amax(0), weights
    if pool.name == "context_query":
        weights = torch.stack(pools.context_query(dict(pool.named_parameters()), list(h), None)[0])
    return weights @ h, weights


def oracle(model, document):
    config = model.config
    xs = [[model.embedding.weight[i] for i in sentence] for sentence in document]
    if config.flat:
        xs = [[x for sentence in xs for x in sentence]]
    words = [level(config.word_encoder, model.words, model.word_pool, x) for x in xs]
    summaries, weights = zip(*words, strict=True)
    if config.flat:
        return model.head(summaries[0]), weights, None
    found = [summary for summary, x in zip(summaries, xs, strict=True) if x]
    summary, sentences = level(config.sentence_encoder, model.sentences, model.sentence_pool, found)
    return model.head(summary), weights, sentences


@pytest.mark.parametrize(
    "options",
    [
        {},
        FLAT,
        {"word_encoder": "none", "sentence_encoder": "none", "pool": "max"},
        {"flat": True, "word_encoder": "convolution", "pool": "max"},
    ],
    ids=str,
)
def test_it_is_its_equations(options):
    model = made("han", **options).eval()
    expected = torch.stack([oracle(model, document)[0] for document in DOCUMENTS])
    assert_same(model(TOKENS, valid=VALID), expected, model, atol=1e-13)


def test_weights_are_those_of_its_equations():
    model = made("han").eval()
    found = model.read(TOKENS, valid=VALID)
    torch.testing.assert_close(model(torch.tensor([[[7]]]))[0], found.logits[1])
    for b, document in enumerate(DOCUMENTS):
        _, words, weights = oracle(model, document)
        places = [s for s, sentence in enumerate(document) if sentence]
        assert found.sentences[b].nonzero()[:, 0].tolist() == places
        torch.testing.assert_close(found.sentences[b, places], weights)
        for s, row in enumerate(words):
            torch.testing.assert_close(found.words[b, s], pad(row, (0, 4 - len(row))))
    flat = made("han", **FLAT).eval().read(TOKENS, valid=VALID)
    torch.testing.assert_close(flat.sentences[0], torch.tensor([3, 1, 4, 0]).double() / 8)
