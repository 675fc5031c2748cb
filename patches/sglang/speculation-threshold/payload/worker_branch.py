# sglforge: a decode batch above the threshold does not speculate.
if self._should_disable_spec(model_worker_batch):
    return self._forward_decode_without_spec(model_worker_batch)
