"""Whole runs as Python functions: `regard train NAME` starts one, and its fields are the options.

A recipe is a function without arguments that returns a Run; add yours to RECIPES, or call `start` on your own Run.
The library never imports recipes; only the command line does.
"""

from regard.core import Catalog
from regard.recipes.copy_across import copy_across
from regard.recipes.debian_summary import debian_summary
from regard.recipes.dialogue import dialogue
from regard.recipes.digits import digits
from regard.recipes.docstrings import docstrings
from regard.recipes.greek_english import greek_english
from regard.recipes.listops import listops
from regard.recipes.published import (
    bigbird,
    flash,
    flash_quad,
    fnet,
    gmlp,
    linformer,
    longformer,
    mlp_mixer,
    performer,
    reformer,
    synthesizer,
)
from regard.recipes.run import Recipe, Run, start
from regard.recipes.stdlib_bytes import stdlib_bytes
from regard.recipes.transformer_xl import transformer_xl
from regard.recipes.translation import bible_es, translate_de, translate_fr, translate_it
from regard.recipes.xlnet import xlnet

RECIPES: Catalog[Recipe] = Catalog(
    "recipe",
    tuple(
        map(
            Recipe,
            (
                listops,
                digits,
                stdlib_bytes,
                copy_across,
                transformer_xl,
                xlnet,
                reformer,
                longformer,
                bigbird,
                performer,
                linformer,
                fnet,
                gmlp,
                mlp_mixer,
                synthesizer,
                flash_quad,
                flash,
                docstrings,
                translate_de,
                translate_fr,
                translate_it,
                bible_es,
                greek_english,
                debian_summary,
                dialogue,
            ),
        )
    ),
)

__all__ = ["RECIPES", "Recipe", "Run", "start"]
