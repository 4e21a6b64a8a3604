"""Where real data comes from; knows nothing of models."""

from regard.data.examples import Examples, checksum
from regard.data.listops import generate_listops

__all__ = ["Examples", "checksum", "generate_listops"]
