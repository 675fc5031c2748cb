# sglforge: defaults on the class, because a subclass may have an __init__ that never calls this one's.
spec_disable_batch_threshold: int = 0
# Attention backend and graph runner of the target for plain decode; None decodes eagerly with the usual backend.
plain_decode_state: Optional[tuple] = None
