"""The end of `regard train`: a curve as a picture, samples, and lines that load the best weights."""

import re

import pytest
import torch

from regard.cli import main
from regard.core import OptionError
from regard.lab.data.windows import BYTE_VOCABULARY
from regard.lab.train import load, run_for

TINY = "--model.dim 8 --model.num-heads 2 --model.num-layers 1 --train.steps 4 --train.eval-every 2 --train.log-dir None"


def trained(capsys, line):
    code = main(line.split())
    out, err = capsys.readouterr()
    assert code == 0, err
    return out


def test_a_run_ends_with_a_picture_samples_and_how_to_load_it(capsys, tmp_path):
    out = trained(capsys, f"train digits --folder {tmp_path / 'run'} {TINY}")
    assert (tmp_path / "run/curve.png").read_bytes().startswith(b"\x89PNG")
    assert len(re.findall(r"test item \d: \d, and it is \d", out)) == 3
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


def test_what_cannot_be_loaded_is_refused(tmp_path):
    with pytest.raises(OptionError, match=r"load: there is no checkpoint in .*\. Name the folder"):
        load(tmp_path)
    with pytest.raises(OptionError, match="load: there is no checkpoint"):
        load(tmp_path, run_for("digits"))
