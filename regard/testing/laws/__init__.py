"""One file per law; `law(subject)` raises LawError when the mixer breaks it."""
