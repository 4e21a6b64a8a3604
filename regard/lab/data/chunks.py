"""Drawing in numbered chunks, each from a generator of its own: any number of processes gives the same ones in the same order."""

from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from itertools import count
from multiprocessing import get_all_start_methods, get_context
from typing import TypeVar

Chunk = TypeVar("Chunk")


def drawn(draw: Callable[[int], Chunk], processes: int) -> Generator[Chunk, None, None]:
    """draw(0), draw(1), ... without end; with several processes a few are drawn ahead."""
    if processes == 1:
        yield from map(draw, count())
        return
    method = "fork" if "fork" in get_all_start_methods() else "spawn"
    with ProcessPoolExecutor(processes, mp_context=get_context(method)) as pool:
        numbers = count()
        ahead = deque(pool.submit(draw, next(numbers)) for _ in range(2 * processes))
        try:
            while True:
                yield ahead.popleft().result()
                ahead.append(pool.submit(draw, next(numbers)))
        finally:
            pool.shutdown(cancel_futures=True)


@contextmanager
def bar(who: str, total: int) -> Iterator[Callable[[int], None]]:
    """Tell it how many are done; it is drawn on a terminal only."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(f"{who}: generating {total:,}", total=total)
        yield lambda done: progress.update(task, completed=done)
