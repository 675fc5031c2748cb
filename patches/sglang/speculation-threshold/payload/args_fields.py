# sglforge: 0 never switches speculation off.
speculative_disable_batch_threshold: int = 0
speculative_disable_batch_mode: str = "graph"
