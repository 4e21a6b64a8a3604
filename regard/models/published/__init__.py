"""Published stacks: each file says what a paper's stack consists of, and names its sizes."""
