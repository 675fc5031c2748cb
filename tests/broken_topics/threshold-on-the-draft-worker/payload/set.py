# sglforge: wrong on purpose.
self.spec_disable_batch_threshold = server_args.speculative_disable_batch_threshold
