# sglforge: nothing is wrong with this one.
speculative_disable_batch_threshold: int = 0
