"""Other mechanisms in loaded models."""

import copy
import os
import sys
from functools import partial
from itertools import islice
from unittest import mock

import pytest
import torch

from regard import OptionError, StoredDataError, UnsupportedError
from regard.core import PathError
from regard.hf import AttentionConfig, convert, load, save, teach, wrap
from regard.hf.convert import stack_error
from regard.lab import Entry
from regard.mixers.linear import Linear
from tests.hf.small import as_stack, model, tokens, transformers
from tests.refused import assert_refused

SOFTMAX = [  # limits at which the mechanism is softmax attention
    ("bert", "softmax", {}),
    ("bert", "local", {"window_size": 16}),
    ("bert", "bigbird", {"block_size": 16, "num_random": 0}),
    ("bert", "sinkhorn", {"block_size": 16}),
    ("bert", "linformer", {"projection": "mean", "num_slots": 16}),
    ("llama", "softmax", {}),
    ("llama", "scored", {}),  # turned heads know the distance between tokens
    ("qwen3_next", "softmax", {"layers": [3]}),  # whose gates go along
    ("qwen3_next", "local", {"layers": [3], "window_size": 16}),
]
LOSSY = ("linear", "routing", "compressed", "local")


def loaded(name: str):
    return as_stack(model(name))


def attentive(name: str):
    """A model starts with weights so small that its attention hardly matters; these are larger."""
    model = loaded(name).float()
    with torch.no_grad():
        for mixer in model.mixers:
            for part in (mixer.heads.query, mixer.heads.key, mixer.heads.value, mixer.heads.out):
                part.weight.mul_(15)
    return model


@pytest.mark.parametrize("name, mixer, options", SOFTMAX)
def test_projections_are_used_as_they_were(name, mixer, options):
    """Padding is on either side."""
    teacher, (ids, right) = loaded(name), tokens()
    student = convert(teacher, mixer, max_len=16, **options)
    for valid in (right, right.flip(1)):
        want = teacher(ids, valid=valid)[valid]
        torch.testing.assert_close(student(ids, valid=valid)[valid], want)
    program = torch.export.export(teacher, (ids,), {"valid": right}).module()
    torch.testing.assert_close(program(ids, valid=right)[right], teacher(ids, valid=right)[right])
    changed = options.get("layers", range(2))
    assert {student.mixers[n].name for n in changed} == {mixer}
    assert {teacher.mixers[n].name for n in changed} == {"softmax"}


@pytest.mark.parametrize("name, offset", [("bert", 0), ("roberta", 1)])
def test_tables_of_positions_are_tiled(name, offset):
    teacher = loaded(name)
    rows = teacher.embedding.place.weight[offset:]
    student = convert(teacher, "local", max_len=150, window_size=4)
    table = student.embedding.place.weight
    assert len(table) == 150 + offset and student.embedding.offset == offset
    torch.testing.assert_close(table[offset : offset + len(rows)], rows)
    torch.testing.assert_close(table[offset + len(rows) :][:5], rows[:5])
    assert student(torch.randint(3, 30, (1, 150))).isfinite().all()


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("mixer", LOSSY)
def test_teaching_brings_the_student_nearer(mixer, whole):
    torch.manual_seed(0)
    teacher, (ids, valid) = attentive("bert"), tokens()
    teacher = wrap(teacher) if whole else teacher
    options = {"window_size": 1} if mixer == "local" else {}
    student = convert(teacher, mixer, max_len=64, **options).train()
    assert isinstance(student, transformers.PreTrainedModel) == whole
    learned = student if whole else torch.nn.ModuleList(student.mixers)
    optimizer = torch.optim.Adam(learned.parameters(), lr=3e-3)
    losses = list(teach(student, teacher, [(ids, valid)] * 40, optimizer, whole=whole))
    assert losses[-1] < 0.7 * losses[0]


@pytest.mark.parametrize("stop", [None, 5], ids=["to_the_end", "stopped"])
def test_teaching_ends_with_the_weights_that_were_best_on_held_out_batches(stop):
    """At a rate that ruins the student, those from before the first step; at a right one, others."""
    teacher, batch = attentive("bert"), tokens()
    for rate, ruined in ((50.0, True), (1e-3, False)):
        student = convert(teacher, "local", window_size=1).train()
        first, before = stack_error(student, teacher, *batch), copy.deepcopy(student)
        optimizer = torch.optim.Adam(student.parameters(), lr=rate)
        how = {"whole": True, "held_out": [batch], "every": 4}
        lessons = teach(student, teacher, [batch] * 12, optimizer, **how)
        assert len(list(islice(lessons, stop))) == (stop or 12)
        lessons.close()
        last = stack_error(student, teacher, *batch)
        if ruined:
            torch.testing.assert_close(student.state_dict(), before.state_dict(), rtol=0, atol=0)
        assert student.training and (last == first if ruined else last < first)


def test_a_folder_is_saved_whole_or_not_at_all(tmp_path, monkeypatch):
    teacher, (ids, _) = loaded("bert"), tokens()
    with monkeypatch.context() as patch:
        patch.setattr(sys.modules["regard.hf.load"], "save_model", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            save(teacher, tmp_path / "new")
    assert not os.listdir(tmp_path)
    save(teacher, tmp_path / "new")
    student = convert(teacher, "linear")
    for stop, kept in ((0, teacher), (1, student)):  # the weights get their name first
        effects = [mock.DEFAULT] * stop + [KeyboardInterrupt]
        killed = mock.Mock(wraps=os.replace, side_effect=effects)
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr("os.replace", killed)
            save(student, tmp_path / "new")
        # And never a config beside others.
        assert os.listdir(tmp_path / "new") == ["model.safetensors"]
        torch.testing.assert_close(load(tmp_path / "new")(ids), kept(ids))
    for dtype in (torch.bfloat16, torch.float64):
        save(student.to(dtype), tmp_path / "new")
        again = load(tmp_path / "new")(ids)
        assert torch.equal(again, student(ids)) and again.dtype == dtype
    (tmp_path / "link").symlink_to("new")
    with pytest.raises(PathError, match="link cannot be written: it is no plain file"):
        save(teacher, tmp_path / "link")
    assert {*os.listdir(tmp_path)} == {"link", "new"}


def test_what_cannot_be_converted_taught_or_saved_is_refused(tmp_path):
    teacher, (ids, valid), layers = loaded("bert"), tokens(), r"layers .* must be some of 0 to 1"
    student, shallow = convert(teacher, "linear", max_len=100), copy.deepcopy(teacher)
    del shallow.blocks[-1]
    broken, exchanged = copy.deepcopy(student), copy.deepcopy(teacher)
    exchanged.blocks[0].mixer = student.blocks[0].mixer
    torch.nn.init.constant_(next(broken.mixers[0].parameters()), torch.nan)

    def taught(student, teacher, batch=(ids, valid), of=student):
        return next(teach(student, teacher, iter([batch]), torch.optim.SGD(of.parameters(), 0.1)))

    assert_refused(
        (OptionError, "the optimizer holds no parameter of the student", lambda: taught(student, teacher, of=teacher)),
        (UnsupportedError, "teach does not support Linear: it takes stacks", lambda: taught(student, torch.nn.Linear(2, 2))),
        (OptionError, "no parameter of the student that the loss", lambda: taught(frozen := copy.deepcopy(student).requires_grad_(False), teacher, of=frozen)),
        (OptionError, "two stacks of one depth", lambda: taught(student, shallow)),
        (OptionError, r"a batch must be \(tokens, valid\)", lambda: taught(student, teacher, (ids,))),
        (OptionError, "a batch has no valid token", lambda: taught(student, teacher, (ids, valid & False))),
        (OptionError, "the loss of step 0 is nan", lambda: taught(broken, teacher, of=broken)),
        (OptionError, "LBFGS asks for a loss several times", lambda: next(teach(student, teacher, [], torch.optim.LBFGS(student.parameters())))),
        (OptionError, "the student has the mixers of its teacher", lambda: taught(teacher, teacher, of=teacher)),
        (UnsupportedError, "fnet does not support convert: it has no queries, keys and", lambda: convert(teacher, "fnet")),
        (UnsupportedError, "convert does not support fnet: it has no projections", lambda: convert(loaded("fnet"), "linear")),
        (UnsupportedError, "local does not support the t5 positions", lambda: convert(loaded("t5_encoder"), "local")),
        *((UnsupportedError, "layers with an output gate, which it would", partial(convert, loaded("qwen3_next"), name, layers=[3]))
          for name in ("linear", "rfa")),
        (UnsupportedError, "linformer does not support causal", lambda: convert(loaded("gpt2"), "linformer")),
        (UnsupportedError, "does not support streaming: it is bidirectional", lambda: teacher.initial_state(2)),
        *((OptionError, f"{name} cannot be among a mechanism's options", partial(make, mixer="local", options={name: given}))
          for make in (Entry, AttentionConfig) for name, given in (("num_heads", 2), ("dim", 24), ("mixer", "x"))),
        (OptionError, "needs a function and a title", lambda: Entry(make=3, title="m")),
        (OptionError, "takes neither options nor model", lambda: Entry(make=int, title="m", model={"dropout": 0.5})),
        (OptionError, "convert: num_heads cannot be among", lambda: convert(teacher, "local", num_heads=2)),
        *((OptionError, f"convert: {name} cannot be among", partial(convert, loaded("llama"), "softmax", **{name: given}))
          for name, given in (("gate", True), ("qk_norm", True), ("head_dim", 12), ("num_kv_heads", 1), ("position", "alibi"))),
        (OptionError, layers, lambda: convert(teacher, "linear", layers=[])),
        (OptionError, layers, lambda: convert(teacher, "linear", layers=[2])),
        (OptionError, layers, lambda: convert(teacher, "linear", layers=[-1])),
        (UnsupportedError, "convert does not support EncoderDecoder", lambda: convert(loaded("t5"), "linear")),
        (OptionError, "can hold the name of a mixer and not the class Linear", lambda: save(convert(teacher, Linear), tmp_path)),
        (UnsupportedError, "save does not support Linear", lambda: save(teacher.mixers[0].heads.query, tmp_path)),
        *((UnsupportedError, "no part exchanged since", partial(save, one, tmp_path))
          for one in (exchanged, convert(exchanged, "linear", layers=[1]))),
        (UnsupportedError, "or load did not make it so", lambda: wrap(exchanged)),
        (UnsupportedError, "does not support GPT2Model: it has no head of", lambda: convert(model("gpt2").transformer, "linear")),
        (StoredDataError, r"has no config\.json", lambda: load(tmp_path / "nothing")),
    )  # fmt: skip
