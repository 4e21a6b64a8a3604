"""`regard convert`, as a person types it."""

import json
import os
import shutil
from unittest.mock import Mock

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing

from regard.cli.convert import _tokens
from tests.command import loaded, ran, refused
from tests.hf.small import CHECKPOINTS, built, tokenizer

import regard.hf  # isort: skip

TEXT = "the cat sat on the mat and the dog sat on the cat while the mat lay on the floor\n" * 40
TAUGHT = "--text novel.txt --steps 8 --whole-steps 4 --length 12 --batch-size 4 --lr 0.01"


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """A small BERT and a small GPT-2, each with a tokenizer of words, and a text."""
    monkeypatch.chdir(tmp_path)
    for name in ("bert", "gpt2"):
        made = built(*CHECKPOINTS[name]).float()
        with torch.no_grad():  # started so small that attention hardly matters
            for key, parameter in made.named_parameters():
                if "attention" in key or "attn" in key:
                    parameter.mul_(10)
        made.save_pretrained(name)
        tokenizer(sorted(set(TEXT.split())), "the").save(f"{name}/tokenizer.json")
    (tmp_path / "novel.txt").write_text(TEXT)
    return tmp_path


def test_a_taught_model_is_nearer_and_is_read_back(folders, capsys):
    line = f"convert gpt2 local --options window_size=1 --layers 1 --out new {TAUGHT}"
    found = loaded(capsys, line)
    assert found["error"] < found["error untaught"] and found["layers changed"] == 1
    assert found["perplexity"] > 1 and (folders / "new" / "tokenizer.json").exists()
    again = regard.hf.load("new")
    assert [mixer.name for mixer in again.mixers] == ["softmax", "local"]
    loaded(capsys, f"convert new linear --layers 0 --out newer {TAUGHT}")
    assert [m.name for m in regard.hf.load("newer").mixers] == ["linear", "local"]
    (folders / "gpt2" / "tokenizer.json").unlink()
    loaded(capsys, "convert gpt2 linear --out newer")
    assert not (folders / "newer" / "tokenizer.json").exists()  # it was of another model


def test_a_killed_teaching_goes_on(folders, capsys, monkeypatch):
    line = f"convert bert linear --max-len 100 {TAUGHT}"
    assert ran(capsys, f"{line} --out whole")[0] == 0
    distillation = regard.lab.train.distillation.Distillation
    loss, steps = distillation.loss, Mock(side_effect=[None] * 39 + [KeyboardInterrupt])

    def killed(self, model, batch):
        steps()
        return loss(self, model, batch)

    with monkeypatch.context() as patch:
        patch.setattr(distillation, "loss", killed)
        code, _, err = ran(capsys, f"{line} --out parts")
    assert code == 130 and "This goes on: regard convert bert" in err
    assert list((folders / "parts/teaching").rglob("step-*"))
    assert ran(capsys, f"{line} --out parts")[0] == 0
    ours, theirs = (regard.hf.load(name).state_dict() for name in ("whole", "parts"))
    torch.testing.assert_close(theirs, ours)


@pytest.mark.parametrize(("error", "rates"), [(0.4, [1e-4, 5e-5]), (0.6, [5e-4, 2e-4])])
def test_a_near_model_is_taught_at_a_low_rate(folders, capsys, monkeypatch, error, rates):
    seen = []
    monkeypatch.setattr("regard.lab.train.fit", lambda *given, **_: seen.append(given[2].lr))
    monkeypatch.setattr("regard.lab.train.distillation.Distillation.score", lambda *_: error)
    assert ran(capsys, f"convert gpt2 local --out new {TAUGHT}".replace("--lr 0.01", ""))[0] == 0
    assert seen == rates


def test_teaching_that_loses_is_not_kept(folders, capsys):
    """A rate of 50 ruins the weights: the model that is written is the untaught one."""
    assert ran(capsys, "convert gpt2 local --options window_size=1 --out untaught")[0] == 0
    line = f"convert gpt2 local --options window_size=1 --out taught {TAUGHT} --lr 50"
    found = loaded(capsys, line)
    assert found["teaching kept"] == "nothing: it lowered no error"
    assert found["error"] == found["error untaught"]
    assert found["perplexity"] == found["perplexity untaught"]
    ours, untaught = (regard.hf.load(name).state_dict() for name in ("taught", "untaught"))
    torch.testing.assert_close(ours, untaught, rtol=0, atol=0)


def test_windows_have_the_special_tokens_of_a_text(folders):
    """[CLS] and [SEP] stand around each window, as around each text that the encoder was trained on."""
    path = str(folders / "bert" / "tokenizer.json")
    words = Tokenizer.from_file(path)
    count, ends = words.get_vocab_size(), ["[CLS]", "[SEP]"]
    words.add_special_tokens(ends)
    known = [(end, words.token_to_id(end)) for end in ends]
    words.post_processor = TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=known)
    words.save(path)
    plain = _tokens(folders / "gpt2", folders / "novel.txt", 12)
    windows = _tokens(folders / "bert", folders / "novel.txt", 12).view(-1, 12)
    assert (windows[:, 0] == count).all() and (windows[:, -1] == count + 1).all()
    inside = windows[:, 1:-1].flatten()[: len(plain)]
    assert len(inside) > 500 and inside.tolist() == plain[: len(inside)].tolist()


WRONG = {
    "convert nowhere linear": "there is no nowhere",
    "convert . linear": "has no config.json",
    "convert bert liner": "unknown mixer 'liner'. Did you mean 'linear'?",
    "convert bert linear --out bert": "--out (bert) is the folder of the model itself",
    "convert bert linear --out gpt2": "--out (gpt2) has a config.json already",
    "convert bert linear --out piped": "--out (piped) has a config.json already",
    "convert bert linear --options widow=3": "'widow'",
    "convert bert linear --text nowhere.txt": "nowhere.txt",
    "convert bert linear --steps 5": "steps is of teaching, which needs --text",
    "convert bert linear --text novel.txt --length 500": "fills 1 of the 33 windows of length 500",
    "convert bert linear --text novel.txt --length 900": "fills 0 of the 33 windows of length 900",
    "convert bert linear --text novel.txt --length 0": "length (0) must be a positive integer",
    "convert bert linear --text novel.txt --length 12 --batch-size 999": "batch_size is 999",
    "convert bert head_mix --options 'patterns=[Window(2,2),Window(1,1),All(),First(1)]' --text novel.txt --length 12": "an option or a field of the config is no JSON",
    "convert gpt2 linear --text novel.txt --length 1": "length 1 have no room for two tokens beside 0 special ones",
    "convert damaged linear --text novel.txt": "damaged/tokenizer.json is damaged",
    "explore gpt2 --text 'the cat' --compare turned": "--compare turned reads other ids or numbers in this input",
    "explore damaged": "damaged/tokenizer.json is damaged",
    "explore strange --text 'a cat'": "strange is damaged: WordLevel error: Missing [UNK] token",
    "convert strange linear --text novel.txt": "strange is damaged: WordLevel error",
    "explore panics --text 'the cat'": "the tokenizer of panics is damaged: ",
    "convert plain linear --text novel.txt": "plain has no tokenizer.json, with which --text would be read",
}


def test_what_is_wrong_is_one_line(folders, capsys):
    shutil.copytree(folders / "bert", folders / "damaged")
    (folders / "damaged" / "tokenizer.json").write_text('{"model": null}')
    shutil.copytree(folders / "gpt2", folders / "turned")
    words = sorted(set(TEXT.split()), reverse=True)
    tokenizer(words, "the").save(str(folders / "turned" / "tokenizer.json"))
    for name in ("strange", "panics"):
        shutil.copytree(folders / "bert", folders / name)
    made = tokenizer(["cat"], "[UNK]")
    made.save(str(folders / "strange" / "tokenizer.json"))
    known = json.loads((folders / "bert" / "tokenizer.json").read_text())
    start = [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}]
    known["post_processor"] = {"type": "TemplateProcessing", "special_tokens": {}}
    known["post_processor"] |= {"single": start, "pair": start}
    (folders / "panics" / "tokenizer.json").write_text(json.dumps(known))
    (folders / "piped").mkdir()
    os.mkfifo(folders / "piped" / "config.json")
    (folders / "plain").mkdir()
    (folders / "plain" / "config.json").write_text((folders / "bert" / "config.json").read_text())
    for line, said in WRONG.items():
        assert said in refused(capsys, line)
