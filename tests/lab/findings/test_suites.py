"""Every entry of a suite makes a run whose task and model fit; measures and tasks of suites are what they say."""

import pytest
import torch

from regard.lab.findings import FINDINGS
from regard.lab.findings.coordinates import SIZE, PlaceReaderConfig, WhitePixel
from regard.lab.findings.explain import AGREES, RANKS, agreement
from regard.lab.findings.memory import TUNED, _before
from regard.lab.recipes import Run

OURS = ("gates", "tables", "documents", "heads", "memory", "explain", "coordinates")


@pytest.mark.parametrize("name", OURS)
def test_every_entry_makes_its_run_and_differs_from_the_others(name):
    finding = FINDINGS[name]
    runs = {entry.name: entry.run() for entry in finding.entries if entry.run is not None}
    assert all(isinstance(run, Run) for run in runs.values())
    told = [repr(run) for run in runs.values()]
    assert len(set(told)) == len(told)
    assert finding.claims and finding.limits and finding.method
    used = {
        name
        for claim in finding.claims
        for one in claim.expected
        for name in (one.of, one.beside)
        if name
    }
    assert used <= {entry.name for entry in finding.entries}


def test_pre_training_is_redrawn_where_its_entry_says_so():
    found = {
        entry.label: _before(entry.label, 3)
        for entry in FINDINGS["memory"].entries
        if entry.part == TUNED
    }
    assert [label for label, run in found.items() if run is None] == [
        "softmax from scratch",
        "XLNet from scratch",
    ]
    redrawn = {label for label, run in found.items() if getattr(run and run.task, "redraw", False)}
    assert redrawn == {
        "XLNet, orders redrawn",
        "XLNet, redrawn spans",
        "XLNet, redrawn, both directions",
    }
    assert all(run.seed == run.train.seed == 3 for run in found.values() if run is not None)


def test_agreement_of_weights_and_effects():
    weights = torch.tensor([[0.6, 0.3, 0.1, 0.0], [0.2, 0.5, 0.3, 0.0], [0.9, 0.1, 0.0, 0.0]])
    effects = torch.tensor([[3.0, 2.0, 1.0, 9.0], [3.0, 1.0, 2.0, 0.0], [1.0, 2.0, 0.0, 0.0]])
    exists = torch.tensor([[True] * 3 + [False]] * 2 + [[True, True, False, False]])
    found = agreement(weights, effects, exists)
    assert found[AGREES] == 0.5 and found["by chance"] == pytest.approx(1 / 3)
    assert found[RANKS] == pytest.approx((1 - 1) / 2)
    assert agreement(weights[2:], effects[2:], exists[2:]) == {}


class Told(torch.nn.Module):
    """Reads the place off the picture."""

    def forward(self, x):
        at = x.argmax(1)
        return 2 * torch.stack([at // SIZE, at % SIZE], 1) / (SIZE - 1) - 1


@pytest.mark.parametrize("quadrant", [False, True])
def test_the_white_pixel(quadrant):
    task = WhitePixel(quadrant=quadrant)
    splits = task.load()
    parts = [part.columns["x"].argmax(1) for part in (splits.train, splits.valid, splits.test)]
    assert sorted(at for part in parts for at in part.tolist()) == list(range(SIZE**2))
    row, column = parts[2] // SIZE, parts[2] % SIZE
    lower_right = (row >= SIZE // 2) & (column >= SIZE // 2)
    assert lower_right.all() == quadrant and len(parts[2]) < SIZE**2 / 3
    batch = task.collate([splits.test[i] for i in range(len(splits.test))])
    assert task.score(Told(), [batch]) == pytest.approx(0, abs=1e-4)
    assert task.trivial_baseline(splits) > SIZE / 5
    for coordinates in (False, True):
        model = PlaceReaderConfig(coordinates=coordinates).build()
        assert model(batch["x"]).shape == (len(splits.test), 2)
        extra = 2 * 16 * 9 if coordinates else 0
        assert (
            sum(p.numel() for p in model.parameters()) == 3 * (16 * 16 * 9 + 16) + 160 + extra + 130
        )
