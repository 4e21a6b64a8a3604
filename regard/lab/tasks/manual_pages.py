"""Manual pages: does one name the other under SEE ALSO? Matching of two documents without that section."""

from dataclasses import dataclass

import numpy as np

from regard.lab.data.labelled import TextPairs
from regard.lab.data.linked import paired, parts_of
from regard.lab.data.manual import Manual, read_manual
from regard.lab.data.records import Records
from regard.lab.data.sources import archive
from regard.lab.tasks.match import Match
from regard.lab.tasks.task import Splits

_SHARES = (0.7, 0.15, 0.15)  # of the pages


@dataclass(frozen=True, kw_only=True)
class ManualPages(Match):
    """As many pairs that are linked as pairs that are not, whose second pages are of the same manual section.

    No page is in two parts: nearly all pages hang together by their links, so they are cut into three parts where few
    links are, and a link between parts is not used. Pages with the same text count once.
    """

    name = "manual_pages"
    sources = ("manpages",)

    def load(self) -> Splits:
        return self.of(read_manual(archive("manpages")))

    def of(self, manual: Manual) -> Splits:
        seen: dict[str, str] = {}
        for key, page in manual.pages.items():
            seen.setdefault(page.text.strip(), key)
        kept = {key for text, key in seen.items() if text}
        links = [link for link in manual.links if set(link) <= kept]
        linked = sorted({key for link in links for key in link})
        group = {key: manual.pages[key].section[0] for key in linked}
        rng = np.random.default_rng(self.seed)

        def part(names: set[str]) -> Records:
            pairs = paired(links, group, names, rng)
            text = {name: manual.pages[name].text.strip().encode() for name in names}
            first, second = [text[a] for a, _, _ in pairs], [text[b] for _, b, _ in pairs]
            return self.part(TextPairs(first, second, np.array([label for _, _, label in pairs])))

        train, valid, test = parts_of(linked, links, _SHARES)
        return Splits(part(train), part(valid), part(test))
