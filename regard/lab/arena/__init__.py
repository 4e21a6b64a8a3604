"""Which mechanism, at my length, on my machine: train all that fit a task, time them, and keep every result."""
