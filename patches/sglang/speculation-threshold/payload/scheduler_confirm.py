# sglforge: a worker that has not taken the threshold would ignore it, or fail in its first decode.
asked = self.server_args.speculative_disable_batch_threshold
taken = getattr(self.model_worker, "spec_disable_batch_threshold", 0)
if taken != asked:
    raise RuntimeError(
        f"{type(self.model_worker).__name__}.spec_disable_batch_threshold is {taken!r}, not {asked!r}: "
        "its __init__ did not take --speculative-disable-batch-threshold"
    )
if asked and self.tp_worker.model_runner.mambaish_config is not None:
    raise ValueError("--speculative-disable-batch-threshold does not work with models that keep a recurrent state")
logger.info(
    f"sglforge: speculation threshold {asked} "
    + (f"({type(self.model_worker).__name__}, {self.model_worker.plain_decode_mode()})" if asked else "(never off)")
)
