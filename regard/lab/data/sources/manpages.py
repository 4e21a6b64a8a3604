"""Manual pages of Linux and of OpenSSL, in roff, with their SEE ALSO links."""

from regard.lab.data.manual import count_manual
from regard.lab.data.sources.source import Package, Source

SOURCE = Source(
    name="manpages",
    about="manual pages and the links between them",
    licence="F",
    terms="a mix of GPL, BSD and verbatim licences; OpenSSL pages Apache-2.0",
    packages=(
        Package(
            channel="debian",
            name="manpages",
            version="6.03-2",
            file="manpages_6.03-2_all.deb",
            sha256="efa1ba4cd19ad7baeae959c9209a7eb74be2ebb858bcabb412597bfc9f588c91",
            bytes=1331652,
        ),
        Package(
            channel="debian",
            name="manpages-dev",
            version="6.03-2",
            file="manpages-dev_6.03-2_all.deb",
            sha256="96f55cb5e26231d5567c89b692bced63825a14a2d5bd18fdf16ea2ed44eb9838",
            bytes=2030264,
        ),
        Package(
            channel="debian",
            name="libssl-doc",
            version="3.0.20-1~deb12u2",
            file="libssl-doc_3.0.20-1~deb12u2_all.deb",
            sha256="288301da4a89227dfbb98fe498894e1f79aeda29d0aae4a84fb7db4fc0d3fba4",
            bytes=2400872,
        ),
    ),
    counts={
        "pages": 1711,
        "other names": 6168,
        "directed links": 6641,
        "linked pairs": 4834,
        "linked pages": 1597,
        "characters": 8383278,
        "median of a page": 2688,
        "pages over 4000": 601,
    },
    count=count_manual,
)
