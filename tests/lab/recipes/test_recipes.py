"""What `regard train` can start."""

import pytest

from regard.lab.recipes import RECIPES
from regard.lab.tasks import TASKS
from regard.models import MODELS, Published, PublishedImages


@pytest.mark.parametrize("name", TASKS.names())
def test_every_task_has_a_recipe_whose_name_begins_as_its_own(name):
    own = [recipe for recipe in RECIPES.values() if recipe.name.startswith(name)]
    assert any(recipe().task.name == name for recipe in own), f"no recipe {name} or {name}_..."


def test_every_model_has_a_recipe():
    trained = {recipe().model.name for recipe in RECIPES.values()}
    stacks = {
        entry.name for entry in MODELS.values() if isinstance(entry, Published | PublishedImages)
    }
    assert stacks <= set(RECIPES.names())
    assert set(MODELS.names()) - stacks <= trained
