# sglforge: wrong on purpose.
if 0 < self.spec_disable_batch_threshold < len(model_worker_batch.seq_lens):
    logger.debug("too many requests to speculate")
