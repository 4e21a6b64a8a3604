"""What follows from rows whose truth is known, because they were made up."""

import math
from collections import Counter
from dataclasses import replace

import pytest

from regard.lab import above, near, reaches
from regard.lab.experiment.ledger import Ledger
from regard.lab.experiment.results import Results, best_rate, questions, wider
from regard.lab.report.told import told
from tests.lab.experiment.tiny import (
    CLAIM,
    COLUMN,
    FAIR,
    GOOD,
    LINE,
    SCREEN,
    TINY,
    asked,
    made_up,
    results,
)


@pytest.fixture(scope="module")
def ask_once(tmp_path_factory):
    """Question -> its record, of which nothing was run."""
    folder, known = tmp_path_factory.mktemp("asked"), {}

    def ask(question=TINY):
        key = repr(question)
        if key not in known:
            with Ledger(folder / f"{len(known)}.sqlite") as ledger:
                known[key] = asked(question, ledger, folder)
        return known[key]

    return ask


def gain(fitted):
    return {"gain": 1.0}


def of(record, softmax=GOOD, window=FAIR, *, items=1000, lines=LINE, **more):
    given = {"softmax": softmax, "local, window 4": window, "no mixing": lines, "the bag": lines}
    return [row for name, values in given.items() for row in made_up(record, name, values, items=items, **more)]  # fmt: skip


def claimed(*expected, **fields):
    return replace(TINY, claims=(replace(CLAIM, expected=expected or CLAIM.expected, **fields),))


def judged(record, rows):
    (one,) = results(record, rows).judged()
    return one


@pytest.mark.parametrize(("question", "softmax", "window", "word", "why"), [
    (TINY, GOOD, FAIR, "agrees", None),
    (TINY, FAIR, GOOD, "disagrees", None),
    (TINY, GOOD, (0.2, 1.0) * 4, "cannot tell", None),
    (TINY, GOOD, (), "not run", None),
    (TINY, GOOD, LINE, "cannot tell", "`local, window 4` does not pass the three lines of address"),
    (TINY, GOOD, tuple(x - 0.005 for x in GOOD), "cannot tell", "the difference is smaller than 0.020"),
    (claimed(withdrawn="It was unfair."), GOOD, FAIR, "withdrawn", None),
    (claimed(near("softmax", "local, window 4", within=0.5)), GOOD, FAIR, "agrees", None),
    (claimed(near("softmax", "local, window 4", within=0.01)), GOOD, tuple(x - 0.005 for x in GOOD), "agrees", None),
    (claimed(reaches("softmax", 0.95)), GOOD, FAIR, "disagrees", None),
])  # fmt: skip
def test_the_verdict_is_right(ask_once, question, softmax, window, word, why):
    record = ask_once(question)
    one = judged(record, of(record, softmax, window))
    reason = one["bounds"][0]["reason"]
    assert one["verdict"] == word
    assert (reason or "").startswith(why or "") and (why is None) == (reason is None)


def test_cannot_tell_names_what_would_tell(ask_once):
    record = ask_once()
    for n in (8, 16):  # four cells, a minute each; the question has eight seeds
        rows = of(record, GOOD * (n // 8), (0.2, 1.0) * (n // 2))
        found = judged(record, [replace(row, seconds=60.0) for row in rows])
        more = 4 * (found["seeds"] - n)
        assert more > 0
        assert found["needs"] == f"about {found['seeds']} seeds, {more} more minutes of one core"
    few = of(record, GOOD, tuple(x - 0.05 for x in GOOD), items=20)
    turned = [replace(r, scores=r.scores[::-1]) if r.entry != "softmax" else r for r in few]
    assert judged(record, turned)["needs"] == "more than 20 test items, whatever the seeds"
    assert judged(record, of(record))["needs"] is None


def test_a_measure_that_no_result_has_is_named(ask_once):
    bound = above("softmax", "local, window 4", measure="gian")
    record = ask_once(replace(TINY, measures=gain, claims=(replace(CLAIM, expected=(bound,)),)))
    one = judged(record, [replace(row, values={"gain": 1.0}) for row in of(record)])
    assert one["verdict"] == "cannot tell"
    assert one["bounds"][0]["reason"] == "no result has a measure 'gian': they have accuracy, gain"


def test_a_best_rate_at_the_edge_tells_nothing(ask_once):
    record = ask_once()
    rows = [row for row in of(record) if row.entry != "softmax" or row.rate <= 1e-2]
    assert judged(record, rows)["bounds"][0]["reason"] == "the best rate of `softmax` is at the edge of those tried"  # fmt: skip


def test_rows_that_were_begun_before_the_claim_was_written_cannot_judge_it(ask_once):
    record = ask_once()
    early = of(record, started="2020-01-01T00:00:00+00:00")
    assert judged(record, early)["bounds"][0]["reason"] == "16 of 16 results were begun before the claim was written down"  # fmt: skip
    unlike = [row for row in early if row.entry in ("no mixing", "the bag")]
    mine = [row for row in of(record) if row.entry not in ("no mixing", "the bag")]
    assert judged(record, [*unlike, *mine])["verdict"] == "agrees", "of the entries that it names"


def test_a_claim_that_is_withdrawn_or_added_leaves_the_others_as_they_are(ask_once):
    record = ask_once()
    rows = of(record)
    later = replace(record.provenance, started="2099-01-01T00:00:00+00:00")
    two = replace(TINY, claims=(CLAIM, replace(CLAIM, text="Another.")))
    more = replace(ask_once(two), provenance=later)
    first, second = Results(more, [record, *rows, more]).judged()
    assert first["verdict"] == "agrees" and first["stated"] == record.provenance.started
    assert "before the claim was written down" in second["bounds"][0]["reason"]
    gone = replace(ask_once(claimed(withdrawn="Unfair.")), provenance=later)
    (one,) = Results(gone, [record, *rows, gone]).judged()
    assert one["verdict"] == "withdrawn" and one["bounds"][0]["verdict"] == "agrees"
    bigger = replace(TINY, vary=(replace(TINY.vary[0], train=replace(TINY.vary[0].train, steps=3)),))  # fmt: skip
    (one,) = Results(replace(ask_once(bigger), provenance=later), [record]).judged()
    assert one["stated"] == later.started, "another budget is another claim"


def test_the_question_as_it_was_asked_last_is_drawn(tmp_path):
    with Ledger(tmp_path / "l.sqlite") as ledger:
        one = asked(TINY, ledger, tmp_path)
        other = asked(replace(TINY, about="Another?"), ledger, tmp_path)
        assert questions(ledger.rows())[0].asked == other
        assert asked(TINY, ledger, tmp_path).config == one.config
        assert questions(ledger.rows())[0].config["about"] == TINY.about
        count = len(ledger.rows())
        asked(TINY, ledger, tmp_path)
        assert len(ledger.rows()) == count


def test_dead_runs_are_counted_and_not_in_the_mean(ask_once):
    record = ask_once()
    fatal = {3: {"value": None, "valid_value": None, "scores": [], "reason": "it diverged"}, 5: {"value": 0.05}}  # fmt: skip
    dead = [replace(row, **fatal.get(row.seed, {})) if row.entry == "softmax" else row for row in of(record)]  # fmt: skip
    found = results(record, dead)
    cell = found.cells["softmax", "address"]
    assert {row.seed for row in cell.failed} == {3, 5} and len(cell.rows) == 6
    assert cell.mean == pytest.approx(sum(v for s, v in enumerate(GOOD) if s not in (3, 5)) / 6)
    (row,) = [r for r in told([record, *dead])["questions"][0]["rows"] if r["entry"] == "softmax"]
    assert (row["cells"]["address"]["failed"], row["cells"]["address"]["of"]) == (2, 8)
    assert found.judged()[0]["bounds"][0]["interval"]["seeds"] == 6
    every = [replace(row, **fatal[3]) if row.entry == "softmax" else row for row in of(record)]
    cell = results(record, every).cells["softmax", "address"]
    assert (len(cell.failed), cell.rows, cell.reason) == (8, [], "it diverged")
    named = [replace(row, values={row.metric: 7.0}) for row in of(record)]
    cell = results(record, named).cells["softmax", "address"]
    assert {one.value for one in cell.by_seed(cell.rows[0].metric).values()} == {7.0}
    assert cell.mean == pytest.approx(sum(GOOD) / 8)
    all_low = of(record, softmax=(0.01,) * 4 + (0.2,) * 4)
    cell = results(record, all_low).cells["softmax", "address"]
    assert not cell.failed and cell.mean == pytest.approx(0.105)  # no run, but the entry
    assert results(record, all_low).mark(cell) == "not reached"


def test_the_rate_is_chosen_on_validation_and_by_seeds_that_tried_all(ask_once):
    record = ask_once()
    base = made_up(record, "softmax", (0.5,), rate=1e-2)[0]
    runs = [(1e-3, 0, 0.5), (1e-2, 0, 0.6), (1e-1, 0, 0.2), (1e-2, 1, 0.0), (1e-3, 2, 0.99)]
    tried = [replace(base, rate=rate, seed=seed, valid_value=valid) for rate, seed, valid in runs]
    assert best_rate(tried, "higher") == 1e-2 and best_rate(tried, "lower") == 1e-1
    assert best_rate([], "higher") is None
    equal = [replace(base, rate=rate) for rate in (1e-2, 1e-3)]  # in whatever order rows stand
    assert {best_rate(equal, "higher"), best_rate(equal[::-1], "higher")} == {1e-3}


def test_values_of_unlike_cells_and_data_never_meet(ask_once):
    record = ask_once()
    rows = of(record)
    strange = [replace(row, cell="f" * 64, value=0.0) for row in rows if row.entry == "softmax"]
    later = replace(record.provenance, started="2098-01-01T00:00:00+00:00")
    found = results(record, [*rows, *strange])
    assert found.cells["softmax", "address"].mean == pytest.approx(sum(GOOD) / 8)
    assert found.old == {"softmax": len(strange)}
    newer = [replace(row, data="a", provenance=later, value=0.5) for row in rows if row.entry == "softmax"]  # fmt: skip
    found = results(record, [*rows, *newer])  # the others are of other data than the column is now
    assert found.cells["softmax", "address"].mean == 0.5
    assert found.judged()[0]["verdict"] == "not run"
    assert found.old == Counter(row.entry for row in rows)


def test_rates_that_differ_in_the_last_bit_are_one(ask_once):
    record = ask_once()
    close = [replace(row, rate=row.rate and row.rate * (1 + 2**-50)) for row in of(record)]
    found = results(record, [*of(record), *close]).cells["softmax", "address"]
    assert len(found.rates) == len(results(record, of(record)).cells["softmax", "address"].rates)
    assert len(found.rows) == 8 and wider([1e-3, 3e-3], 3e-3) == 9e-3


def test_the_gain_is_what_lies_above_the_bag(ask_once):
    record = ask_once()
    found, bag = results(record, of(record)), max(LINE)
    assert found.gain("softmax") == pytest.approx((sum(GOOD) / 8 - bag) / (1 - bag))
    full = results(record, of(record, lines=(1.0,) * 8))
    assert full.gain("softmax") is None and math.isfinite(full.cells["softmax", "address"].mean)


def test_a_gain_is_of_the_columns_in_which_every_entry_was_asked(ask_once):
    other = replace(COLUMN, name="other", task=replace(COLUMN.task, length=20))
    record = ask_once(replace(SCREEN, vary=(COLUMN, other)))
    places = {label: cell for label, name, cell, *_ in record.config["cells"] if name == "other"}
    rows = of(record)
    again = [replace(row, column="other", cell=places[row.entry]) for row in rows]
    assert results(record, rows + again).gained == ["address", "other"]
    cut = results(record, rows + [row for row in again if row.entry != "local, window 4"])
    assert cut.gained == ["address"] and None not in map(cut.gain, cut.labels)


def test_rows_are_read_at_equal_time_too(ask_once):
    record = ask_once()
    rows = [replace(row, seconds=2.0) if row.entry == "softmax" else row for row in of(record)]
    assert results(record, rows).at_equal_time("address") == {
        "softmax": 0.1, "local, window 4": 0.2, "no mixing": 0.2, "the bag": 0.2,
    }  # fmt: skip
