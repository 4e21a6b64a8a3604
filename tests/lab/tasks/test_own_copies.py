"""Tasks on a user's own copy, on files that the tests write; and the Bible in two versions."""

import sys
from types import SimpleNamespace

import pytest

from regard.core import MissingDataError, OptionError, StoredDataError
from regard.lab.tasks import BibleChapters, LabelledTexts, OwnTable, OwnText


def sizes(splits):
    return [len(part) for part in (splits.train, splits.valid, splits.test)]


class Saved:
    """What `datasets` loads, as far as it is read here: columns by name."""

    features = {"mood": None}
    column_names = ("words", "mood")

    def __init__(self, **columns):
        self.columns = columns

    def __getitem__(self, name):
        return self.columns[name]


@pytest.mark.parametrize("parts", [["all"], ["train", "test"], ["train", "validation", "test"]])
def test_labelled_texts_of_ones_own(tmp_path, monkeypatch, parts):
    saved = {
        part: Saved(
            words=[f"{part[:2]} {i:02} end" for i in range(40)], mood=[i % 2 for i in range(40)]
        )
        for part in parts
    }
    for part in saved.values():
        part["words"][7] = f"{parts[0][:2]} 05 again"  # the same, cut
    found = SimpleNamespace(load_from_disk=lambda path: saved if len(saved) > 1 else saved["all"])
    monkeypatch.setitem(sys.modules, "datasets", found)
    task = LabelledTexts(path=tmp_path, text="words", label="mood", length=5)
    splits = task.load()
    seen = [
        bytes((part[i]["tokens"] - 1).tolist())
        for part in (splits.train, splits.valid, splits.test)
        for i in range(len(part))
    ]
    assert len(set(seen)) == len(seen) > 30
    held = seen[len(splits.train) : len(splits.train) + len(splits.valid)]
    validation = "validation" if "validation" in parts else parts[0]
    assert {text[:2] for text in held} == {validation[:2].encode()}
    assert splits.facts == {"num_classes": 2} and "num_classes" not in task.facts


@pytest.mark.parametrize(
    "task",
    [LabelledTexts, OwnText, OwnTable],
)
def test_no_path_and_a_wrong_one_are_refused(task, tmp_path):
    with pytest.raises(OptionError, match=f"{task.name}: path must name your own"):
        task().load()
    with pytest.raises((MissingDataError, StoredDataError)):
        task(path=tmp_path).load()


def test_bible_chapters_stay_in_one_part_and_negatives_in_their_book():
    first = {(book, n): f"old {book} {n}" for book in (1, 2) for n in range(1, 60)}
    second = {(book, n): f"new {book} {n}" for book in (1, 2) for n in range(1, 60)}
    second[2, 7] = " ".join(second[2, 6].split()) + " "  # a repetition
    splits = BibleChapters().of(first, second)
    seen = []
    for part in (splits.train, splits.valid, splits.test):
        assert part.labels.double().mean() == 0.5
        chapters = set()
        for item in (part[i] for i in range(len(part))):
            a, b = (bytes((item[name] - 1).tolist()).split()[1:] for name in ("first", "second"))
            assert a[0] == b[0] and (a == b) == bool(item["label"])
            chapters |= {tuple(a), tuple(b)}
        seen.append(chapters)
    assert not (seen[0] & seen[1] or seen[0] & seen[2] or seen[1] & seen[2])
    assert (b"2", b"7") not in set().union(*seen)
