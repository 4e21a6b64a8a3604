"""Histories of shops: `regard.lab.data.shops` reads them."""

from pathlib import Path

from regard.core import StoredDataError
from regard.lab.data.checks import need
from regard.lab.data.own.format import Format, Parts
from regard.lab.data.shops import AMAZON, TAOBAO, Shop, read_amazon, read_taobao


def read_folder(path: Path) -> Parts:
    found = {}
    for name in ("reviews", "meta"):
        files = sorted(file for file in need(path, AMAZON).glob(f"{name}_*") if file.is_file())
        if len(files) != 1:
            raise StoredDataError(f"{path} has {len(files)} files {name}_*. Expected: {AMAZON}")
        found[name] = files[0]
    return {"all": read_amazon(found["reviews"], found["meta"])}


def read_clicks(path: Path) -> Parts:
    return {"all": read_taobao(path)}


def _count(shop: Shop) -> dict[str, int]:
    return {
        "behaviours": len(shop.behaviours.user),
        "users": len(shop.users),
        "items": len(shop.items),
        "categories": len(set(shop.categories) - {None}),
    }


AMAZON_REVIEWS = Format(
    name="amazon_reviews",
    about="reviews of Amazon and what the products are",
    layout=AMAZON,
    read=read_folder,
    count=_count,
)
TAOBAO_CLICKS = Format(
    name="taobao",
    about="UserBehavior of Taobao: who looked at what",
    layout=TAOBAO,
    read=read_clicks,
    count=_count,
)
