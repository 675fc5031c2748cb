# sglforge: graphs of plain decode.
def _init_plain_decode_graphs(self) -> None:
    """Capture graphs of the target for plain decode, beside those that it verifies with.

    Emulated on a CPU only; nobody has run them on a GPU yet. They get an attention backend of their own, so that
    the verification's graphs keep their buffers.
    """
    args, runner = self.server_args, self.target_worker.model_runner
    if self.spec_disable_batch_threshold == 0 or args.speculative_disable_batch_mode == "eager":
        return
    from sglang.srt.model_executor.cuda_graph_runner import CudaGraphRunner

    if args.disable_cuda_graph or not isinstance(runner.graph_runner, CudaGraphRunner):
        return
    if args.enable_lora or args.kt_weight_path:
        logger.warning("sglforge: plain decode is eager: another graph runner would reset what LoRA or KT captured")
        return
    changed = [
        (runner, "attn_backend"),
        (runner, "graph_runner"),
        (runner, "spec_algorithm"),
        (runner, "init_new_workspace"),
        (args, "enable_return_hidden_states"),
        (args, "cuda_graph_bs"),
    ]
    saved = [getattr(owner, name) for owner, name in changed]
    above = [size for size in args.cuda_graph_bs if size > self.spec_disable_batch_threshold]
    try:
        runner.spec_algorithm = SpeculativeAlgorithm.NONE
        args.enable_return_hidden_states = self._plain_decode_hidden_mode() == CaptureHiddenMode.FULL
        args.cuda_graph_bs = above or [max(args.cuda_graph_bs)]
        runner.attn_backend = runner._get_attention_backend(init_new_workspace=True)
        self.plain_decode_state = (runner.attn_backend, CudaGraphRunner(runner))
    except Exception as error:
        raise RuntimeError(
            "sglforge: capturing graphs of plain decode failed; --speculative-disable-batch-mode eager does without"
        ) from error
    finally:
        for (owner, name), value in zip(changed, saved):
            setattr(owner, name, value)

def plain_decode_mode(self) -> str:
    """Say how plain decode runs."""
    if self.plain_decode_state is None:
        return "eager"
    return f"graphs for batches of {self.plain_decode_state[1].capture_bs}"
