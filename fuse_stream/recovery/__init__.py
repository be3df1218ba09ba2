"""Going back: rewind, revert, publish, and Spark's checkpoints with them."""
