"""Sources of data. Nothing here depends on models."""

from regard.lab.data.records import Data, Examples, Ragged, Records, checksum
from regard.lab.data.schema import Schema

__all__ = ["Data", "Examples", "Ragged", "Records", "Schema", "checksum"]
