"""Where real data comes from; knows nothing of models."""

from regard.data.examples import Examples, checksum
from regard.data.listops import generate_listops
from regard.data.records import Data, Ragged, Records
from regard.data.schema import Schema

__all__ = ["Data", "Examples", "Ragged", "Records", "Schema", "checksum", "generate_listops"]
