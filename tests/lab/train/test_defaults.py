"""What `regard train` can start, every task with its own model and every model that serves it, and how it ends: a curve as a picture, samples, the best weights."""

import re
from contextlib import suppress
from dataclasses import replace
from functools import cache

import pytest
import torch

from regard.core import OptionError, UnknownNameError
from regard.functional.patterns import First, Window
from regard.lab.data.windows import BYTE_VOCABULARY
from regard.lab.tasks import TASKS, Splits
from regard.lab.train import load, run_for, start
from regard.models import MODELS, Published
from regard.nn import after_step
from tests.command import loaded, ran

SIZES = {"train_size": 40, "valid_size": 12, "test_size": 12}
OF_BYTES = (
    "performer gmlp synthesizer flash gemma3 kimi_linear llama3 mamba2 qwen3 qwen3_next retnet"
)
TRAINED = {
    **{name: "listops" for name, model in MODELS.items() if isinstance(model, Published)},
    **dict.fromkeys(("mlp_mixer", "gmlp_image"), "digits"),
    **dict.fromkeys(OF_BYTES.split(), "stdlib_bytes"),
    **dict.fromkeys(("reformer", "flash_quad"), "recall"),
    "xlnet_classifier": "listops",
}
"""Model -> a task that needs no download."""


def test_every_task_has_a_run_and_every_model_a_task():
    served = set()
    for task in TASKS.names():
        run = run_for(task)
        assert run.task.name == task and run.task.kind in run.model.kinds
        for model in set(MODELS.names()) - served:
            with suppress(OptionError):
                run_for(f"{task}/{model}")
                served.add(model)
    assert served == set(MODELS.names())


@pytest.mark.parametrize(("name", "error", "said"), [
    ("adult/classifier", OptionError, r"classifier serves classify\. Models that .* autoint, "),
    ("adult/din", OptionError, "din reads history, and adult has none"),
    ("spam/patch_classifier", OptionError, "patch_classifier reads image_size, and spam has"),
    ("spam/mlp_mixer", OptionError, "spam has no pictures"),
    ("adult/mmoo", UnknownNameError, r"unknown model 'mmoo'\. Did you mean 'mmoe'\?"),
])  # fmt: skip
def test_a_model_that_does_not_serve_the_task_is_refused(name, error, said):
    with pytest.raises(error, match=said):
        run_for(name)


@cache
def items(task):
    sizes = {k: v for k, v in SIZES.items() if k in task.__dataclass_fields__}
    train = replace(task, **sizes).load().train
    return [train[n] for n in range(4)]


@pytest.mark.parametrize("model", TRAINED)
def test_a_few_steps_lower_the_loss(model):
    run = run_for(f"{TRAINED[model]}/{model}")
    batch = run.task.collate(items(run.task))
    torch.manual_seed(run.seed)
    model = run.model.build()
    optimizer = torch.optim.AdamW(model.parameters(), lr=run.train.lr)
    losses = []
    for _ in range(4):
        loss = run.task.loss(model, batch)
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        assert not [n for n, p in model.named_parameters() if p.grad is None]
        optimizer.step()
        after_step(model)
    assert losses[-1] < losses[0]
    assert 0 <= run.task.score(model, [batch])


def test_xlnet_reads_pairs_of_chapters():
    run = run_for("bible_chapters/xlnet_matcher")
    rows = torch.randint(1, 200, (4, 2, run.task.length))
    items = [
        {"first": a, "second": b[n:], "label": torch.tensor(n % 2)} for n, (a, b) in enumerate(rows)
    ]
    loss = run.task.loss(run.model.build(), run.task.collate(items))
    loss.backward()
    assert loss.isfinite()


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
    short = f"--task.length 1 --folder {run}1"  # windows of one byte have no half
    out = trained(capsys, f"train own_text --task.path {text} {short} {TINY}")
    assert "bits_per_byte" in out and " -> " not in out


def test_a_table_and_texts_say_how_they_were_read_and_what_needs_no_model(capsys, tmp_path):
    table, texts = tmp_path / "table.csv", tmp_path / "texts.csv"
    rows = [f"{age},{'NSEW'[age % 4]},{'yes' if age > 60 else 'no'}" for age in range(20, 100)]
    table.write_text("\n".join(["age,city,bought", *rows]))
    line = f"--task.path {table} --task.target bought --folder {tmp_path}/run --train.steps 2 --train.batch-size 8"
    out = trained(capsys, f"train own_table {line}")
    assert out.startswith("Read as: age numeric, city categorical (4), bought target.\n")
    assert ran(capsys, f"train own_table {line} --train.lr 0.5")[:2] == (2, "")  # another's folder
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
    for given in ((), (run_for("digits"),)):
        with pytest.raises(
            OptionError, match=r"load: there is no checkpoint in .* or name its folder"
        ):
            load(tmp_path, *given)


def test_a_run_whose_options_are_no_json_and_data_of_another_task_are_named(tmp_path):
    (tmp_path / "text.txt").write_text("the cat sat on the mat " * 99)
    run = run_for("own_text")
    brief = replace(run.train, steps=1, eval_every=1, batch_size=2)
    task = replace(run.task, path=tmp_path / "text.txt", length=16)
    patterns = {"patterns": (Window(4, 0), First(1))}
    model = replace(run.model, dim=8, num_heads=2, mixer="head_mix", mixer_options=patterns)
    run = replace(run, task=task, model=model, train=brief)
    start(run, tmp_path / "run", progress=False)
    with pytest.raises(
        OptionError, match=r"cannot be read back: head_mix: patterns .* load\(folder, run\)"
    ):
        load(tmp_path / "run")
    assert load(tmp_path / "run", run).config.mixer_options == patterns
    other = replace(run, model=replace(run.model, num_layers=run.model.num_layers + 1))
    with pytest.raises(OptionError, match=r"num_layers is .* Pass the Run that made it"):
        load(tmp_path / "run", other)
    labelled = replace(Splits.of(task), facts={"num_classes": 2})
    with pytest.raises(OptionError, match="language_model has no num_classes"):
        start(run, tmp_path / "other", splits=labelled, progress=False)
