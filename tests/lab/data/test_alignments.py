import json

import pytest

from regard.core import StoredDataError
from regard.lab.data.bibles import read_aligned_verses
from regard.lab.data.pairs import Pair

SOURCE = "\n".join(
    [
        "id\taltId\ttext",
        "n40001001001\ta\tΒίβλος",
        "n40001001002\tb\tγενέσεως",
        'n40001002001\tc\t"Ἀβραὰμ',
        "n40002001001\td\tΤοῦ",
    ]
)
TARGET = "\n".join(
    [
        "id\tsource_verse\ttext\texclude",
        "40001001001\t40001001\tThe\t",
        "40001001002\t40001001\tbook\t",
        "40001001003\t40001001\t,\ty",
        "40001001004\t40001001\tof\t",
        "40001002001\t40001002\tAbraham\t",
        "40002001001\t40002001\tunlinked\t",
    ]
)
RECORDS = {
    "records": [
        {"source": ["n40001001001"], "target": ["40001001001", "40001001002"]},
        {"source": ["n40001001002", "n40001001001"], "target": ["40001001004", "40001001003"]},
        {"source": ["n40001002001"], "target": ["40001002001", "40001001001"]},
    ]
}


def test_words_and_links_by_verse():
    assert read_aligned_verses(SOURCE, TARGET, json.dumps(RECORDS)) == [
        Pair("Βίβλος γενέσεως", "The book of", "40001", ((0, 0), (0, 1), (0, 2), (1, 2))),
        Pair('"Ἀβραὰμ', "Abraham", "40001", ((0, 0),)),
    ]


def test_other_files_are_refused():
    for source, records in (("a\tb\n1\t2", json.dumps(RECORDS)), (SOURCE, "{}"), (SOURCE, "no")):
        with pytest.raises(StoredDataError, match="no word tables"):
            read_aligned_verses(source, TARGET, records)
