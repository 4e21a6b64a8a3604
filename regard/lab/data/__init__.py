"""Sources of data. Nothing here depends on models."""

from regard.lab.data.records import Examples, Ragged, Records, checksum
from regard.lab.data.schema import Schema

__all__ = ["Examples", "Ragged", "Records", "Schema", "checksum"]
