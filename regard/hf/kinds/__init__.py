"""The reader of each kind of checkpoint, by the `model_type` of its config."""
