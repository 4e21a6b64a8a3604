"""Converted and wrapped causal models inside Transformers: files, generate with states, Trainer, pipeline, packing."""

import copy
import string
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from tests.hf import small
from tests.hf.small import as_stack, greedy, tokenizer, transformers
from tests.models.small import DOCUMENTS, streamed
from tests.refused import assert_refused

import regard.hf  # isort: skip
from regard import MIXERS, OptionError, ShapeError, UnsupportedError
from regard.hf.states import StateCache
from regard.models import LanguageModelConfig

EQUAL_HEADS = {"head_dim": 6}  # as wide together as a token, so that gates fit too
IDS = torch.randint(3, 30, (3, 12), generator=torch.Generator().manual_seed(2))
VALID = torch.arange(12) >= torch.tensor([[0], [3], [7]])  # left padding, as tokenizers give it
FOLDERS = [(name, "linear") for name in ("llama", "llama_tied", "gpt2", "bert")]
FOLDERS += [("bert", mixer) for mixer in ("performer", "reformer")]
STREAMING = [name for name in MIXERS.names() if name not in ("sinkhorn", "transformer_xl")]


def llama(mixer: str = "linear", **options):
    return regard.hf.convert(small.model("llama", **EQUAL_HEADS), mixer, **options)


def wrapped(mixer: str):
    torch.manual_seed(0)
    return regard.hf.wrap(LanguageModelConfig(**small.OURS, mixer=mixer)).eval().double()


def generated(model, **options):
    return greedy(model, IDS, new=8, attention_mask=VALID.long(), **options)


@pytest.mark.parametrize("name, mixer", FOLDERS)
def test_folders_of_save_and_of_save_pretrained_are_alike(name, mixer, tmp_path):
    regard.hf.register()
    original = small.model(name)
    student = regard.hf.convert(original, mixer, max_len=64, layers=[1]).float()
    if original.can_generate():
        assert student.generation_config.eos_token_id == 2
    with torch.no_grad():
        for parameter in student.parameters():
            parameter.mul_(1.1)
    want = student(IDS, attention_mask=VALID.long()).logits
    student.save_pretrained(tmp_path / "ours")
    again = regard.hf.load(tmp_path / "ours")
    torch.testing.assert_close(again.head(again(IDS, valid=VALID)), want, check_dtype=False)
    regard.hf.save(again, tmp_path / "saved")
    auto = f"AutoModelFor{'MaskedLM' if name == 'bert' else 'CausalLM'}"
    for folder in ("ours", "saved"):
        opened = getattr(transformers, auto).from_pretrained(tmp_path / folder)
        found = opened(IDS, attention_mask=VALID.long()).logits
        torch.testing.assert_close(found, want, check_dtype=False)
        head = opened.inside.head[-1] if name == "bert" else opened.inside.head
        tied = head.weight is opened.inside.embedding.word.weight
        assert tied == (name != "llama")
    twice = regard.hf.convert(again, "local", layers=[0], window_size=2)
    regard.hf.save(twice, tmp_path / "twice")
    assert [m.name for m in regard.hf.load(tmp_path / "twice").mixers] == ["local", mixer]


MADE = {"converted": llama, "hybrid": lambda: llama(layers=[0])}
MADE["wrapped"] = lambda: wrapped("performer")


@pytest.mark.parametrize("made", MADE)
@pytest.mark.parametrize("search", [{}, {"num_beams": 3}], ids=["greedy", "beams"])
def test_states_stream_as_if_recomputed(made, search):
    model, calls = MADE[made](), []

    def counted(_, args, given):
        calls.append(given["input_ids"].shape[1])

    model.register_forward_pre_hook(counted, with_kwargs=True)
    streamed = generated(model, **search)
    assert calls == [12] + [1] * 7
    assert torch.equal(streamed, generated(model, use_cache=False, **search))
    assert len(calls) == 16 and calls[-1] == 19


@pytest.mark.parametrize("mixer", STREAMING)
def test_rotary_mixers_stream_as_they_compute(mixer):
    """Heads turned by their places outside of the mixer, or inside; gates and states of every kind."""
    try:
        model = llama(mixer, max_len=64)
    except UnsupportedError as error:
        assert "does not support" in str(error)
        return
    cache, parts = StateCache(), []
    for ids, valid in zip(IDS.split([5, 1, 6], 1), VALID.split([5, 1, 6], 1), strict=True):
        parts.append(model(ids, attention_mask=valid.long(), past_key_values=cache).logits)
    want = model(IDS, attention_mask=VALID.long()).logits
    got = torch.cat(parts, 1)
    torch.testing.assert_close(got[VALID], want[VALID], rtol=1e-10, atol=1e-10)


def test_streams_that_would_differ_are_refused():
    model, cache = llama(), StateCache()
    model(IDS[:, :8], past_key_values=cache)
    sorting = llama("sinkhorn", max_len=64, sort_net="attention")
    turned = {"sinkhorn": sorting, "transformer_xl": llama("transformer_xl", max_len=64)}
    for one in turned.values():
        assert not one.generation_config.use_cache
        assert torch.equal(generated(one), generated(one, use_cache=True))
    why = "StateCache does not support crop: a state holds sums over all tokens"
    assert_refused(
        *((UnsupportedError, f"{mixer} does not support streaming: its heads turn means or memories", partial(one, IDS, use_cache=True))
          for mixer, one in turned.items()),
        (UnsupportedError, "transformer_xl does not support generate", lambda: wrapped("transformer_xl")(IDS, use_cache=True)),
        (UnsupportedError, "forgetting does not support convert with heads of 32 channels",
         lambda: regard.hf.convert(small.model("llama"), "forgetting")),
        (UnsupportedError, why, lambda: greedy(model, IDS[:1], prompt_lookup_num_tokens=2)),
        (UnsupportedError, why, lambda: StateCache().crop(-1)),
        (ShapeError, "states of 3 rows, and 1 are", lambda: model(IDS[:1, 8:], attention_mask=VALID[:1].long(), past_key_values=cache)),
        (ShapeError, "beam_idx", lambda: StateCache().reorder_cache([0])),
        (OptionError, r"repeats \(-1\)", lambda: StateCache().batch_repeat_interleave(-1)),
        (OptionError, "takes one of past_key_values and cache", lambda: model(IDS, past_key_values=StateCache(), cache=StateCache())),
        (OptionError, r"past_key_values .* must be a StateCache or None", lambda: model(IDS, past_key_values=transformers.DynamicCache())),
        (UnsupportedError, "does not support cache_implementation='static'", lambda: generated(model, cache_implementation="static")),
        (ShapeError, "attention_mask must be of 12 new tokens, or of 0 before",
         lambda: model(IDS, attention_mask=torch.ones(3, 14), use_cache=True)),
        (UnsupportedError, "hides other earlier tokens",
         lambda: model(IDS[:, 8:9], attention_mask=VALID[:, :9].long(), past_key_values=cache)),
    )  # fmt: skip


@torch.no_grad()
def test_a_token_of_linear_costs_the_same_after_any_number_of_tokens():
    flops = {}
    for mixer, length in product(("linear", "softmax"), (100, 4000)):
        model, cache = llama(mixer, impl="plain").float(), StateCache()
        model(torch.full((1, length), 3), past_key_values=cache, logits_to_keep=1)
        with FlopCounterMode(display=False) as counter:
            model(IDS[:1, :1], past_key_values=cache)
        flops[mixer, length] = counter.get_total_flops()
    assert flops["linear", 100] == flops["linear", 4000] > 0
    assert flops["softmax", 100] < flops["softmax", 4000]


@torch.no_grad()
def test_a_cache_is_kept_copied_and_handed_out():
    model, cache = llama(), StateCache()
    head, tail = IDS[:, :8], IDS[:, 8:]
    model(head, past_key_values=cache)
    assert cache.get_seq_length() == 8 and len(cache) == 2 and cache.get_mask_sizes(3, 0) == (11, 0)
    other, twice = copy.deepcopy(cache), copy.deepcopy(cache)
    want = model(IDS).logits[:, 8:]
    for one in (cache, other):
        torch.testing.assert_close(model(tail, past_key_values=one).logits, want)
    twice.batch_repeat_interleave(2)
    twice.batch_select_indices(torch.tensor([4, 1]))
    got = model(tail[[2, 0]], past_key_values=twice).logits
    torch.testing.assert_close(got, want[[2, 0]])
    cache.reset()
    model(head, past_key_values=cache)
    assert torch.equal(greedy(model, IDS, past_key_values=cache), greedy(model, IDS))


def test_maps_are_those_of_their_own_thread():
    stack = as_stack(small.model("llama")).eval()
    with ThreadPoolExecutor(4) as pool:
        found = [*pool.map(stack.attention_maps, [IDS[i % 3, None] for i in range(60)])]
    for i, maps in enumerate(found):
        torch.testing.assert_close(maps, found[i % 3])
        assert len(maps) == 2


def test_documents_of_a_stream_are_those_of_a_row():
    """Learned positions and rotary ones."""
    for name in ("gpt2", "llama"):
        model = regard.hf.convert(as_stack(small.model(name)), "linear")
        found, want = streamed(model, IDS, VALID), model(IDS, valid=VALID, documents=DOCUMENTS)
        torch.testing.assert_close(found[VALID], want[VALID], rtol=0, atol=1e-10)


def letters():
    """Words of one letter, padded on the left."""
    made = tokenizer(["<pad>", "<s>", "</s>", *string.ascii_lowercase], "<s>")
    marks = {"pad_token": "<pad>", "eos_token": "</s>", "padding_side": "left"}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made, **marks)


@pytest.mark.parametrize("mixer", ["linear", "transformer_xl"])
def test_what_lm_eval_calls(mixer):
    """`generate` for a padded batch, with stopping criteria and a cache, which HFLM always wants; and the pipeline."""
    model, words = llama(mixer, max_len=64), letters()
    model.tie_weights()
    assert model.config.max_position_embeddings == 64 and model.device.type == "cpu"
    assert model.config.model_type == "regard" and model.config.vocab_size == 30
    form = {"padding": "longest", "return_tensors": "pt", "return_token_type_ids": False}
    inputs = words(["a b c d", "a b"], **form)
    stop = transformers.StoppingCriteriaList([transformers.MaxLengthCriteria(7)])
    how = {"max_length": 12, "pad_token_id": words.pad_token_id, "use_cache": True}
    made = model.generate(**inputs, stopping_criteria=stop, do_sample=False, **how)
    assert made.shape == (2, 7)
    writes = transformers.pipeline("text-generation", model=model, tokenizer=words, device="cpu")
    alone = writes("a b", max_new_tokens=3, do_sample=False)[0]["generated_text"]
    text = words.decode(made[1], skip_special_tokens=True)
    assert text.replace(" ", "") == alone.replace(" ", "") != "ab"


def test_lm_eval_scores_and_continues_a_converted_folder(tmp_path):
    """lm-eval 0.4.13's HFLM itself, from the folder: padded batches, stop words, and the perplexity of a whole text."""
    lm_eval = pytest.importorskip("lm_eval", reason="the checks lack it: pip install lm-eval")
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    regard.hf.register()
    student, words = llama().float(), letters()
    student.save_pretrained(tmp_path)
    words.save_pretrained(tmp_path)
    model = HFLM(pretrained=str(tmp_path), device="cpu", batch_size=2, dtype="float32")
    assert type(model.model) is type(student) and model.max_length == 64 and lm_eval.__version__

    def ask(kind, *cases):
        return getattr(model, kind)([Instance(kind, {}, case, i) for i, case in enumerate(cases)])

    def score(context, text):
        ids = torch.tensor([words(context + text)["input_ids"]])
        logs = student(ids).logits.log_softmax(-1)[0, :-1].gather(1, ids[0, 1:, None])[:, 0]
        return logs[-len(words(text)["input_ids"]) :].sum().item()

    pairs = [("a b c", " d e"), ("a", " q z z f"), ("a f g h", " q")]
    found = [log for log, _ in ask("loglikelihood", *pairs)]
    assert found == pytest.approx([score(*pair) for pair in pairs], rel=1e-4)
    rolling = ask("loglikelihood_rolling", ("a b c d",))
    assert rolling == pytest.approx([score("</s>", " a b c d")], rel=1e-4)
    until = {"until": ["q"], "max_gen_toks": 8, "do_sample": False}
    contexts = ["a b c", "f", "g h i j"]
    found = ask("generate_until", *((context, until) for context in contexts))
    for context, text in zip(contexts, found, strict=True):
        ids = torch.tensor([words(context)["input_ids"]])
        alone = greedy(student, ids, new=8, eos_token_id=2)[0, ids.shape[1] :]
        assert text == words.decode(alone, skip_special_tokens=True).split("q")[0]
