from regard.functional.cache import *  # noqa: F403
