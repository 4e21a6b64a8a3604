"""Terms of the loss beside the task's: each is its formula, changes what it is of, and is refused where there is none."""

from dataclasses import replace

import pytest
import torch

from regard import Mask, build
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
    batch = task.collate([splits.train[i] for i in range(count)])
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
    seen = [(call.mixer.observe(call.x, mask=call.mask), call.mask.valid) for call in calls]
    each = [disagreement(one, kind, valid=valid) for one, valid in seen]
    torch.testing.assert_close(found, -0.3 * (each[0] + each[1]) / 2)
    found.backward()
    assert all(m.heads.value.weight.grad is not None for m in model.encoder.mixers[:1])


def trained(tmp_path, name, model, **fields):
    config = replace(CONFIG, steps=60, **fields)
    fit(model, Majority(), config, tmp_path / name, progress=False)
    return model.eval()


TERMS = {
    "commitment": ("routing", {"num_clusters": 3, "window_size": 4, "seed": 0}, "commitment_loss"),
    "auxiliary": ("indexed", {"top_k": 4}, "auxiliary_loss"),
}


@pytest.mark.parametrize("field", TERMS)
def test_what_a_mixer_adds_is_its_formula_and_falls_in_training(tmp_path, field):
    name, options, method = TERMS[field]

    def fresh():
        torch.manual_seed(0)
        return TinyModel(build(name, dim=8, num_heads=2, **options))

    model = fresh()
    found, (call,) = of_batch(model, replace(CONFIG, **{field: 0.5}))
    expected = 0.5 * getattr(model.mixer, method)(call.x, mask=call.mask)
    torch.testing.assert_close(found, expected)
    batch = Majority().collate(Majority().load().test)
    ends = []
    for weight in (1.0, None):
        model = trained(tmp_path, f"{weight}", fresh(), **{field: weight})
        x, mask = model.embed(batch["tokens"]), Mask(valid=batch["valid"])
        ends.append(getattr(model.mixer, method)(x, mask=mask))
    assert ends[0] < ends[1]


def test_batch_l2_is_added_from_the_counts_of_the_table(tmp_path):
    task = PlantedHistories(train_size=200, valid_size=50, test_size=50)
    splits = task.load()
    config = TrainConfig(steps=1, batch_size=16, batch_l2=0.1)
    model = DINConfig(history=("history",), dim=4, **splits.facts).build()
    batch = task.collate([splits.train[i] for i in range(16)])
    terms = Terms(model, config, splits)
    expected = 0.1 * model.batch_l2(batch["fields"], splits.schema.counts)
    assert expected > 0
    torch.testing.assert_close(terms.of([], batch), expected)
    assert fit(model, task, config, tmp_path, splits=splits, progress=False).steps == 1


@pytest.mark.parametrize(("mixer", "fields", "message"), [
    ("softmax", {"commitment": 1e-4}, "no mixer with centroids"),
    ("compressed", {"disagreement": "position"}, "does not support attention_map"),
    ("routing", {"auxiliary": 1.0}, "no mixer with an auxiliary loss"),
    ("softmax", {"batch_l2": 0.1}, "batch_l2 is DIN's"),
    ("fnet", {"disagreement": "output"}, "no mixer with several heads"),
])  # fmt: skip
def test_what_has_no_such_term_is_refused_before_training(tmp_path, mixer, fields, message):
    with pytest.raises(ValueError, match=message):
        trained(tmp_path, "refused", classifier(mixer), **fields)


def test_a_term_without_gradients_is_refused():
    with pytest.raises(ValueError, match="called without gradients"):
        of_batch(classifier(residual="reversible_mean"), replace(CONFIG, disagreement="output"))
