"""Whole runs as Python functions: `regard train NAME` starts one, and its fields are the options.

A recipe is a function without arguments that returns a Run; add yours to RECIPES, or call `start` on your own Run.
The library never imports recipes; only the command line does.
"""

from regard.core import Catalog
from regard.lab.recipes.adult import (
    adult_autoint,
    adult_factorization_machine,
    adult_logistic_regression,
    adult_mmoe,
)
from regard.lab.recipes.bible_chapters import bible_chapters
from regard.lab.recipes.copy_across import copy_across
from regard.lab.recipes.correlated_tasks import correlated_tasks
from regard.lab.recipes.criteo import criteo_autoint
from regard.lab.recipes.debian_sections import debian_sections
from regard.lab.recipes.debian_summary import debian_summary
from regard.lab.recipes.dialogue import dialogue
from regard.lab.recipes.digits import digits
from regard.lab.recipes.docstrings import docstrings
from regard.lab.recipes.duplication import duplication
from regard.lab.recipes.fashion_mnist import fashion_mnist
from regard.lab.recipes.greek_english import greek_english
from regard.lab.recipes.histories import (
    amazon_reviews_din,
    movielens_din,
    planted_histories_din,
    taobao_din,
)
from regard.lab.recipes.listops import listops
from regard.lab.recipes.newsgroups import newsgroups
from regard.lab.recipes.newsgroups_masked import newsgroups_masked
from regard.lab.recipes.newsgroups_transfer import newsgroups_transfer
from regard.lab.recipes.own_copies import (
    cifar10_grey,
    enwik8,
    imdb,
    labelled_texts,
    lra_listops,
    lra_pathfinder,
    lra_retrieval,
    mnist,
    text8,
)
from regard.lab.recipes.pathfinder import pathfinder
from regard.lab.recipes.permuted import stdlib_permuted
from regard.lab.recipes.published import (
    bigbird,
    flash,
    flash_quad,
    fnet,
    gmlp,
    gmlp_image,
    linformer,
    longformer,
    mlp_mixer,
    performer,
    reformer,
    synthesizer,
)
from regard.lab.recipes.recall import recall
from regard.lab.recipes.run import Recipe, Run, start
from regard.lab.recipes.shakespeare_bytes import shakespeare_bytes
from regard.lab.recipes.spam import spam
from regard.lab.recipes.spam_masked import spam_masked
from regard.lab.recipes.spam_transfer import spam_transfer
from regard.lab.recipes.stdlib_bytes import stdlib_bytes
from regard.lab.recipes.stdlib_masked import stdlib_masked
from regard.lab.recipes.transformer_xl import transformer_xl
from regard.lab.recipes.translation import (
    bible_es,
    text_files,
    translate_de,
    translate_fr,
    translate_it,
)
from regard.lab.recipes.xlnet import xlnet, xlnet_classifier, xlnet_matcher

RECIPES: Catalog[Recipe] = Catalog(
    "recipe",
    tuple(
        map(
            Recipe,
            (
                listops,
                digits,
                stdlib_bytes,
                stdlib_permuted,
                recall,
                copy_across,
                duplication,
                transformer_xl,
                xlnet,
                xlnet_classifier,
                xlnet_matcher,
                reformer,
                longformer,
                bigbird,
                performer,
                linformer,
                fnet,
                gmlp,
                gmlp_image,
                mlp_mixer,
                synthesizer,
                flash_quad,
                flash,
                docstrings,
                translate_de,
                translate_fr,
                translate_it,
                bible_es,
                text_files,
                greek_english,
                debian_summary,
                dialogue,
                spam,
                spam_masked,
                spam_transfer,
                newsgroups,
                newsgroups_masked,
                newsgroups_transfer,
                debian_sections,
                bible_chapters,
                fashion_mnist,
                pathfinder,
                shakespeare_bytes,
                stdlib_masked,
                correlated_tasks,
                adult_mmoe,
                adult_autoint,
                adult_factorization_machine,
                adult_logistic_regression,
                planted_histories_din,
                movielens_din,
                amazon_reviews_din,
                taobao_din,
                criteo_autoint,
                cifar10_grey,
                enwik8,
                text8,
                mnist,
                labelled_texts,
                imdb,
                lra_listops,
                lra_pathfinder,
                lra_retrieval,
            ),
        )
    ),
)

__all__ = ["RECIPES", "Recipe", "Run", "start"]
