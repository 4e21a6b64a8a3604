"""Terms of the loss beside the task's: each is its formula, changes what it is of, and is refused where there is none."""

from dataclasses import replace

import pytest
import torch

from regard import Mask, OptionError, build
from regard.lab.tasks import PlantedHistories
from regard.lab.train import TrainConfig, fit
from regard.lab.train.terms import Terms
from regard.models import ClassifierConfig, DINConfig
from regard.nn import disagreement
from tests.lab.train.tiny import CONFIG, Majority, TinyModel

SIZES = {"vocab_size": 3, "num_classes": 2, "dim": 8, "num_heads": 2, "max_len": 9}


def classifier(mixer="softmax", seed=0, **fields):
    torch.manual_seed(seed)
    return ClassifierConfig(**SIZES, mixer=mixer, **fields).build()


def of_batch(model, config, count=8):
    task = Majority()
    splits = task.load()
    batch = task.collate(splits.train[:count])
    terms = Terms(model, config, splits)
    with terms.watching() as calls:
        model(batch["tokens"], valid=batch["valid"])
    return terms.of(calls, batch), calls


@pytest.mark.parametrize("kind", ["subspace", "position", "output"])
@pytest.mark.parametrize("mixer", ["softmax", "linear"])
def test_disagreement_is_that_of_every_mixer_of_the_model(kind, mixer):
    model = classifier(mixer)
    config = replace(CONFIG, disagreement=kind, disagreement_weight=0.3)
    found, calls = of_batch(model, config)
    assert [call.mixer for call in calls] == model.encoder.mixers and len(calls) == 2
    each = [
        disagreement(call.mixer.observe(call.x, mask=call.mask), kind, valid=call.mask.valid)
        for call in calls
    ]
    torch.testing.assert_close(found, -0.3 * (each[0] + each[1]) / 2)
    found.backward()
    assert all(m.heads.value.weight.grad is not None for m in model.encoder.mixers[:1])


def trained(tmp_path, name, model, **fields):
    config = replace(CONFIG, steps=60, **fields)
    fit(model, Majority(), config, tmp_path / name, progress=False)
    return model.eval()


def test_training_with_the_term_makes_heads_disagree(tmp_path):
    models = {
        weight: trained(
            tmp_path,
            str(weight),
            TinyModel(),
            disagreement="output",
            disagreement_weight=weight,
        )
        for weight in (0.0, 5.0)
    }
    x = torch.randn(4, 6, 8)
    with torch.no_grad():
        low, high = (
            disagreement(model.mixer.observe(x), "output") for model in (models[0.0], models[5.0])
        )
    assert high > low + 0.05


def test_commitment_brings_tokens_to_their_centroids(tmp_path):
    def routed():
        torch.manual_seed(0)
        options = {"num_clusters": 3, "window_size": 4, "seed": 0}
        return TinyModel(build("routing", dim=8, num_heads=2, **options))

    config = replace(CONFIG, commitment=0.5)
    model = routed()
    found, calls = of_batch(model, config)
    assert len(calls) == 1
    expected = 0.5 * model.mixer.commitment_loss(calls[0].x, mask=calls[0].mask)
    torch.testing.assert_close(found, expected)
    plain = trained(tmp_path, "plain", routed())
    committed = trained(tmp_path, "committed", routed(), commitment=1.0)
    batch = Majority().collate(Majority().load().test)
    far, near = (
        m.mixer.commitment_loss(m.embed(batch["tokens"]), mask=Mask(valid=batch["valid"])).item()
        for m in (plain, committed)
    )
    assert near < far


def test_batch_l2_is_added_from_the_counts_of_the_table(tmp_path):
    task = PlantedHistories(train_size=200, valid_size=50, test_size=50)
    splits = task.load()
    config = TrainConfig(steps=1, batch_size=16, batch_l2=0.1)
    model = DINConfig(history=("history",), dim=4, **splits.facts).build()
    batch = task.collate([splits.train[i] for i in range(16)])
    terms = Terms(model, config, splits)
    with terms.watching() as calls:
        assert calls == []
    expected = 0.1 * model.batch_l2(batch["fields"], splits.schema.counts)
    assert expected > 0
    torch.testing.assert_close(terms.of([], batch), expected)
    result = fit(model, task, config, tmp_path, splits=splits, progress=False)
    assert result.steps == 1


def test_what_has_no_such_term_is_refused_before_training(tmp_path):
    for fields, message in [
        ({"commitment": 1e-4}, "no mixer with centroids"),
        ({"disagreement": "position"}, "does not support attention_map"),
        ({"batch_l2": 0.1}, "batch_l2 is DIN's"),
    ]:
        model = classifier("compressed" if "disagreement" in fields else "softmax")
        with pytest.raises(ValueError, match=message):
            fit(model, Majority(), replace(CONFIG, **fields), tmp_path, progress=False)
    with pytest.raises(OptionError, match="no mixer with several heads"):
        fit(
            classifier("fnet"),
            Majority(),
            replace(CONFIG, disagreement="output"),
            tmp_path,
            progress=False,
        )
    with pytest.raises(ValueError, match="called without gradients"):
        of_batch(classifier(residual="reversible_mean"), replace(CONFIG, disagreement="output"))
    for fields in ({"disagreement": "heads"}, {"schedule": "straight"}, {"commitment": -1.0}):
        with pytest.raises(OptionError, match=next(iter(fields))):
            replace(CONFIG, **fields)
