"""What `regard train` can start: every task with its own model, and with every model that serves it."""

from contextlib import suppress
from dataclasses import replace
from functools import cache

import pytest
import torch

from regard.core import OptionError, UnknownNameError
from regard.lab.tasks import TASKS
from regard.lab.train import run_for
from regard.models import MODELS, Published
from regard.nn import after_step

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


@pytest.mark.parametrize(
    ("name", "error", "said"),
    [
        ("adult/classifier", OptionError, r"classifier serves classify\. Models that .* autoint, "),
        ("adult/din", OptionError, "din reads history, and adult has none"),
        ("spam/patch_classifier", OptionError, "patch_classifier reads image_size, and spam has"),
        ("spam/mlp_mixer", OptionError, "spam has no pictures"),
        ("adult/mmoo", UnknownNameError, r"unknown model 'mmoo'\. Did you mean 'mmoe'\?"),
    ],
)
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
