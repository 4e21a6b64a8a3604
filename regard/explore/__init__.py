"""Shows what a model attends to: one readout for every mechanism, attributions, and how far they agree.

    readout(mixer, x)      layers(model, tokens)             weights [B H T S], or the influence of each token on each
    head_statistics(w)     head_divergence(w)                entropy, distance, usual places; how alike heads are
    rollout  flow  gradient_times_attention  integrated_gradients  leave_one_out
    agreement(scores)      alignment_error_rate(w, links)
    page(model, tokens)    one HTML file of all of it, shown in a notebook

Weights are diagnostics and no proof of what an output is owed to (Jain & Wallace 2019, arXiv 1902.10186; Wiegreffe & Pinter 2019,
arXiv 1908.04626): set `leave_one_out` or `integrated_gradients` beside them.
"""

from regard.core import check_calls
from regard.explore.agreement import (
    Agreement,
    agreement,
    alignment_error_rate,
    kendall,
    overlap,
    spearman,
)
from regard.explore.attribution import (
    Gradients,
    flow,
    gradient_times_attention,
    integrated_gradients,
    last_logits,
    leave_one_out,
    rollout,
)
from regard.explore.inputs import Inputs
from regard.explore.readout import Layer, Readout, influence, kind_of, layers, readout
from regard.explore.render import Page, page
from regard.explore.statistics import HeadStatistics, head_divergence, head_statistics

__all__ = [
    "Agreement",
    "Gradients",
    "HeadStatistics",
    "Inputs",
    "Layer",
    "Page",
    "Readout",
    "agreement",
    "alignment_error_rate",
    "flow",
    "gradient_times_attention",
    "head_divergence",
    "head_statistics",
    "influence",
    "integrated_gradients",
    "kendall",
    "kind_of",
    "last_logits",
    "layers",
    "leave_one_out",
    "overlap",
    "page",
    "readout",
    "rollout",
    "spearman",
]

check_calls(globals(), __all__)
