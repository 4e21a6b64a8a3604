"""Beam search against loops, against all sequences there are, and against greedy search."""

import itertools
import math

import pytest
import torch

import regard
from tests.models.small import STREAMING, language_model, prompts, ragged

TINY = {"vocab_size": 4, "dim": 12, "num_heads": 2, "num_layers": 1}
EOS = 2


def tiny(seed: int = 3):
    """Weights so large that rows and places differ in what comes next, and in when it ends."""
    model, generator = language_model(**TINY), torch.Generator().manual_seed(seed)
    matrices = [p for p in model.encoder.blocks.parameters() if p.dim() == 2]
    with torch.no_grad():
        for p in matrices:
            p.normal_(generator=generator)
        model.encoder.embedding.table.weight.normal_(std=0.3, generator=generator)
    return model


def penalty(length, a):
    return ((5 + length) / 6) ** a


def by_loops(model, prompt, *, beams, max_new_tokens, a, eos):
    """Lists of (score, tokens), best first, in plain Python."""
    live, done = [(0.0, [])], []
    for n in range(1, max_new_tokens + 1):
        candidates = []
        for total, tokens in live:
            text = torch.cat([prompt, torch.tensor(tokens, dtype=torch.long)])[None]
            for token, value in enumerate(model(text)[0, -1].log_softmax(-1).tolist()):
                candidates.append((total + value, [*tokens, token]))
        candidates.sort(key=lambda c: -c[0])
        ended = [c for c in candidates[:beams] if c[1][-1] == eos or n == max_new_tokens]
        done += [(total / penalty(n, a), tokens) for total, tokens in ended]
        if len(done) >= beams:
            break
        live = [c for c in candidates if c[1][-1] != eos][:beams]
    return sorted(done, key=lambda c: -c[0])[:beams]


@pytest.mark.parametrize("seed", [1, 3])
@pytest.mark.parametrize("a", [0.0, 0.6, 2.0])
@pytest.mark.parametrize("beams", [1, 2, 3, 5])
def test_is_what_loops_find(beams, a, seed):
    model, texts = tiny(seed), prompts(5) % 4
    found = model.beam_search(texts, max_new_tokens=5, beams=beams, length_penalty=a, eos=EOS)
    for row in range(3):
        wanted = by_loops(model, texts[row], beams=beams, max_new_tokens=5, a=a, eos=EOS)
        assert len(wanted) == beams
        for k, (score, tokens) in enumerate(wanted):
            assert math.isclose(found.scores[row, k], score, abs_tol=1e-10)
            filled = tokens + [EOS] * (found.tokens.shape[2] - len(tokens))
            assert found.tokens[row, k].tolist() == filled


def test_with_beams_for_all_is_exhaustive():
    """Every sequence of up to three tokens that ends, or has three; what does not exist has no score."""
    found = tiny().beam_search(prompts(5)[:1] % 4, max_new_tokens=3, beams=64, eos=EOS)
    every = {
        tuple(t[: t.index(EOS) + 1] if EOS in t else t)
        for t in itertools.product(range(4), repeat=3)
    }
    exists = found.scores[0].isfinite()
    said = [t[: t.index(EOS) + 1] if EOS in t else t for t in found.tokens[0, exists].tolist()]
    assert len(said) == len(every) and {tuple(t) for t in said} == every


@pytest.mark.parametrize("mixer", STREAMING)
@pytest.mark.parametrize("eos", [None, 3])
def test_one_beam_is_greedy(mixer, eos):
    model = language_model(mixer=mixer)
    if eos is not None:
        eos = int(model.generate(prompts(), max_new_tokens=4)[0, 2])
    greedy = model.generate(prompts(), max_new_tokens=8, eos=eos)
    found = model.beam_search(prompts(), max_new_tokens=8, beams=1, eos=eos)
    assert torch.equal(found.tokens[:, 0], greedy)


@pytest.mark.parametrize("mixer", STREAMING)
def test_padded_batch_finds_what_singles_find(mixer):
    model, text, valid = language_model(mixer=mixer), prompts(), ragged()
    together = model.beam_search(text, valid=valid, max_new_tokens=5, beams=3)
    for row in range(3):
        alone = model.beam_search(text[row : row + 1, valid[row]], max_new_tokens=5, beams=3)
        assert torch.equal(together.tokens[row], alone.tokens[0])
        torch.testing.assert_close(together.scores[row], alone.scores[0], rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    "change, said",
    [
        ({"beams": 0}, "beams"),
        ({"length_penalty": math.nan}, "length_penalty"),
        ({"eos": 4}, "eos"),
    ],
)
def test_bad_requests_are_named(change, said):
    with pytest.raises(regard.OptionError, match=said):
        tiny().beam_search(prompts() % 4, **{"max_new_tokens": 2, **change})
