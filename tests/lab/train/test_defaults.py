"""What `regard train` can start: every task with its own model, and with every model that serves it."""

from dataclasses import replace
from functools import cache

import pytest
import torch

from regard.core import Mixer, OptionError, UnknownNameError
from regard.lab.tasks import TASKS, BibleChapters
from regard.lab.train import run_for
from regard.models import MODELS, Published

SIZES = {"train_size": 40, "valid_size": 12, "test_size": 12}
STACKS = {e.name: e for e in MODELS.values() if isinstance(e, Published)}
TRAINED = {
    **dict.fromkeys(STACKS, "listops"),
    **dict.fromkeys(("mlp_mixer", "gmlp_image"), "digits"),
    **dict.fromkeys(("performer", "gmlp", "synthesizer", "flash"), "stdlib_bytes"),
    **dict.fromkeys(("llama3", "qwen3", "gemma3"), "stdlib_bytes"),
    "reformer": "recall",
    "flash_quad": "recall",
    "xlnet_classifier": "listops",
}
"""Model -> a task that needs no download."""


@pytest.mark.parametrize("name", TASKS.names())
def test_every_task_has_a_run(name):
    run = run_for(name)
    assert run.task.name == name and run.task.kind in run.model.kinds


def test_every_model_trains_on_a_task():
    served = set()
    for task in TASKS.names():
        for model in set(MODELS.names()) - served:
            try:
                run_for(f"{task}/{model}")
            except OptionError:
                continue
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
        ("adlt/mmoe", UnknownNameError, r"unknown task 'adlt'\. Did you mean 'adult'\?"),
    ],
)
def test_a_model_that_does_not_serve_the_task_is_refused(name, error, said):
    with pytest.raises(error, match=said):
        run_for(name)


@cache
def splits(task):
    sizes = {k: v for k, v in SIZES.items() if k in task.__dataclass_fields__}
    return replace(task, **sizes).load()


@pytest.mark.parametrize("model", TRAINED)
def test_a_few_steps_lower_the_loss(model):
    run = run_for(f"{TRAINED[model]}/{model}")
    data = splits(run.task).train
    batch = run.task.collate([data[n] for n in range(4)])
    torch.manual_seed(run.seed)
    model = run.model.build()
    optimizer = torch.optim.AdamW(model.parameters(), lr=run.train.lr)
    losses = []
    for _ in range(4):
        loss = run.task.loss(model, batch)
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        missed = [n for n, p in model.named_parameters() if p.grad is None]
        assert not missed
        optimizer.step()
        for module in model.modules():
            if isinstance(module, Mixer):
                module.after_step()
    assert losses[-1] < losses[0]
    assert 0 <= run.task.score(model, [batch])


def test_xlnet_reads_pairs_of_chapters():
    run = run_for("bible_chapters/xlnet_matcher")
    assert isinstance(run.task, BibleChapters)
    generator = torch.Generator().manual_seed(0)
    items = [
        {
            "first": torch.randint(1, 200, (run.task.length,), generator=generator),
            "second": torch.randint(1, 200, (run.task.length - n,), generator=generator),
            "label": torch.tensor(n % 2),
        }
        for n in range(4)
    ]
    loss = run.task.loss(run.model.build(), run.task.collate(items))
    loss.backward()
    assert loss.isfinite()
