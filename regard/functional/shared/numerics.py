from regard.functional.numerics import *  # noqa: F403
