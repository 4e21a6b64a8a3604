"""Texts that break out of whatever they are put into without care: markup, script, expressions, terminals, spreadsheets."""

CODES = (
    "document.documentElement.setAttribute('data-ran',1)",
    "(top.document.documentElement.dataset.ran=1)",
    "globalThis.ran=document.documentElement.dataset.ran=1",
    'document.documentElement["setAttribute"]("data-ran","1")',
)
AROUND = (
    "<script>{}</script>", "</script><script>{}</script>",
    "</script ><script type=module>{}</script>", "--></script><script>{}</script><!--",
    "<!--<script>{}</script>", "</title><script>{}</script>", "</style><script>{}</script>",
    "</textarea><script>{}</script>", "]]><script>{}</script>", "<img src=x onerror={}>",
    '"><img src=x onerror={}>', "'><img src=x onerror={}>", "<svg onload={}>",
    "<svg><script>{}</script></svg>", "<svg><animate onbegin={} attributeName=x dur=1s>",
    "<math><mtext></mtext><img src onerror={}>", "<iframe srcdoc='<script>{}</script>'>",
    '<iframe src="javascript:{}">', '<a href="javascript:{}">x</a>', "<details open ontoggle={}>",
    "<input autofocus onfocus={}>", "<body onload={}>", "<base href='javascript:{}//'>",
    "<meta http-equiv=refresh content='0;url=javascript:{}'>", "<object data='javascript:{}'>",
    "javascript:{}", '" onmouseover={} x="', "' onmouseover={} x='", '";{};//', "';{};//", '"+{}+"',
    "'+{}+'", "\\';{};//", '\\");{};//', "${{{}}}", "`+{}+`", "*/{}/*", "//\n{}", "\u2028{}",
    "\u2029{}//", "\r\n{};\r\n", "1;{}", "datum['x'];{}", '{{{{constructor.constructor("{}")()}}}}',
    "data:text/html,<script>{}</script>", "\x1b]8;;javascript:{}\x1b\\link\x1b]8;;\x1b\\",
    "\x1b[2J\x1b]0;{}\x07\x9b31m", "[bold red link=javascript:{}]markup[/]",
    "\u202e{}\x00\u200b|,\t", '=HYPERLINK("{}")\\input{{/etc/passwd}}|\n',
)  # fmt: skip
PAYLOADS = tuple(around.format(code) for around in AROUND for code in CODES)
assert len(set(PAYLOADS)) == 200
