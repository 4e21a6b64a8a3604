"""Refuses a torch that is too old, in one line, when the library is imported."""

import torch

from regard.core.packages import require_torch

OLDEST_TORCH = "2.10"

require_torch(torch.__version__, OLDEST_TORCH)
