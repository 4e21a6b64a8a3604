"""HAN is its equations, read without padding; what is absent changes nothing; and it finds the sentence that matters."""

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


def level(encoder, pool, xs):
    """Summary and weights of one sequence."""
    if not xs:
        return torch.zeros(8).double(), torch.zeros(0).double()
    assert type(encoder.gru) is torch.nn.GRU
    h = encoder.gru(torch.stack(xs))[0]
    (weights,) = pools.context_query(dict(pool.named_parameters()), list(h), None)
    weights = torch.stack(weights)
    return weights @ h, weights


def oracle(model, document):
    words, sentences = [], []
    for sentence in document:
        xs = [model.embedding.weight[i] for i in sentence]
        summary, weights = level(model.words, model.word_pool, xs)
        words.append(weights)
        if sentence:
            sentences.append(summary)
    summary, weights = level(model.sentences, model.sentence_pool, sentences)
    return model.head(summary), words, weights


def test_it_is_its_equations():
    model = made("han").eval()
    tokens, valid = pad_documents(DOCUMENTS)
    assert tokens.shape == (4, 4, 4) and valid.sum() == 14
    found = model.read(tokens, valid=valid)
    one = model.read(torch.tensor([[[7]]]))
    torch.testing.assert_close(one.logits[0], found.logits[1])
    assert one.words.item() == one.sentences.item() == 1
    expected = []
    for b, document in enumerate(DOCUMENTS):
        logits, words, sentences = oracle(model, document)
        expected.append(logits)
        places = [s for s, sentence in enumerate(document) if sentence]
        assert found.sentences[b].nonzero()[:, 0].tolist() == places
        torch.testing.assert_close(found.sentences[b, places], sentences)
        for s, weights in enumerate(words):
            whole = pad(weights, (0, 4 - len(weights)))
            torch.testing.assert_close(found.words[b, s], whole)
    assert_same(found.logits, torch.stack(expected), model, atol=1e-13)


def test_baselines_are_their_formulas():
    tokens, valid = pad_documents(DOCUMENTS)
    mean = made("han", flat=True, word_encoder="none", pool="mean").eval()
    hierarchy = made("han", word_encoder="none", sentence_encoder="none", pool="max").eval()
    kernel = made("han", flat=True, word_encoder="convolution", pool="max").eval()
    for b, document in enumerate(DOCUMENTS[:3]):
        words = torch.tensor([i for sentence in document for i in sentence])
        sentences = [torch.tensor(sentence) for sentence in document if sentence]
        into, last = hierarchy.words.into, hierarchy.sentences.into
        largest = torch.stack([into(hierarchy.embedding(s)).amax(0) for s in sentences])
        found = kernel.words.convolution(kernel.embedding(words).T).relu().amax(1)
        for model, summary in (
            (mean, mean.words.into(mean.embedding(words)).mean(0)),
            (hierarchy, last(largest).amax(0)),
            (kernel, found),
        ):
            y = model(tokens, valid=valid)[b]
            torch.testing.assert_close(y, model.head(summary), rtol=0, atol=1e-12)
    read = mean.read(tokens, valid=valid)
    torch.testing.assert_close(read.sentences[0], torch.tensor([3, 1, 4, 0]).double() / 8)
