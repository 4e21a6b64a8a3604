"""Continuing prompts: rows and ends, draws, beam search against loops and all sequences there are, and requests that no memory holds."""

import math

import pytest
import torch

import regard
from regard import OptionError, UnsupportedError
from regard.models import TransformerXLConfig
from regard.models.generation import Sampling, restrict
from tests.models.small import DOCUMENTS, VOCAB, language_model, prompts, ragged, transformer

TINY = {"vocab_size": 4, "dim": 12, "num_heads": 2, "num_layers": 1}
EOS, TOKENS = 2, torch.tensor([[1, 2, 3]])


def test_rows_end_at_eos_and_the_call_with_the_last():
    model = language_model()
    free = model.generate(prompts(), max_new_tokens=12)
    eos = int(free[0, 2])
    ended = model.generate(prompts(), max_new_tokens=12, eos=eos)
    for row, whole in zip(ended.tolist(), free.tolist(), strict=True):
        stop = whole.index(eos) if eos in whole else len(whole)
        assert row == (whole[:stop] + [eos] * 12)[: len(row)]
    alone = model.generate(prompts()[:1], max_new_tokens=12, eos=eos)
    assert alone.shape[1] == free[0].tolist().index(eos) + 1


def test_sampling_is_seeded_and_leaves_the_global_generator_alone():
    model = language_model()
    before = torch.get_rng_state()
    how = {"max_new_tokens": 8, "temperature": 1.0, "top_k": 9, "top_p": 0.9}
    generators = (torch.Generator().manual_seed(seed) for seed in (3, 3, 4))
    draws = [model.generate(prompts(), **how, generator=one) for one in generators]
    assert torch.equal(draws[0], draws[1]) and not torch.equal(draws[0], draws[2])
    assert torch.equal(torch.get_rng_state(), before)
    greedy = model.generate(prompts(), max_new_tokens=8)
    for only in ({"top_k": 1}, {"top_p": 1e-9}):
        drawn = model.generate(prompts(), max_new_tokens=8, temperature=2.0, **only)
        assert torch.equal(drawn, greedy)


def test_dropout_is_off_and_modes_are_left_as_they_were():
    model = language_model(dropout=0.5)
    calm = model.generate(prompts(), max_new_tokens=6)
    model.train()
    model.encoder.blocks[0].eval()
    modes = [module.training for module in model.modules()]
    assert torch.equal(model.generate(prompts(), max_new_tokens=6), calm)
    assert [module.training for module in model.modules()] == modes


def test_max_len_bounds_what_is_read_and_a_document_and_not_its_row():
    model = language_model(position="learned", max_len=10)
    assert model(prompts(12)[[0, 0]], documents=DOCUMENTS[[0, 0]]).shape == (2, 12, VOCAB)
    with pytest.raises(regard.ShapeError, match=r"length \(12\) exceeds max_len \(10\)"):
        model(prompts(12), documents=DOCUMENTS)
    assert model.generate(prompts(), max_new_tokens=4).shape == (3, 4)
    with pytest.raises(regard.ShapeError, match=r"prompt of 7 tokens and max_new_tokens \(5\)"):
        model.generate(prompts(), max_new_tokens=5)
    _, state = model.extend(prompts(), model.initial_state(3))
    with pytest.raises(regard.ShapeError, match=r"\(14\) exceeds max_len \(10\)"):
        model.extend(prompts(), state)
    assert language_model(max_len=10).generate(prompts(), max_new_tokens=20).shape == (3, 20)


@pytest.mark.parametrize("recurrent", [False, True])
def test_no_prompts_are_continued(recurrent):
    sizes = {"vocab_size": VOCAB, "dim": 24, "num_heads": 3, "segment_len": 4, "mem_len": 3}
    model = TransformerXLConfig(**sizes).build() if recurrent else language_model()
    none = prompts()[:0]
    for valid in (None, ragged()[:0]):
        given = {"valid": valid, "max_new_tokens": 3}
        for how in ({}, {"temperature": 1.0, "top_p": 0.9}):
            assert model.generate(none, **given, **how).shape == (0, 3)
        assert model.beam_search(none, **given, beams=2).tokens.shape[:2] == (0, 2)
    logits, state = model.extend(none, model.initial_state(0))
    assert logits.shape == (0, 7, VOCAB) and len(state.length) == 0
    translator = transformer()
    assert translator.generate(none, start=1, max_new_tokens=3).shape == (0, 3)
    assert translator.extend(none, translator.initial_state(none))[0].shape == (0, 7, VOCAB)


def kept_of(row, top_k, top_p):
    """Ids in order, until they hold top_p of the probability of the first k."""
    order = sorted(range(len(row)), key=lambda i: (-row[i], i))[:top_k]
    shares, held = row[order].double().softmax(0).tolist(), 0.0
    for n, share in enumerate(shares):
        if top_p is not None and held >= top_p:
            return order[:n]
        held += share
    return order


@pytest.mark.parametrize("top_k", [None, 1, 3, 11, 50])
@pytest.mark.parametrize("top_p", [None, 1e-300, 1e-6, 0.35, 0.9, 0.999])
def test_restriction_is_the_slow_one(top_k, top_p):
    logits = 2 * torch.randn(20, 11, generator=torch.Generator().manual_seed(0))
    logits[3:6] = logits[3:6].round()  # ties
    for row, found in zip(logits, restrict(logits, top_k, top_p), strict=True):
        kept = kept_of(row, top_k, top_p)
        assert found.isfinite().nonzero()[:, 0].tolist() == sorted(kept)
        assert torch.equal(found[kept], row[kept])


def test_draws_follow_the_tempered_restricted_softmax():
    logits = torch.tensor([[2.0, 1.0, 0.5, -1.0, 1.5]])
    many = logits.expand(20000, 5)
    sampling = Sampling(0.7, top_k=3, generator=torch.Generator().manual_seed(0))
    drawn = sampling.draw(many)
    share = drawn.bincount(minlength=5) / 20000
    wanted = (torch.tensor([2.0, 1.0, -math.inf, -math.inf, 1.5]) / 0.7).softmax(0)
    assert (share - wanted).abs().max() < 0.015
    assert share[2] == share[3] == 0
    assert torch.equal(Sampling(1e-45).draw(many), logits.argmax(-1).expand(20000))
    logits = 3 * torch.randn(4, 32_000, generator=torch.Generator().manual_seed(0))
    assert torch.equal(restrict(logits, None, 1.0), logits)  # all of the probability


def tiny(seed: int = 3):
    """Weights so large that rows and places differ in what comes next, and in when it ends."""
    model, generator = language_model(**TINY), torch.Generator().manual_seed(seed)
    matrices = [p for p in model.encoder.blocks.parameters() if p.dim() == 2]
    with torch.no_grad():
        for p in matrices:
            p.normal_(generator=generator)
        model.encoder.embedding.table.weight.normal_(std=0.3, generator=generator)
    return model


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
        done += [(total / ((5 + n) / 6) ** a, tokens) for total, tokens in ended]
        if len(done) >= beams:
            break
        live = [c for c in candidates if c[1][-1] != eos][:beams]
    return sorted(done, key=lambda c: -c[0])[:beams]


@pytest.mark.parametrize("seed", [1, 3])
@pytest.mark.parametrize("a", [0.0, 0.6, 2.0])
@pytest.mark.parametrize("beams, length", [(1, 5), (2, 5), (3, 5), (5, 5), (64, 3)])
def test_is_what_loops_find(beams, length, a, seed):
    """64 beams hold every sequence of three tokens, or fewer that end; what does not exist has no score."""
    model, texts = tiny(seed), prompts(5) % 4
    how = {"max_new_tokens": length, "beams": beams, "eos": EOS}
    found = model.beam_search(texts, length_penalty=a, **how)
    for row in range(3):
        wanted = by_loops(model, texts[row], a=a, **how)
        assert len(wanted) == (40 if beams == 64 else beams) == found.scores[row].isfinite().sum()
        for k, (score, tokens) in enumerate(wanted):
            assert math.isclose(found.scores[row, k], score, abs_tol=1e-10)
            filled = tokens + [EOS] * (found.tokens.shape[2] - len(tokens))
            assert found.tokens[row, k].tolist() == filled


@pytest.mark.parametrize("mixer", ["softmax", "linear", "transformer_xl"])
def test_a_billion_tokens_and_a_million_beams_are_refused(mixer, monkeypatch):
    xl = TransformerXLConfig(**TINY, mem_len=4)
    model = xl.build() if mixer == "transformer_xl" else language_model(mixer=mixer)

    def free(bytes):
        for module in ("regard.core.memory", "regard.models.generation"):
            monkeypatch.setattr(f"{module}.free_bytes", lambda device: bytes)

    free(10 << 30)
    said = r" needs .*iB, and 10.00 GiB are free on cpu. At most \d+ would fit"
    with pytest.raises(OptionError, match=r"max_new_tokens \(1000000000\)" + said):
        model.generate(TOKENS, max_new_tokens=10**9)
    with pytest.raises(OptionError, match="100000000 beams" + said):
        model.beam_search(TOKENS, max_new_tokens=4, beams=10**8)
    free(1 << 26)
    with pytest.raises(OptionError, match="1000000 beams needs"):
        model.beam_search(TOKENS, max_new_tokens=4, beams=10**6)
    assert model.generate(TOKENS, max_new_tokens=3).shape == (1, 3)


def test_a_model_in_parts_is_not_asked_to_generate():
    model = language_model()
    model.encoder.blocks.unshard = None  # as FSDP gives it, which gathers for forward alone
    with pytest.raises(UnsupportedError, match="does not support generation from parts"):
        model.generate(prompts(), max_new_tokens=2)
