"""`regard laws` on the command line: what each law finds in a mixer, in all of its variants, or in a pool of one's own."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from tyro.conf import Positional

from regard.cli.arguments import Json, Words
from regard.cli.names import entry, imported, own
from regard.cli.printing import print_json, print_table
from regard.core import Declared, OptionError, RegardError, limited

if TYPE_CHECKING:
    from regard.testing import Verdict

Facts = dict[str, Any]
FACTS: Facts = {"dim": 24, "num_heads": 3, "max_len": 64}
OUTCOMES = ("failed", "cannot judge", "passed", "does not apply")  # the first that any variant has


class Laws(Declared):
    """Run the laws on a mixer, `regard laws linear`, or on your own mixer or pool, `regard laws my_module:MyMixer`."""

    name: Positional[str]
    """of a mixer, or module:Class of your own"""
    law: Words = ()
    """names of laws; all of them by default"""
    oracle: str | None = None
    """module:function, the slow reference that your own mixer must equal; a mixer of the library has its own"""
    json: Json = False

    def run(self) -> int:
        """1 if a law is broken."""
        rows = judged(self.name, self.law, self.oracle)
        outcomes = [row["verdict"] for row in rows]
        if self.json:
            print_json(rows)
        else:
            print_table(rows, title=self.name)
            said = (
                f"{n} {o if n == 1 else o.replace('does', 'do')}"
                for o in OUTCOMES
                if (n := outcomes.count(o))
            )
            print(", ".join(said))
        return int("failed" in outcomes)


def judged(name: str, laws: Sequence[str], oracle: str | None = None) -> list[Facts]:
    """One row for each law: the law, its verdict over all variants, seconds, and what breaks it or why it cannot judge."""
    from rich.console import Console

    from regard import build
    from regard.pools import build_pool
    from regard.testing import LAWS, judge_mixer, judge_pool

    kind, cls = own(name, ("mixers", "pools")) if ":" in name else ("mixers", entry("mixers", name))
    slow: Any = oracle and imported(oracle)
    if oracle is not None and (kind == "pools" or not callable(slow)):
        raise OptionError(f"--oracle {oracle} must be a function, and the reference of a mixer")
    asked = laws or "all"
    if kind == "pools":
        verdicts = judge_pool(lambda: build_pool(cls, FACTS["dim"]), asked)
        return [_row(verdict.law, {"default": verdict}) for verdict in verdicts]
    variants = {"default": {}, **cls.variants}
    factories = {name: partial(build, cls, **FACTS | dict(o)) for name, o in variants.items()}
    for variant, factory in factories.items():  # wrong options are found before any law runs
        try:
            with limited():
                factory()
        except RegardError as error:
            if variant == "default" or "variants" in vars(cls):
                raise
            inherited = [f"{n} = {{}}" for n in ("variants", "limits") if n not in vars(cls)]
            raise OptionError(
                f"{cls.__name__} inherits the variant {variant!r}: {error}. Override what it inherits: {', '.join(inherited)}"
            ) from error
    found: dict[str, dict[str, Verdict]] = {}
    with Console(stderr=True).status("laws") as status:
        for variant, factory in factories.items():
            for verdict in judge_mixer(factory, asked, oracle=slow):
                found.setdefault(verdict.law, {})[variant] = verdict
                status.update(f"laws  {variant}: {verdict.law} of {len(laws or LAWS)} laws")
    return [_row(law, by_variant) for law, by_variant in found.items()]


def _row(law: str, by_variant: "Mapping[str, Verdict]") -> Facts:
    outcomes = {verdict.outcome for verdict in by_variant.values()}
    outcome = next(outcome for outcome in OUTCOMES if outcome in outcomes)
    said = dict[str, list[str]]()
    for variant, verdict in by_variant.items():
        if verdict.outcome == outcome and verdict.sentence:
            said.setdefault(verdict.sentence, []).append(variant)
    why = [
        sentence if len(variants) == len(by_variant) else f"{', '.join(variants)}: {sentence}"
        for sentence, variants in said.items()
    ]
    seconds = sum(verdict.seconds for verdict in by_variant.values())
    return {"law": law, "verdict": outcome, "seconds": round(seconds, 1), "why": "\n".join(why)}
