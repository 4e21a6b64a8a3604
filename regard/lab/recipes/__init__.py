"""Whole runs as Python functions: `regard train NAME` starts one, and its fields are the options.

A recipe is a function without arguments that returns a Run; add yours to RECIPES, or call `start` on your own Run.
Nothing but the command line imports recipes.
"""

from regard.core import Catalog
from regard.lab.recipes import (
    images,
    language_models,
    pairs,
    published,
    synthetic,
    tables,
    texts,
)
from regard.lab.recipes.run import Recipe, Run, load, start, train

RECIPES: Catalog[Recipe] = Catalog(
    "recipe",
    tuple(
        map(
            Recipe,
            (
                synthetic.listops,
                synthetic.recall,
                synthetic.copy_across,
                synthetic.duplication,
                synthetic.xlnet_classifier,
                synthetic.lra_listops,
                language_models.stdlib_bytes,
                language_models.transformer_xl,
                language_models.shakespeare_bytes,
                language_models.stdlib_masked,
                language_models.spam_masked,
                language_models.newsgroups_masked,
                language_models.stdlib_permuted,
                language_models.xlnet,
                language_models.enwik8,
                language_models.text8,
                published.reformer,
                published.longformer,
                published.bigbird,
                published.performer,
                published.linformer,
                published.fnet,
                published.gmlp,
                published.mlp_mixer,
                published.gmlp_image,
                published.synthesizer,
                published.flash,
                published.flash_quad,
                texts.spam,
                texts.spam_transfer,
                texts.newsgroups,
                texts.newsgroups_transfer,
                texts.debian_sections,
                texts.bible_chapters,
                texts.xlnet_matcher,
                texts.imdb,
                texts.lra_retrieval,
                texts.labelled_texts,
                language_models.own_text,
                tables.own_table,
                pairs.translate_de,
                pairs.translate_fr,
                pairs.translate_it,
                pairs.bible_es,
                pairs.text_files,
                pairs.greek_english,
                pairs.docstrings,
                pairs.debian_summary,
                pairs.dialogue,
                images.digits,
                images.fashion_mnist,
                images.pathfinder,
                images.mnist,
                images.cifar10_grey,
                images.lra_pathfinder,
                tables.adult_mmoe,
                tables.adult_autoint,
                tables.adult_cross_network,
                tables.adult_compressed_interaction,
                tables.adult_factorization_machine,
                tables.adult_logistic_regression,
                tables.correlated_tasks,
                tables.planted_histories_din,
                tables.movielens_din,
                tables.amazon_reviews_din,
                tables.taobao_din,
                tables.criteo_autoint,
            ),
        )
    ),
)

__all__ = ["RECIPES", "Recipe", "Run", "load", "start", "train"]
