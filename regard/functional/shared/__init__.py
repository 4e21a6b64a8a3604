"""Parts that two kernel families share."""
