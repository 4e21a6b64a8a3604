"""The result of a call does not depend on calls in other threads: `forward` and `observe` side by side."""

from concurrent.futures import ThreadPoolExecutor
from threading import get_ident

from torch import Tensor

from regard.core import Mask, Mixer
from regard.testing.subject import B, Subject, T, require, require_close


def law(subject: Subject) -> None:
    mixer, mask = subject.make(blocks="own"), Mask(causal=not subject.can.bidirectional)
    x, other = subject.tokens(B, T), subject.tokens(B, T, seed=1)
    alone, others = _results(mixer, x, mask), _results(mixer, other, mask)
    own, beside = get_ident(), []
    with ThreadPoolExecutor(1) as second:

        def interrupted(method):
            """The method, with a second thread's calls before and after it."""

            def call(*request):
                if get_ident() != own:
                    return method(*request)
                beside.append(second.submit(_results, mixer, other, mask).result())
                result = method(*request)
                beside.append(second.submit(_results, mixer, other, mask).result())
                return result

            return call

        for name in ("mix", "_observe"):
            setattr(mixer, name, interrupted(getattr(mixer, name)))
        among = _results(mixer, x, mask)
    _require_same(among, alone, "beside another thread's calls")
    for found in beside:
        _require_same(found, others, "within another thread's call")


def _results(mixer: Mixer, x: Tensor, mask: Mask) -> dict[str, Tensor | None]:
    found: dict[str, Tensor | None] = {"forward": mixer(x, mask=mask)}
    for name, weights in (("observe", True), ("observe(weights=False)", False)):
        seen = mixer.observe(x, mask=mask, weights=weights)._asdict()
        found |= {f"{name}: {field}": value for field, value in seen.items()}
    return found


def _require_same(
    found: dict[str, Tensor | None], alone: dict[str, Tensor | None], where: str
) -> None:
    for name, value in alone.items():
        here = found[name]
        if value is None or here is None:
            require(value is here, f"{name}, {where}: there alone, or here alone")
        else:
            require_close(here, value, 1e-12, f"{name}, {where}")
