"""How each kind of checkpoint is read, by the `model_type` of its config."""
