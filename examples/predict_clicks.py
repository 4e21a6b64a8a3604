# # Who clicks?
# Generated rows: a person clicks on what is like something that they have seen. DIN reads the history, logistic regression does not weigh it.

# %%
import os

import numpy as np

from regard.lab.tables import TableClassifier
from regard.lab.train import TrainConfig
from regard.models import DINConfig, LogisticRegressionConfig

SMALL = "REGARD_SMALL" in os.environ
ROWS, STEPS = (300, 10) if SMALL else (4000, 300)
ITEMS = [f"item {i}" for i in range(20)]


def rows(seed: int):
    rng = np.random.default_rng(seed)
    item = rng.choice(ITEMS, ROWS).tolist()
    seen = [rng.choice(ITEMS, rng.integers(1, 15)).tolist() for _ in range(ROWS)]
    clicked = np.array([one in before for one, before in zip(item, seen, strict=True)]).astype(int)
    return {"item": item, "seen": seen}, clicked


# %%
train = TrainConfig(steps=STEPS, batch_size=64, lr=1e-2, eval_every=STEPS)
for config in (LogisticRegressionConfig(), DINConfig(history=("seen",), dim=16)):
    model = TableClassifier(config, train=train, of={"seen": "item"}).fit(*rows(0))
    print(f"{config.name}: AUC {model.evaluate(*rows(1))['label'].auc:.3f} on unseen rows")
