"""One function per law, in files by subject; each raises LawError when the mixer breaks it."""
