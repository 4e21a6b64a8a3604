"""Translated messages of JupyterLab, in gettext catalogues."""

from regard.lab.data.sources.rows import count_messages
from regard.lab.data.sources.source import Package, Source

SOURCE = Source(
    name="gettext_jupyterlab",
    about="messages of JupyterLab, English, German and French",
    licence="E",
    terms="BSD-3-Clause",
    packages=(
        Package(
            channel="pypi",
            name="jupyterlab-language-pack-de-DE",
            version="4.5.post3",
            file="jupyterlab_language_pack_de_de-4.5.post3-py2.py3-none-any.whl",
            sha256="b716b56f7e0c884f42152d5e36c253ea0f32ca41f99097d842d3934f4a4bc7fb",
            bytes=68327,
        ),
        Package(
            channel="pypi",
            name="jupyterlab-language-pack-fr-FR",
            version="4.5.post3",
            file="jupyterlab_language_pack_fr_fr-4.5.post3-py2.py3-none-any.whl",
            sha256="9f6ce9d4e64b367ff084a2313af29d6ad8a02d1d08000f3e6c53e2856fa9a11f",
            bytes=222292,
        ),
    ),
    counts={
        "German": 975,
        "French": 2915,
    },
    count=count_messages,
)
