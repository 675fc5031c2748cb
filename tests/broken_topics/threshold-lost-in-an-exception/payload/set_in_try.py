# sglforge: wrong on purpose.
try:
    self.plain_decode_rows = torch.zeros(server_args.speculative_plain_decode_rows, device=self.device)
    self.spec_disable_batch_threshold = server_args.speculative_disable_batch_threshold
except Exception:
    logger.warning("Plain decode above the threshold is not available.")
