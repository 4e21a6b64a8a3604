"""Packed rows inside Transformers: documents side by side in a row equal rows of their own, in any of the ways to tell of them."""

from itertools import product

import pytest
import torch

from tests.hf import small
from tests.hf.small import transformers
from tests.hf.test_causal import llama, wrapped
from tests.refused import assert_refused

import regard.hf  # isort: skip
from regard import ShapeError, UnsupportedError
from regard.hf.states import StateCache
from regard.models import ClassifierConfig

LENGTHS = 7, 1, 12, 5
ROWS = [torch.randint(3, 30, (n,), generator=torch.Generator().manual_seed(n)) for n in LENGTHS]
join = transformers.DataCollatorWithFlattening(return_flash_attn_kwargs=True, return_seq_idx=True)
FLAT = join([{"input_ids": row.tolist()} for row in ROWS])
OFFSETS = {name: z for name, z in FLAT.items() if name.startswith(("cu_seq_lens", "max_length"))}
POSITIONS = {"position_ids": FLAT["position_ids"]}
TOLD = {
    "positions": POSITIONS,
    "positions and a mask": {"attention_mask": torch.ones_like(FLAT["input_ids"]), **POSITIONS},
    "all": {"seq_idx": FLAT["seq_idx"], **POSITIONS, **OFFSETS},
    # without positions, which a model of Transformers then counts through the row
    "offsets": OFFSETS,
    "numbers": {"seq_idx": FLAT["seq_idx"]},
}
OURS = {
    "rotary": llama,
    "table": lambda: regard.hf.convert(small.model("gpt2"), "linear").double(),
    "masked": lambda: regard.hf.convert(small.model("bert"), "local", window_size=2).double(),
    "wrapped": lambda: wrapped("performer"),
}
MIXERS = ["softmax", "linear", "local", "performer"]
CASES = [
    *product(OURS, TOLD),
    *product([("llama", "softmax")], TOLD),  # places in the row change no distance
    *product([("llama", mixer) for mixer in MIXERS[1:]], [*TOLD][:3]),
    *product([("gpt2", mixer) for mixer in MIXERS], ["positions"]),  # told nothing but a mask
    (("mistral", "softmax"), "positions"),  # whose windows are packed too
]
ABSENT = torch.tensor([[1, 1, 1, 0, 0, 1, 1, 1, 1]])
PLACES = {"none": None, "of all": torch.arange(9)[None], "of those present": ABSENT.cumsum(1) - 1}
regard.hf.register()


def close(got, want, error=1e-10):
    torch.testing.assert_close(got, want, rtol=100 * error, atol=error)


@pytest.mark.parametrize("of, told", CASES)
def test_documents_side_by_side_are_rows_of_their_own(of, told, monkeypatch):
    model = OURS[of]() if of in OURS else small.model(of[0], f"regard_{of[1]}")
    if of not in OURS:
        small.widened(model, monkeypatch)
    got = model(FLAT["input_ids"], **TOLD[told]).logits
    want = torch.cat([model(row[None]).logits for row in ROWS], 1)
    close(got, want)
    weight = next(model.parameters())
    close(*(torch.autograd.grad(y.sin().sum(), weight)[0] for y in (got, want)))


@pytest.mark.parametrize("numbered", [False, True])
def test_padding_between_and_around_documents(numbered):
    """Positions count valid tokens; those of padding mean nothing, nor do its numbers."""
    model = llama()
    ids = torch.randint(3, 30, (2, 9), generator=torch.Generator().manual_seed(5))
    mask = torch.tensor([[0, 0, 1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 1, 1, 1, 1, 0]])
    position = torch.tensor([[0, 0, 0, 1, 2, 3, 4, 5, 6], [0, 1, 2, 9, 3, 0, 1, 2, 3]])
    numbers = torch.tensor([[4, 0, 1, 1, 1, 1, 1, 1, 1], [0, 0, 0, 5, 0, 1, 1, 1, 2]])
    told = {"seq_idx": numbers} if numbered else {}
    got = model(ids, attention_mask=mask, position_ids=position, **told).logits
    close(got[0, 2:], model(ids[:1, 2:]).logits[0])
    close(got[1, [0, 1, 2, 4]], model(ids[1:, [0, 1, 2, 4]]).logits[0])
    close(got[1, 5:8], model(ids[1:, 5:8]).logits[0])


@pytest.mark.parametrize("places", PLACES)
def test_tokens_absent_in_the_middle_end_no_document(places):
    model, found = small.model("llama"), []
    given = {"attention_mask": ABSENT, "position_ids": PLACES[places], "use_cache": False}
    for name in ("eager", "regard_softmax"):
        model.set_attn_implementation(name)
        found.append(model(FLAT["input_ids"][:, :9], **given).logits[ABSENT.bool()])
    close(*found, error=1e-6)  # eager has a softmax of float32


def test_the_loss_is_that_of_rows_alone():
    """A document's first token is predicted by none; `num_items_in_batch` divides the sum, as Trainer wants it."""
    model, ids = llama(), FLAT["input_ids"]
    loss = model(ids, position_ids=FLAT["position_ids"], labels=ids).loss
    long = [row for row in ROWS if len(row) > 1]
    sums = [model(row[None], labels=row[None]).loss * (len(row) - 1) for row in long]
    count = sum(LENGTHS) - len(LENGTHS)
    close(loss, sum(sums) / count, 1e-8)  # float32, as everywhere in Transformers
    one, two = (model(row[None], labels=row[None], num_items_in_batch=17).loss for row in ROWS[::2])
    with pytest.raises(ShapeError, match=r"do not fit logits .* unsupported operand"):
        model(ROWS[0][None], labels=ROWS[0][None], num_items_in_batch="17")
    close(one + two, (sums[0] + sums[1]) / 17, 1e-8)
    row, there = long[0][None], torch.ones_like(long[0][None])
    for at in (0, 2, len(long[0])):  # absent tokens before, within and behind it
        gap, marks = torch.full((1, 3), 5), torch.zeros(1, 3, dtype=torch.long)
        ids = torch.cat([row[:, :at], gap, row[:, at:]], 1)
        valid = torch.cat([there[:, :at], marks, there[:, at:]], 1)
        alone = model(row, labels=row).loss
        for cached in (False, True):
            loss = model(ids, attention_mask=valid, labels=ids, use_cache=cached).loss
            close(loss, alone, 1e-7)
            if not at:  # Trainer counts the first label, which nothing predicts
                labels = ids.masked_fill(valid == 0, -100)
                loss = model(
                    ids, attention_mask=valid, labels=labels, num_items_in_batch=len(long[0])
                ).loss
                close(loss, alone, 1e-7)


def test_what_would_be_ignored_is_refused():
    model, ids, cache = llama(), FLAT["input_ids"], StateCache()
    position, theirs = FLAT["position_ids"], small.model("llama", "regard_linear")
    model(ids[:, :4], past_key_values=cache)
    past = theirs(ids[:, :10], use_cache=True).past_key_values
    classifier = regard.hf.wrap(ClassifierConfig(**small.OURS, num_classes=2))

    def after(place: int):
        given = {"past_key_values": cache, "position_ids": torch.tensor([[place]])}
        return model(ids[:, 4:5], **given)

    def offsets(*queries: int, **keys):
        return model(ids, cu_seq_lens_q=torch.tensor(queries), **keys)

    unlike = "does not support position_ids other than 0, 1, 2"
    assert_refused(
        (UnsupportedError, unlike, lambda: model(ids, position_ids=position + 1)),
        (UnsupportedError, unlike, lambda: model(ids, position_ids=torch.arange(25)[None] * 2)),
        (UnsupportedError, unlike, lambda: after(0)),
        (UnsupportedError, "does not support documents in a row beside past_key_values",
         lambda: model(ids, use_cache=True, position_ids=position)),
        (ShapeError, "cu_seq_lens_q must be of 1 rows of 25 tokens", lambda: offsets(0, 3, 9)),
        (UnsupportedError, "does not support cu_seq_lens_k unlike cu_seq_lens_q",
         lambda: offsets(0, 3, 25, cu_seq_lens_k=torch.tensor([0, 4, 25]))),
        (UnsupportedError, "linear does not support documents in a row of 15 queries over 25 keys",
         lambda: theirs(ids[:, 10:], past_key_values=past, position_ids=position[:, 10:])),
        (UnsupportedError, "it gives one answer for each row", lambda: classifier(ids, position_ids=position)),
    )  # fmt: skip
    after(4)
