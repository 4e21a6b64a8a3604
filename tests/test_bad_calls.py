"""Fifteen thousand generated calls, a thousand of each room, with a likely wrong argument: an error of this library or a valid result, and nothing else."""

from tests import bad_calls as module
from tests.bad_calls import bad_calls

SUBJECTS = {"torch's layer"} | set(
    "functional parts mixers requests states pools scores positions models masks explorer adapters laboratory tables".split()
)
COUNT = 15_000


def test_no_bad_call_gives_a_raw_error_or_silence():
    found = bad_calls(COUNT, seed=0)
    assert not found.findings, "\n".join(found.findings)
    made = found.outcomes
    assert made.total() == COUNT and made["refused"] > COUNT // 2 and made["valid"] > COUNT // 20
    assert set(found.by_subject) == SUBJECTS


def test_the_same_seed_makes_the_same_calls():
    first, second, others = (bad_calls(120, seed).outcomes for seed in (5, 5, 7))
    assert first == second != others


def test_without_the_checks_raw_errors_and_silence_are_found(monkeypatch):
    monkeypatch.setattr("regard.core.options.fits", lambda kind, value: True)
    monkeypatch.setattr("regard.core.mixer.check_state", lambda *given: None)
    every = module._cases  # without checks torch's kernels read past what functions are given
    safe = [case for case in every() if case.subject != "functional"]
    monkeypatch.setattr(module, "_cases", lambda: safe)
    found = bad_calls(400, seed=0)
    assert found.outcomes["raw"] > 20 and found.outcomes["silent"] > 20
    assert len(found.findings) == found.outcomes["raw"] + found.outcomes["silent"]
