"""python benchmarks/cuda.py --out DIR [--part laws|speed] [--minutes 8]: the program is on_cuda.py, which says what it does."""

if __name__ == "cuda":
    # torch imports NVIDIA's package of this name, and the folder of a running program comes first in its path: give way.
    import importlib
    import sys
    from pathlib import Path

    _path, _here = sys.path, Path(__file__).parent
    sys.path = [folder for folder in _path if Path(folder).absolute() != _here]
    del sys.modules["cuda"]
    try:
        importlib.import_module("cuda")
    finally:
        sys.path = _path
else:
    from measuring import run
    from on_cuda import main

    if __name__ == "__main__":
        run(main)
