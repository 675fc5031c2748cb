# sglforge: before anything that can fail.
self.spec_disable_batch_threshold = server_args.speculative_disable_batch_threshold
