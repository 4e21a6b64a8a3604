"""The laboratory: data, tasks, training, recipes and the arena. It needs the extra `lab`."""
