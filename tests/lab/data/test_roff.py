import pytest

from regard.lab.data.roff import Section, read_roff

PAGE = r"""
.\" a comment
.de IX
..
.ds C+ C\v'-.1v'
.TH EPOLL 2 2023-02-05 "Linux"
.SH NAME
epoll \- wait\
ing
.SH "SEE ALSO"
.BR epoll_ctl (2),
\fBcrypto\fR\|(7)
.SH DESCRIPTION
The
.I events
argument, of \s-1TYPE\s0 \*(L"int\*(R" \[bu] 3\(mu4.
.PP
Next \(dqpara\(dq.
.IP \[bu] 3
an item;
.nf
  int  x;
.B #include <a.h>
.fi
.ie n .IP "shown" 4
.el .IP "hidden" 4
.if t \{\
hidden too
.\}
.SS Sub
.TS
tab(:);
l l.
a:b
_
c:T{
long cell
T}
.TE
"""


def test_a_page_becomes_sections_of_plain_text():
    assert read_roff(PAGE) == [
        Section("NAME", "epoll - waiting"),
        Section("SEE ALSO", "epoll_ctl(2), crypto(7)"),
        Section(
            "DESCRIPTION",
            'The events argument, of TYPE "int" * 3x4.\nNext "para".\n* an item;\n'
            "  int  x;\n#include <a.h>\nshown\nSub\na b\nc long cell",
        ),
    ]


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (r"a\e\-b\&\~c", "a\\-b c"),
        (r"\f(CWcode\fP \fIx\fR", "code x"),
        (r"one \" comment", "one"),
        (r"\h'2m'wide\w'x'", "wide"),
        (r"\[u00E9]t\[:E]", "ét"),
    ],
)
def test_escapes(written, read):
    assert read_roff(f".TH X 1\n.SH A\n{written}\n") == [Section("A", read)]


def test_a_page_without_a_title_says_nothing():
    assert read_roff(".so man3/other.3\n") == []
