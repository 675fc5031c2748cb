# sglforge: last, when every other option is settled.
self._check_speculative_disable_batch_threshold()
