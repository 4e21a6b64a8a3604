"""Ten questions of the articles as values, a file each or a few, which the engine runs: `regard arena questions.flash:QUESTION`.

gated units and FLASH        flash
Synthesizers                 synthesizer, transfer
reach by distance            reach
recall and bytes of state    recall, hybrids
heads and projections        heads, disagreement, scores, width
norms, positions             norms, norm_kinds, positions, coordinates
memory of segments           memory
sets and tasks               histories, gates, documents, crosses
fewer keys                   keys
order at three budgets       order, parity
"""
