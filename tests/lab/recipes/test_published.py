"""A few steps of every recipe of a published stack, on a few of its task's own items."""

from dataclasses import replace

import pytest
import torch

from regard.core import Mixer
from regard.lab.recipes import RECIPES
from regard.models import MODELS, Published, PublishedImages

SIZES = {"train_size": 40, "valid_size": 12, "test_size": 12}
NAMES = [
    recipe.name
    for recipe in RECIPES.values()
    if recipe.make.__module__ == "regard.lab.recipes.published"
]


@pytest.fixture(scope="module")
def splits():
    """The data of each task, loaded once and small where possible."""
    found = {}

    def load(task):
        if task.name not in found:
            sizes = {k: v for k, v in SIZES.items() if k in task.__dataclass_fields__}
            found[task.name] = replace(task, **sizes).load()
        return found[task.name]

    return load


@pytest.mark.parametrize("name", [*NAMES, "xlnet_classifier"])
def test_a_few_steps_lower_the_loss(name, splits):
    run = RECIPES[name]()
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


def test_every_published_stack_has_a_recipe():
    stacks = {e.name for e in MODELS.values() if isinstance(e, Published | PublishedImages)}
    assert stacks == set(NAMES)


def test_xlnet_reads_pairs_of_chapters():
    run = RECIPES["xlnet_matcher"]()
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
