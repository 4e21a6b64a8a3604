"""Plays are read turn by turn."""

from regard.lab.tasks.pairs import Turn, read_turns

PLAY = """THE PLAY

DUNCAN, King of Scotland.
MALCOLM, his Son.

ACT I.

SCENE I. A heath.

[Enter MACBETH and
Kent.]

MACBETH.
So foul and fair a day
I have not seen.

[Aside.]

It goes on here.

Kent. [To MACBETH.]
My lord.

SCENE II.

OFFICER. Good sir,
be patient.

OBERON
What hast thou done?

If we offend.

EPILOGUE.

I'll drown my book.
"""


def test_turns_of_all_layouts_are_read():
    assert read_turns(PLAY) == [
        Turn(2, "MACBETH", "So foul and fair a day\nI have not seen.\nIt goes on here."),
        Turn(2, "KENT", "My lord."),
        Turn(3, "OFFICER", "Good sir,\nbe patient."),
        Turn(3, "OBERON", "What hast thou done?\nIf we offend."),
    ]
