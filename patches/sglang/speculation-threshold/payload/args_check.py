# sglforge: where the threshold is refused.
def _check_speculative_disable_batch_threshold(self):
    """Refuse a threshold that nothing would obey, or whose fall-back is not known to be right."""
    threshold = self.speculative_disable_batch_threshold
    if threshold < 0:
        raise ValueError("--speculative-disable-batch-threshold must be 0 (never) or more")
    if threshold == 0:
        return
    if (
        self.speculative_algorithm not in ("EAGLE", "EAGLE3", "STANDALONE")
        or self.disable_overlap_schedule
        or self.enable_multi_layer_eagle
    ):
        raise ValueError(
            "--speculative-disable-batch-threshold needs EAGLE, EAGLE3 or STANDALONE on spec v2 "
            "(SGLANG_ENABLE_SPEC_V2=1, overlap schedule on, top-k 1), without --enable-multi-layer-eagle"
        )
    # Ranks would decide by batches of their own, or batches are laid out in another way.
    refused = {
        "--enable-dp-attention": self.enable_dp_attention,
        "--enable-two-batch-overlap": self.enable_two_batch_overlap,
        "--enable-pdmux": self.enable_pdmux,
        "--speculative-adaptive": getattr(self, "speculative_adaptive", False),
    }
    # Their metadata of a draft extend has num_draft_tokens rows per request, whatever is asked for.
    sparse = {"nsa", "dsv4", "compressed"}
    backends = {*self.get_attention_backends(), self.speculative_draft_attention_backend}
    refused.update((f"attention backend {name}", True) for name in sorted(sparse & backends))
    if found := [name for name, used in refused.items() if used]:
        raise ValueError(f"--speculative-disable-batch-threshold does not work with {', '.join(found)}")
