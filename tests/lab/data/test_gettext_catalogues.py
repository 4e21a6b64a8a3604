from struct import pack

import pytest

from regard.core import StoredDataError
from regard.lab.data.archives import open_archive
from regard.lab.data.gettext_catalogues import read_catalogues, read_mo, read_po

PO = r"""# comment
msgid ""
msgstr "Content-Type: text/plain; charset=UTF-8\n"

#: view.py:12
msgctxt "menu"
msgid "&Open %s"
msgstr "%s ö&ffnen"

#. Default: "Save the page"
msgid "label_save"
msgstr ""
"Seite "
"\"speichern\""

#, fuzzy
msgid "Close"
msgstr "Auf"

msgid "%d file"
msgid_plural "%d files"
msgstr[0] "%d Datei"
msgstr[1] "%d Dateien"

msgid "Untranslated"
msgstr ""

msgid "Album"
msgstr "Album"

msgid "OK"
msgstr "Gut"

#~ msgid "Obsolete"
#~ msgstr "Veraltet"
"""


def mo(entries: dict[str, str]) -> bytes:
    """A compiled catalogue, as the GNU gettext manual lays it out."""
    entries = {"": "Content-Type: text/plain; charset=UTF-8\n", **entries}
    rows = sorted((key.encode(), value.encode()) for key, value in entries.items())
    place = 28 + 16 * len(rows)
    tables, content = [b"", b""], b""
    for column in (0, 1):
        for row in rows:
            tables[column] += pack("<II", len(row[column]), place + len(content))
            content += row[column] + b"\0"
    head = pack("<7I", 0x950412DE, 0, len(rows), 28, 28 + 8 * len(rows), 0, 28)
    return head + tables[0] + tables[1] + content


def test_sources_of_catalogues():
    assert list(read_po(PO, "x.po")) == [
        ("&Open %s", "%s ö&ffnen"),
        ("Save the page", 'Seite "speichern"'),
        ("Album", "Album"),
        ("OK", "Gut"),
    ]


def test_compiled_catalogues():
    content = mo({"menu\x04Open": "Öffnen", "Cut": "Ausschneiden", "%d\0%ds": "a\0b"})
    assert sorted(read_mo(content, "x.mo")) == [("Cut", "Ausschneiden"), ("Open", "Öffnen")]
    with pytest.raises(StoredDataError, match=r"x\.mo is no compiled gettext catalogue"):
        list(read_mo(b"something else, of some length", "x.mo"))


def test_catalogues_of_one_language(tmp_path):
    def put(name, content):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    put("a/locale/de/LC_MESSAGES/app.po", PO.encode())
    put("a/locale/de/LC_MESSAGES/app.mo", mo({"Never": "gelesen"}))
    put(
        "a/locale/de_DE/LC_MESSAGES/sub.mo",
        mo({"_Cut a b": "_Schneiden", "C&&A &x": "1", "7": "8"}),
    )
    put("a/locale/de_Informal/LC_MESSAGES/app.mo", mo({"Yes": "Jo"}))
    put("a/locale/fr/LC_MESSAGES/app.mo", mo({"Yes": "Oui"}))
    archive = open_archive(tmp_path)
    assert read_catalogues(archive, "de") == [
        ("Open %s", "%s öffnen", "a/locale/app", ()),
        ("Save the page", 'Seite "speichern"', "a/locale/app", ()),
        ("OK", "Gut", "a/locale/app", ()),
        ("C&&A &x", "1", "a/locale/sub", ()),
        ("Cut a b", "Schneiden", "a/locale/sub", ()),
    ]
    assert [pair.target for pair in read_catalogues(archive, "fr")] == ["Oui"]
