"""The end of `regard train`: a curve as a picture, samples, and lines that load the best weights."""

import re

import pytest
import torch

from regard.core import OptionError
from regard.lab.data.windows import BYTE_VOCABULARY
from regard.lab.train import load, run_for
from tests.command import loaded, ran

TINY = "--model.dim 8 --model.num-heads 2 --model.num-layers 1 --model.mixer-options num_kv_heads=1 --train.steps 4 --train.eval-every 2 --train.log-dir None"


def trained(capsys, line):
    code, out, err = ran(capsys, line)
    assert code == 0, err
    return out


def test_a_run_ends_with_a_picture_and_how_to_load_it(capsys, tmp_path):
    out = trained(capsys, f"train digits --folder {tmp_path / 'run'} {TINY}")
    assert (tmp_path / "run/curve.png").read_bytes().startswith(b"\x89PNG")
    assert "Samples" not in out
    found = {}
    exec(re.search(r"^    from .*\n    model = .*$", out, re.M)[0].replace("    ", ""), found)
    model = found["model"]
    assert not model.training and model(torch.ones(1, 64, dtype=torch.long)).shape == (1, 10)


def test_a_language_model_goes_on_with_text(capsys, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("To be, or not to be, that is the question. " * 400)
    run = tmp_path / "run"
    out = trained(capsys, f"train own_text --task.path {text} --folder {run} {TINY}")
    assert "The curve" in out and " -> " in (run / "samples.txt").read_text()
    assert load(run).config.vocab_size == BYTE_VOCABULARY
    line = f"train own_text --task.path {text} --task.length 1 --folder {run}1 {TINY}"
    out = trained(capsys, line)
    assert "bits_per_byte" in out and " -> " not in out  # windows of one byte have no half


def test_a_table_and_texts_say_how_they_were_read_and_what_needs_no_model(capsys, tmp_path):
    table, texts = tmp_path / "table.csv", tmp_path / "texts.csv"
    rows = [f"{age},{'NSEW'[age % 4]},{'yes' if age > 60 else 'no'}" for age in range(20, 100)]
    table.write_text("\n".join(["age,city,bought", *rows]))
    line = f"--task.path {table} --task.target bought --folder {tmp_path}/run --train.steps 2 --train.batch-size 8"
    out = trained(capsys, f"train own_table {line}")
    assert out.startswith("Read as: age numeric, city categorical (4), bought target.\n")
    assert ran(capsys, f"train own_table {line} --train.lr 0.5")[:2] == (
        2,
        "",
    )  # another run's folder
    beside = r" value of logistic regression  +1 *\n value of boosted trees  +1 *\n"
    assert re.search(rf" value  +[\d.]+ *\n{beside}", out)
    told = loaded(capsys, f"train own_table {line}")
    assert told["beside"] == {"logistic regression": 1, "boosted trees": 1}
    words = [f"item {n} is {('bad,no', 'good,yes', 'good,yes')[n % 3]}" for n in range(60)]
    texts.write_text("\n".join(["text,label", *words]))
    line = f"train labelled_texts --task.path {texts} --folder {tmp_path}/texts {TINY}"
    out = trained(capsys, line)
    assert out.startswith("Read as: text as bytes, label target (2: no, yes).\n")
    assert "value of most frequent class   0.6667" in out


def test_what_cannot_be_loaded_is_refused(tmp_path):
    with pytest.raises(OptionError, match=r"load: there is no checkpoint in .* or name its folder"):
        load(tmp_path)
    with pytest.raises(OptionError, match="load: there is no checkpoint"):
        load(tmp_path, run_for("digits"))
